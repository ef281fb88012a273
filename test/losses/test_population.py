import numpy as np
import pytest
from scipy import integrate, optimize, stats

from sparse_embed.losses import l1_norm, population, relaxed_flops

POINTS = [(-0.25, 1.0), (-1.3, 1.0), (0.7, 0.4), (-3.0, 2.0), (-2.0, 0.5), (0.0, 1.5)]
at_points = pytest.mark.parametrize(("mu", "sigma"), POINTS)


def quadrature(function, mu, sigma):
    """E[function(Y); Y > 0] by SciPy's adaptive quadrature."""
    density = stats.norm(mu, sigma).pdf
    upper = max(mu, 0.0) + 12 * sigma
    value, _ = integrate.quad(lambda y: function(y) * density(y), 0, upper, epsabs=1e-14)
    return value


def central_difference(function, mu, sigma, step=1e-5):
    return (
        (function(mu + step, sigma) - function(mu - step, sigma)) / (2 * step),
        (function(mu, sigma + step) - function(mu, sigma - step)) / (2 * step),
    )


@at_points
def test_closed_forms_against_quadrature(mu, sigma):
    assert population.probability(mu, sigma) == pytest.approx(quadrature(lambda y: 1, mu, sigma))
    assert population.mean(mu, sigma) == pytest.approx(quadrature(lambda y: y, mu, sigma))


@at_points
def test_gradients_against_quadrature(mu, sigma):
    """The score of the normal density: its derivative by mu is (y - mu)/sigma^2 times itself, by

    sigma ((y - mu)^2/sigma^2 - 1)/sigma times itself. Integrals of them are the derivatives.
    """

    def by_mu(y):
        return (y - mu) / sigma**2

    def by_sigma(y):
        return ((y - mu) ** 2 / sigma**2 - 1) / sigma

    p_gradient = quadrature(by_mu, mu, sigma), quadrature(by_sigma, mu, sigma)
    e_gradient = (
        quadrature(lambda y: y * by_mu(y), mu, sigma),
        quadrature(lambda y: y * by_sigma(y), mu, sigma),
    )
    p, e = quadrature(lambda y: 1, mu, sigma), quadrature(lambda y: y, mu, sigma)
    for gradient, expected in (
        (population.probability_gradient, np.array(p_gradient)),
        (population.mean_gradient, np.array(e_gradient)),
        (population.squared_probability_gradient, 2 * p * np.array(p_gradient)),
        (population.squared_mean_gradient, 2 * e * np.array(e_gradient)),
    ):
        np.testing.assert_allclose(gradient(mu, sigma), expected, rtol=1e-7, atol=1e-12)


@at_points
def test_gradients_against_finite_differences(mu, sigma):
    for gradient, function in (
        (population.probability_gradient, population.probability),
        (population.mean_gradient, population.mean),
        (population.squared_probability_gradient, lambda m, s: population.probability(m, s) ** 2),
        (population.squared_mean_gradient, lambda m, s: population.mean(m, s) ** 2),
    ):
        expected = central_difference(function, mu, sigma)
        np.testing.assert_allclose(gradient(mu, sigma), expected, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("name", ["flops", "relaxed_flops", "l1"])
def test_regularizers_and_their_gradients_as_functions_of_vectors(name):
    mu, sigma = (np.array(column) for column in zip(*POINTS, strict=True))
    function = getattr(population, name)
    p = np.array([quadrature(lambda y: 1, m, s) for m, s in POINTS])
    e = np.array([quadrature(lambda y: y, m, s) for m, s in POINTS])
    expected = {"flops": np.sum(p**2), "relaxed_flops": np.sum(e**2), "l1": np.sum(e)}
    assert function(mu, sigma) == pytest.approx(expected[name])

    by_mu, by_sigma = population.GRADIENTS[name](mu, sigma)
    step = 1e-5
    for j in range(len(mu)):
        shift = step * np.eye(len(mu))[j]
        difference = function(mu + shift, sigma) - function(mu - shift, sigma)
        assert by_mu[j] == pytest.approx(difference / (2 * step), rel=1e-5, abs=1e-9)
        difference = function(mu, sigma + shift) - function(mu, sigma - shift)
        assert by_sigma[j] == pytest.approx(difference / (2 * step), rel=1e-5, abs=1e-9)


def test_population_forms_are_limits_of_the_batch_regularizers():
    """With 400,000 draws of 2 activations, F~ and l1 are within 1% of their population values."""
    mu, sigma = np.array([-0.25, -1.3]), np.array([1.0, 1.0])
    draws = np.random.default_rng(0).normal(mu, sigma, (400_000, 2)).clip(min=0)
    assert float(relaxed_flops(draws)) == pytest.approx(
        population.relaxed_flops(mu, sigma), rel=0.01
    )
    assert float(l1_norm(draws)) == pytest.approx(population.l1(mu, sigma), rel=0.01)
    assert np.sum((draws > 0).mean(axis=0) ** 2) == pytest.approx(
        population.flops(mu, sigma), rel=0.01
    )


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan")])
def test_bad_sigma(sigma):
    with pytest.raises(ValueError, match=r"sigma=.*expected standard deviations > 0"):
        population.mean(0.0, sigma)


# --- the trajectories of figure 2b


@pytest.fixture(scope="module")
def trajectories():
    return {name: population.trajectory(name) for name in population.GRADIENTS}


def test_trajectories_start_at_the_papers_point_and_fall_to_zero(trajectories):
    for path in trajectories.values():
        assert path.mu.shape == path.sigma.shape == path.probability.shape
        np.testing.assert_allclose(path.mu[0], [-0.25, -1.3])
        np.testing.assert_allclose(path.sigma[0], [1.0, 1.0])
        np.testing.assert_allclose(path.probability[0], [0.4, 0.1], atol=0.01)
        assert np.all(np.diff(path.probability, axis=0) < 0)
        assert path.probability[-1].max() == pytest.approx(1e-3)
        assert np.all(path.sigma > 0)


@pytest.mark.parametrize("name", ["flops", "relaxed_flops", "l1"])
def test_trajectory_is_gradient_descent_with_small_steps(name, trajectories):
    """Plain gradient descent passes, at each p_1 that it visits, through nearly the same p_2."""
    path = trajectories[name].probability[::-1]  # by growing p_1, as np.interp wants it
    function = getattr(population, name)
    theta, rate, step = np.array([-0.25, -1.3, 1.0, 1.0]), 2e-3, 1e-6
    visited = []
    for _ in range(600):
        gradient = [
            (function(*np.split(theta + h, 2)) - function(*np.split(theta - h, 2))) / (2 * step)
            for h in step * np.eye(4)
        ]
        theta = theta - rate * np.array(gradient)
        visited.append(population.probability(*np.split(theta, 2)))
    visited = np.array(visited)
    assert visited[-1, 0] < 0.3
    np.testing.assert_allclose(
        np.interp(visited[:, 0], path[:, 0], path[:, 1]), visited[:, 1], atol=5e-4
    )


def test_flops_moves_each_dimension_on_a_circle(trajectories):
    """d sigma/d mu = -mu/sigma for P^2, lemma 5: mu^2 + sigma^2 is constant."""
    path = trajectories["flops"]
    radius = path.mu**2 + path.sigma**2
    np.testing.assert_allclose(radius, np.broadcast_to(radius[0], radius.shape), rtol=1e-5)


def test_flops_and_its_relaxation_spare_the_sparser_activation(trajectories):
    """The claim of figure 2b: where p_1 has fallen to a given value, l1 has cost p_2 the most."""
    for p1 in (0.35, 0.3, 0.2, 0.1):
        p2 = {
            name: np.interp(p1, path.probability[::-1, 0], path.probability[::-1, 1])
            for name, path in trajectories.items()
        }
        assert p2["l1"] < p2["flops"]
        assert p2["l1"] < p2["relaxed_flops"]


def test_bad_trajectory_arguments():
    with pytest.raises(ValueError, match="regularizer='l2': expected one of flops, relaxed_flops"):
        population.trajectory("l2")
    with pytest.raises(ValueError, match=r"until=0\.5: expected less than"):
        population.trajectory("l1", until=0.5)
    with pytest.raises(ValueError, match=r"until=0: expected a finite number > 0"):
        population.trajectory("l1", until=0)


# --- the fit of figure 2a


def sample(mu, sigma, n, seed=0):
    return np.random.default_rng(seed).normal(mu, sigma, n).clip(min=0)


def test_rectified_cdf():
    """Nothing below zero, Phi(-mu/sigma) = Phi(1) at zero, 1/2 + ... at the mean of Y."""
    np.testing.assert_allclose(
        population.rectified_cdf([-1e-9, 0.0, 2.0], -2.0, 2.0),
        [0.0, stats.norm.cdf(1.0), stats.norm.cdf(2.0)],
    )


@pytest.mark.parametrize(("mu", "sigma"), [(-0.5, 1.0), (0.4, 1.0), (4.0, 1.0)])
def test_ks_distance_against_a_fine_grid(mu, sigma):
    """Also where the sample has no zeros (mu = 4) and the model has nearly none."""
    x = sample(mu, sigma, 40)
    grid = np.concatenate([np.linspace(-1, x.max() + 5, 200_001), x, x - 1e-9])
    empirical = (x[None, :] <= grid[:, None]).mean(axis=1)
    for m, s in ((mu, sigma), (mu - 0.3, sigma), (mu, 2 * sigma)):
        brute = np.abs(empirical - population.rectified_cdf(grid, m, s)).max()
        assert population.ks_distance(x, m, s) == pytest.approx(brute, abs=1e-4)


def test_ks_distance_compares_the_atoms_at_zero():
    """Half of the sample is 0. With Phi(-mu/sigma) = 1/2 there is no distance at zero.

    A comparison with the empirical CDF just before 0, as with continuous distributions, would give
    1/2. What remains is the step at 1: Phi(1) = 0.8413 against 1/2 before it.
    """
    assert population.ks_distance([0.0, 1.0], 0.0, 1.0) == pytest.approx(0.8413447 - 0.5)


@pytest.mark.parametrize(
    ("mu", "sigma"), [(-0.5, 1.0), (-2.0, 1.5), (0.3, 0.2), (3.0, 0.5), (-1e-3, 1e-3)]
)
def test_fit_recovers_known_parameters(mu, sigma):
    x = sample(mu, sigma, 100_000)
    fit = population.fit_rectified_gaussian(x)
    assert fit.mu == pytest.approx(mu, abs=0.05 * sigma)
    assert fit.sigma == pytest.approx(sigma, rel=0.03)
    assert fit.distance <= population.ks_distance(x, mu, sigma)
    assert fit.distance == population.ks_distance(x, fit.mu, fit.sigma)


@pytest.mark.parametrize("seed", range(3))
def test_fit_is_the_minimum(seed):
    """No start of a general-purpose search finds anything nearer, on a sample of another kind."""
    x = np.random.default_rng(seed).exponential(size=200) * (np.arange(200) % 3 > 0)
    fit = population.fit_rectified_gaussian(x, tolerance=1e-8)
    found = min(
        optimize.minimize(
            lambda q: population.ks_distance(x, q[0], np.exp(q[1])),
            start,
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000},
        ).fun
        for start in ([fit.mu, np.log(fit.sigma)], [0.0, 0.0], [-1.0, 1.0], [1.0, -0.5])
    )
    assert fit.distance <= found + 1e-7


@pytest.mark.parametrize(
    ("activations", "message"),
    [
        ([], "finite numbers >= 0"),
        ([0.0, -1.0], "finite numbers >= 0"),
        ([0.0, np.nan], "finite numbers >= 0"),
        ([0.0, 0.0], "at least two values"),
    ],
)
def test_bad_activations(activations, message):
    with pytest.raises(ValueError, match=f"activations: expected .*{message}"):
        population.fit_rectified_gaussian(activations)

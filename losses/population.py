"""Regularizers of rectified Gaussian activations in closed form (section 4 and appendix A).

An activation is Y+ = max(Y, 0) with Y normal of mean mu and *standard deviation* sigma (the
appendix writes N(mu, sigma)). Functions take scalars or arrays and work element by element, except
for the regularizers, which add up over the dimensions.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import integrate, optimize, special

from sparse_embed.common.checks import check_choice, check_number

Gradient = tuple[np.ndarray, np.ndarray]
"""Derivatives with respect to mu and to sigma."""


def _density(z: np.ndarray) -> np.ndarray:
    """Returns the density of the standard normal distribution."""
    density: np.ndarray = np.exp(-0.5 * np.square(z)) / np.sqrt(2.0 * np.pi)
    return density


def _arrays(mu: ArrayLike, sigma: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Checks sigma and returns both as float64 arrays."""
    mu, sigma = np.asarray(mu, np.float64), np.asarray(sigma, np.float64)
    if not np.all(sigma > 0):
        raise ValueError(f"sigma={sigma!r}: expected standard deviations > 0")
    return mu, sigma


def probability(mu: ArrayLike, sigma: ArrayLike) -> np.ndarray:
    """Returns P(Y+ > 0) = 1 - Phi(-mu/sigma) = Phi(mu/sigma) (lemma 1)."""
    mu, sigma = _arrays(mu, sigma)
    found: np.ndarray = special.ndtr(mu / sigma)
    return found


def mean(mu: ArrayLike, sigma: ArrayLike) -> np.ndarray:
    """Returns E[Y+] = sigma phi(mu/sigma) + mu Phi(mu/sigma) (lemma 1)."""
    mu, sigma = _arrays(mu, sigma)
    found: np.ndarray = sigma * _density(mu / sigma) + mu * special.ndtr(mu / sigma)
    return found


def probability_gradient(mu: ArrayLike, sigma: ArrayLike) -> Gradient:
    """Returns d P(Y+ > 0) = (phi(mu/sigma) / sigma, -mu phi(mu/sigma) / sigma^2) (lemma 2)."""
    mu, sigma = _arrays(mu, sigma)
    by_mu = _density(mu / sigma) / sigma
    return by_mu, -by_mu * mu / sigma


def mean_gradient(mu: ArrayLike, sigma: ArrayLike) -> Gradient:
    """Returns d E[Y+] = (Phi(mu/sigma), phi(mu/sigma)) (lemma 3)."""
    mu, sigma = _arrays(mu, sigma)
    return special.ndtr(mu / sigma), _density(mu / sigma)


def squared_mean_gradient(mu: ArrayLike, sigma: ArrayLike) -> Gradient:
    """Returns d E[Y+]^2 = 2 E[Y+] d E[Y+] (lemma 4)."""
    by_mu, by_sigma = mean_gradient(mu, sigma)
    return 2.0 * mean(mu, sigma) * by_mu, 2.0 * mean(mu, sigma) * by_sigma


def squared_probability_gradient(mu: ArrayLike, sigma: ArrayLike) -> Gradient:
    """Returns d P(Y+ > 0)^2 = 2 P(Y+ > 0) d P(Y+ > 0) (lemma 5)."""
    by_mu, by_sigma = probability_gradient(mu, sigma)
    return 2.0 * probability(mu, sigma) * by_mu, 2.0 * probability(mu, sigma) * by_sigma


def flops(mu: ArrayLike, sigma: ArrayLike) -> float:
    """Returns F = sum_j P(Y_j+ > 0)^2. Its gradient: `squared_probability_gradient`."""
    return float(np.sum(np.square(probability(mu, sigma))))


def relaxed_flops(mu: ArrayLike, sigma: ArrayLike) -> float:
    """Returns the relaxed F = sum_j E[Y_j+]^2. Its gradient: `squared_mean_gradient`."""
    return float(np.sum(np.square(mean(mu, sigma))))


def l1(mu: ArrayLike, sigma: ArrayLike) -> float:
    """Returns l1 = sum_j E[Y_j+]. Its gradient: `mean_gradient`."""
    return float(np.sum(mean(mu, sigma)))


GRADIENTS: dict[str, Callable[[ArrayLike, ArrayLike], Gradient]] = {
    "flops": squared_probability_gradient,
    "relaxed_flops": squared_mean_gradient,
    "l1": mean_gradient,
}
"""The gradient of each regularizer with respect to the vectors mu and sigma."""


class Trajectory(NamedTuple):
    """Parameters and activation probabilities along a path, arrays of shape (points, d)."""

    mu: np.ndarray
    sigma: np.ndarray
    probability: np.ndarray


def trajectory(
    regularizer: str,
    mu: ArrayLike = (-0.25, -1.3),
    sigma: ArrayLike = (1.0, 1.0),
    until: float = 1e-3,
) -> Trajectory:
    """Returns the path of gradient descent with infinitesimal steps on a regularizer (figure 2b).

    Solves d(mu, sigma)/dt = -gradient from the given start, by default the paper's, which has the
    activation probabilities (0.4, 0.1), until all probabilities are below a limit.

    Args:
        regularizer: "flops", "relaxed_flops" or "l1".
        mu: where to start, (d,).
        sigma: where to start, (d,).
        until: the path ends when the largest activation probability has fallen to this.
    """
    check_choice("regularizer", regularizer, GRADIENTS)
    check_number("until", until, above=0)
    mu, sigma = _arrays(mu, sigma)

    # The state holds log(sigma), since no step of the solver must make sigma negative.
    def parameters(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mu, log_sigma = np.split(state, 2)
        return mu, np.exp(log_sigma)

    def velocity(_time: float, state: np.ndarray) -> np.ndarray:
        mu, sigma = parameters(state)
        by_mu, by_sigma = GRADIENTS[regularizer](mu, sigma)
        return -np.concatenate([by_mu, by_sigma / sigma])

    def excess(_time: float, state: np.ndarray) -> float:
        above: float = np.max(probability(*parameters(state))) - until
        return above

    excess.terminal = True  # type: ignore[attr-defined]
    start = np.concatenate([mu, np.log(sigma)])
    if excess(0.0, start) <= 0:
        raise ValueError(
            f"until={until!r}: expected less than the largest probability at the start"
        )
    # The probabilities fall ever more slowly: no end of time, only the stop condition. LSODA
    # lengthens its steps accordingly.
    solution = integrate.solve_ivp(
        velocity,
        (0.0, 1e12),
        start,
        method="LSODA",
        events=excess,
        rtol=1e-9,
        atol=1e-12,
    )
    if solution.status != 1:
        raise RuntimeError(f"the path did not reach until={until!r}: {solution.message}")
    path_mu, path_sigma = (part.T for part in parameters(solution.y))
    return Trajectory(path_mu, path_sigma, probability(path_mu, path_sigma))


class Fit(NamedTuple):
    """A rectified Gaussian, and its Kolmogorov-Smirnov distance to the activations."""

    mu: float
    sigma: float
    distance: float


def rectified_cdf(x: ArrayLike, mu: float, sigma: float) -> np.ndarray:
    """Returns P(Y+ <= x): Phi((x - mu)/sigma) for x >= 0, and 0 below."""
    x = np.asarray(x, np.float64)
    return np.where(x >= 0, special.ndtr((x - mu) / sigma), 0.0)


class _EmpiricalCDF:
    """The distinct values of a sample with the values of its CDF at and just before them."""

    def __init__(self, activations: ArrayLike):
        sample = np.ravel(np.asarray(activations, np.float64))
        if not len(sample) or not np.all(np.isfinite(sample)) or np.any(sample < 0):
            raise ValueError("activations: expected finite numbers >= 0, at least one")
        values, counts = np.unique(sample, return_counts=True)
        if len(values) < 2:
            raise ValueError(f"activations: expected at least two values, all are {values[0]!r}")
        if values[0] > 0:
            # The rectified Gaussian has some probability at zero even where the sample has none.
            values, counts = np.append(0.0, values), np.append(0, counts)
        self.values = values
        self.at = np.cumsum(counts) / len(sample)
        # Just before zero both distributions have probability 0, whatever they have at zero: the
        # jumps coincide, and only the values after them are to be compared.
        self.before = np.append(self.at[0], self.at[:-1])


def ks_distance(activations: ArrayLike, mu: float, sigma: float) -> float:
    """Returns sup_x |empirical CDF - CDF of a rectified Gaussian|.

    Between two neighbours of the sample the empirical CDF is constant and the other one rises: the
    supremum is found at the values of the sample, or just before them.
    """
    empirical = _EmpiricalCDF(activations)
    model = rectified_cdf(empirical.values, mu, sigma)
    return float(
        max(np.max(np.abs(empirical.at - model)), np.max(np.abs(empirical.before - model)))
    )


def fit_rectified_gaussian(activations: ArrayLike, tolerance: float = 1e-6) -> Fit:
    """Returns the rectified Gaussian nearest to activations in Kolmogorov-Smirnov distance.

    In a = 1/sigma and b = -mu/sigma, the distance is at most delta if and only if

        Phi^-1(F(x) - delta) <= a x + b <= Phi^-1(F(x-) + delta)

    for all values x of the sample. For given delta and a, this leaves an interval for b, the length
    of which is a concave function of a: its maximum tells whether any (a, b) will do, and bisection
    finds the smallest delta. That is the global minimum, although the distance is neither smooth
    nor convex in mu and sigma.

    Args:
        activations: a sample of Y+, of any shape; at least two distinct values.
        tolerance: how far above the smallest possible the distance may be.
    """
    check_number("tolerance", tolerance, above=0)
    empirical = _EmpiricalCDF(activations)
    scale = np.max(empirical.values)
    x = empirical.values / scale

    def solve(delta: float) -> tuple[float, float] | None:
        """Returns (a, b) with distance at most delta, if there is one."""
        # 1e6 standard deviations stand for infinity, with which the minimizer cannot calculate.
        lower = np.maximum(special.ndtri(np.maximum(empirical.at - delta, 0.0)), -1e6)
        upper = np.minimum(special.ndtri(np.minimum(empirical.before + delta, 1.0)), 1e6)

        def interval(log_a: float) -> tuple[float, float]:
            slope = np.exp(log_a) * x
            return np.max(lower - slope), np.min(upper - slope)

        def shortfall(log_a: float) -> float:
            least, most = interval(log_a)
            return least - most

        found = optimize.minimize_scalar(
            shortfall, bounds=(-10.0, 20.0), method="bounded", options={"xatol": 1e-9}
        )
        if found.fun > 0:
            return None
        least, most = interval(found.x)
        return np.exp(found.x), 0.5 * (least + min(most, least + 1.0))

    best, possible, impossible = None, 1.0, 0.0
    while best is None or possible - impossible > tolerance:
        middle = 0.5 * (possible + impossible)
        solution = solve(middle)
        if solution is None:
            impossible = middle
        else:
            best, possible = solution, middle
    sigma = float(scale / best[0])
    mu = float(-best[1] * sigma)
    return Fit(mu, sigma, ks_distance(activations, mu, sigma))

import itertools

import keras
import numpy as np
import pytest

from sparse_embed.losses import ArcFaceLoss, SparsityMetrics, SparsityMonitor


def sparse_rows(seed, n, d, density=0.3):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * (rng.random((n, d)) < density)).astype(np.float32)


def expected_figures(x):
    """The definitions, with sums over examples and pairs of examples."""
    n, d = x.shape
    active = x != 0
    p = active.mean(axis=0)
    # Over ordered pairs of different examples: the dimensions that both have.
    shared = [np.sum(active[i] & active[k]) for i in range(n) for k in range(n) if i != k]
    return {
        "flops_per_row": np.sum(p**2),
        "flops_per_row_unbiased": np.mean(shared) if shared else np.nan,
        "relaxed_flops": np.sum(np.abs(x.astype(np.float64)).mean(axis=0) ** 2),
        "active_dimensions": active.sum(axis=1).mean(),
        "activation_probability": active.mean(),
        "dead_dimensions": np.sum(~active.any(axis=0)),
        "suboptimality_ratio": np.sum(p**2) / (d * p.mean() ** 2),
    }


def figures(metric):
    return {key.removeprefix("sparsity_"): float(v) for key, v in metric.result().items()}


@pytest.mark.parametrize("batch", [1, 7, 16, 50])
def test_figures_of_the_whole_epoch_whatever_the_batch(batch):
    x = sparse_rows(0, 50, 12)
    x[:, 3] = 0.0
    metric = SparsityMetrics(12)
    for start in range(0, 50, batch):
        metric.update_state(None, x[start : start + batch])
    expected = expected_figures(x)
    assert expected["dead_dimensions"] == 1
    assert figures(metric) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(metric.probabilities(), (x != 0).mean(axis=0), rtol=1e-12)


def test_by_hand():
    """Rows (1, -1), (2, 0): p = (1, 1/2). F = 5/4. Pairs share dimension 1 only: unbiased 1.

    Mean absolutes 3/2 and 1/2: relaxed 10/4. Ratio (5/4) / (2 (3/4)^2) = 10/9.
    """
    metric = SparsityMetrics(2)
    metric.update_state(None, np.array([[1.0, -1.0], [2.0, 0.0]]))
    assert figures(metric) == pytest.approx(
        {
            "flops_per_row": 1.25,
            "flops_per_row_unbiased": 1.0,
            "relaxed_flops": 2.5,
            "active_dimensions": 1.5,
            "activation_probability": 0.75,
            "dead_dimensions": 0.0,
            "suboptimality_ratio": 10 / 9,
        }
    )


def test_unbiased_estimate_is_unbiased():
    """Averages over all 64 samples of 3 from a population of 4 patterns, with their chances.

    The two dimensions are correlated; P = (0.5, 0.7). The estimate's mean is sum P^2 = 0.74, the
    plain figure's sum P^2 + sum P (1 - P) / 3 = 0.74 + (0.25 + 0.21) / 3.
    """
    patterns = {(0.0, 0.0): 0.2, (1.0, 0.0): 0.1, (0.0, 1.0): 0.3, (1.0, 1.0): 0.4}
    unbiased = plain = 0.0
    metric = SparsityMetrics(2)
    for sample in itertools.product(patterns, repeat=3):
        metric.reset_state()
        metric.update_state(None, np.array(sample))
        chance = np.prod([patterns[row] for row in sample])
        unbiased += chance * figures(metric)["flops_per_row_unbiased"]
        plain += chance * figures(metric)["flops_per_row"]
    assert unbiased == pytest.approx(0.74, abs=1e-12)
    assert plain == pytest.approx(0.74 + 0.46 / 3, abs=1e-12)


def test_counts_are_exact_beyond_float32():
    """2^24 + 1 is not a float32: a float32 counter would stay at 2^24 for ever."""
    metric = SparsityMetrics(1)
    metric.update_state(None, np.ones((1, 1)))
    metric._nonzeros.assign(np.full(1, 2.0**24))
    metric._examples.assign(2.0**24)
    metric.update_state(None, np.ones((1, 1)))
    metric.update_state(None, np.zeros((1, 1)))
    assert figures(metric)["flops_per_row"] == ((2**24 + 1) / (2**24 + 2)) ** 2


def test_reset_forgets_everything():
    metric = SparsityMetrics(12)
    metric.update_state(None, sparse_rows(1, 9, 12))
    metric.reset_state()
    x = sparse_rows(2, 9, 12)
    metric.update_state(None, x)
    assert figures(metric) == pytest.approx(expected_figures(x))


def test_undefined_figures_are_nan():
    metric = SparsityMetrics(3)
    metric.update_state(None, np.zeros((1, 3)))
    result = figures(metric)
    assert np.isnan(result["suboptimality_ratio"])  # all dimensions are dead
    assert np.isnan(result["flops_per_row_unbiased"])  # one example makes no pair
    assert result["dead_dimensions"] == 3
    assert result["flops_per_row"] == 0.0


def test_as_a_metric_of_a_model_that_gives_embeddings():
    x = sparse_rows(3, 20, 6)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Identity()])
    model.compile(loss="mse", metrics=[SparsityMetrics(6)])
    logs = model.evaluate(x, x, batch_size=8, verbose=0, return_dict=True)
    for key, value in expected_figures(x).items():
        assert logs[f"sparsity_{key}"] == pytest.approx(value)


def test_monitor_inside_a_model_that_gives_cosines():
    """Training and validation epochs are told apart, and each is counted from zero."""
    x, val = sparse_rows(4, 20, 6), sparse_rows(5, 15, 6)
    inputs = keras.Input((6,))
    encoder = keras.Model(inputs, SparsityMonitor()(inputs))  # nested, as an encoder is
    model = keras.Model(inputs, keras.layers.Dense(3, activation="tanh")(encoder(inputs)))
    model.compile("sgd", ArcFaceLoss(scale=4.0))
    history = model.fit(
        x,
        np.zeros(20),
        batch_size=8,
        epochs=2,
        verbose=0,
        validation_data=(val, np.zeros(15)),
        validation_batch_size=4,
    ).history
    for prefix, data in (("", x), ("val_", val)):
        for key, value in expected_figures(data).items():
            assert history[f"{prefix}sparsity_{key}"] == pytest.approx([value, value])


def test_monitor_passes_its_input_under_mixed_precision():
    layer = SparsityMonitor(dtype="mixed_float16")
    x = np.array([[1e-9, 0.0]], np.float32)  # 1e-9 is 0 in float16
    np.testing.assert_array_equal(layer(x), x)
    assert float(layer.metrics[0].result()["sparsity_active_dimensions"]) == 1.0


def test_sample_weights_are_refused():
    with pytest.raises(ValueError, match="sample_weight: expected None"):
        SparsityMetrics(2).update_state(None, np.ones((1, 2)), sample_weight=np.ones(1))


@pytest.mark.parametrize("dimensions", [0, -1, 2.5])
def test_bad_dimensions(dimensions):
    with pytest.raises(ValueError, match=r"dimensions=.*expected an integer >= 1"):
        SparsityMetrics(dimensions)


def test_config_round_trip():
    metric = SparsityMetrics.from_config(SparsityMetrics(5, name="other").get_config())
    assert (metric.dimensions, metric.name) == (5, "other")

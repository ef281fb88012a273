"""The controller of lambda against its formulas, computed one number at a time."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.losses import (
    DFFlopsRegularization,
    FlopsRegularization,
    L1Regularization,
    MaskedFlopsRegularization,
    TargetFlops,
)


def by_hand(target, weight, steps, shares):
    """Yields lambda(t), from the docstring of `TargetFlops`."""
    u, p, m, first = math.log(weight), None, None, None
    for t, x in enumerate(shares):
        p = x if p is None else p
        cost = sum(a * b for a, b in zip(p, x, strict=True))
        first = cost if first is None else first
        before = cost if m is None else m
        m = before + (cost - before) / 10
        z = min(1, t / steps)
        reference = target * (first / target) ** ((1 + math.cos(math.pi * z)) / 2)
        error = math.log(m / reference) + 20 * math.log(m / before)
        error = max(-math.log(2), min(math.log(2), error))
        yield z**2 * math.exp(u + 1.5 * error)
        u += 0.03 * z**2 * error
        p = [a + (b - a) / 10 for a, b in zip(p, x, strict=True)]


def batches(steps, n=8, d=6):
    rng = np.random.default_rng(4)
    for step in range(steps):
        alive = rng.random((n, d)) < 0.9 - 0.8 * step / steps
        yield (rng.normal(size=(n, d)) * alive).astype(np.float32)


@pytest.mark.parametrize("cls", [FlopsRegularization, L1Regularization])
@pytest.mark.parametrize("target", [0.5, 2.0])
def test_weight_follows_the_formulas(cls, target):
    layer, found, penalties = cls(TargetFlops(target, weight=3.0, steps=7)), [], []
    rows = list(batches(30))
    for x in rows:
        layer(x, training=True)
        found.append(float(layer.losses[0]))
        means = np.abs(x).mean(axis=0)
        penalties.append((means**2).sum() if cls is FlopsRegularization else means.sum())
    shares = [(x != 0).mean(axis=0).tolist() for x in rows]
    expected = list(by_hand(target, 3.0, 7, shares))
    np.testing.assert_allclose(np.divide(found, penalties), expected, rtol=1e-4)
    assert max(expected) > 2 * min(expected[7:])  # it did adapt


def test_evaluation_leaves_the_controller_alone():
    layer = FlopsRegularization(TargetFlops(1.0, weight=2.0, steps=1))
    for x in batches(5):
        layer(x, training=True)
    before = layer.controller.numpy()
    layer(np.ones((4, 6), np.float32))
    np.testing.assert_array_equal(layer.controller, before)
    assert int(layer.step) == 5


def sparse_model(target, start):
    """Rows whose sparsity is one bias, which the penalty alone moves."""
    inputs = keras.Input((40,))
    bias = keras.layers.Dense(
        40, kernel_initializer="identity", bias_initializer=keras.initializers.Constant(start)
    )
    bias.build((None, 40))
    bias.kernel.trainable = False
    x = keras.layers.UnitNormalization()(keras.layers.ReLU()(bias(inputs)))
    outputs = FlopsRegularization(TargetFlops(target, weight=1.0, steps=100))(x)
    return keras.Model(inputs, outputs)


@pytest.mark.parametrize("target", [1.0, 6.0])
def test_cost_of_a_toy_model_ends_at_the_target(target):
    """A metric loss pulls the biases up to 1; the penalty pushes them down."""
    model = sparse_model(target, start=0.0)
    dense = model.layers[1]
    optimizer = keras.optimizers.Adam(0.03)
    rng, costs = np.random.default_rng(0), []

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = model(x, training=True)
            pull = 0.02 * tf.reduce_sum(tf.square(dense.bias - 1.0))
            loss = pull + tf.add_n(model.losses)
        optimizer.apply_gradients([(tape.gradient(loss, dense.bias.value), dense.bias)])
        return tf.reduce_mean(tf.cast(y > 0, tf.float32), axis=0)

    for _ in range(500):
        shares = step(rng.normal(size=(256, 40)).astype(np.float32)).numpy()
        costs.append((shares**2).sum())
    assert np.mean(costs[-50:]) == pytest.approx(target, rel=0.05)


def test_saved_model_goes_on_with_the_controller(tmp_path):
    x = list(batches(12))
    whole = FlopsRegularization(TargetFlops(1.0, weight=2.0, steps=3))
    for rows in x:
        whole(rows, training=True)
    inputs = keras.Input((6,))
    layer = FlopsRegularization(TargetFlops(1.0, weight=2.0, steps=3))
    model = keras.Model(inputs, layer(inputs))
    for rows in x[:5]:
        model(rows, training=True)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for rows in x[5:]:
        again(rows, training=True)
    np.testing.assert_array_equal(again.get_layer("flops").controller, whole.controller)
    schedule = again.get_layer("flops").weight
    assert schedule.get_config() == {"flops": 1.0, "weight": 2.0, "steps": 3}


@pytest.mark.parametrize("flops", [0, -1.0, float("nan"), float("inf"), "two"])
def test_targets_that_cannot_be_reached_are_refused(flops):
    with pytest.raises(ValueError, match=r"flops=.*expected a finite number > 0"):
        TargetFlops(flops)


@pytest.mark.parametrize("flops", [6, 7.5])
def test_dense_targets_are_refused(flops):
    with pytest.raises(ValueError, match=r"flops=.*expected less than 6, the dimension"):
        FlopsRegularization(TargetFlops(flops))(np.ones((2, 6), np.float32))


def test_bad_weight_and_steps():
    with pytest.raises(ValueError, match=r"weight=0: expected a finite number > 0"):
        TargetFlops(1.0, weight=0)
    with pytest.raises(ValueError, match=r"steps=0: expected an integer >= 1"):
        TargetFlops(1.0, steps=0)


# --- DF-FLOPS


def test_df_flops_by_hand():
    """Cutoff 1/4: x^(log 2 / log 1/4) = x^(-1/2); with steepness 2, w = 1 / (1 + (x^-1/2 - 1)^2).

    x = 1, 1/4, 1/16, 0 give w = 1, 1/2, 1/10, 0.
    """
    layer = DFFlopsRegularization(1.0, df_cutoff=0.25, df_steepness=2.0)
    found = layer.weights_of(tf.constant([1.0, 0.25, 0.0625, 0.0]))
    np.testing.assert_allclose(found, [1.0, 0.5, 0.1, 0.0], rtol=1e-6)


def test_df_flops_renews_its_weights_every_100_steps():
    layer = DFFlopsRegularization(3.0, df_cutoff=0.6, df_steepness=4.0)
    rows, weights = list(batches(105)), np.ones(6)
    for t, x in enumerate(rows):
        layer(x, training=True)
        penalty = 3.0 * (weights * np.abs(x).mean(axis=0) ** 2).sum()
        assert float(layer.losses[0]) == pytest.approx(penalty, rel=1e-5)
        if t % 100 == 99:
            shares = (np.concatenate(rows[t - 99 : t + 1]) != 0).mean(axis=0)
            power = shares ** (np.log(2) / np.log(0.6)) - 1
            weights = 1 / (1 + power**4)
            assert weights.min() < 0.6
    assert layer.name == "df_flops"


@pytest.mark.parametrize("cutoff", [0.0, 1.0, -1.0, float("nan")])
def test_df_flops_refuses_other_cutoffs(cutoff):
    with pytest.raises(ValueError, match=r"df_cutoff=.*expected a"):
        DFFlopsRegularization(1.0, df_cutoff=cutoff)


# --- the l0 mask


@pytest.mark.parametrize("mask", [0, 2, 6])
def test_masked_flops_by_hand(mask):
    (x,) = batches(1)
    x[0], x[1, 1:] = 0.0, 0.0
    kept = [row for row in x if np.count_nonzero(row) > mask]
    means = [sum(abs(row[j]) for row in kept) / len(x) for j in range(6)]
    layer = MaskedFlopsRegularization(2.0, l0_mask=mask)
    np.testing.assert_array_equal(layer(x, training=True), x)
    assert float(layer.losses[0]) == pytest.approx(2.0 * sum(m * m for m in means), rel=1e-5)


def test_masked_flops_has_no_gradient_for_sparse_rows():
    x = tf.constant([[1.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    layer = MaskedFlopsRegularization(1.0, l0_mask=1)
    with tf.GradientTape() as tape:
        tape.watch(x)
        layer(x, training=True)
        loss = layer.losses[0]
    gradient = tape.gradient(loss, x).numpy()
    np.testing.assert_array_equal(gradient[0], 0.0)
    np.testing.assert_allclose(gradient[1], 2 * np.array([1.0, 2.0, 3.0]) / 4)


def test_masked_flops_refuses_fractions():
    with pytest.raises(ValueError, match=r"l0_mask=1.5: expected an integer >= 0"):
        MaskedFlopsRegularization(1.0, l0_mask=1.5)


@pytest.mark.parametrize(
    "layer",
    [
        DFFlopsRegularization(2.0, df_cutoff=0.3, df_steepness=5.0),
        MaskedFlopsRegularization(TargetFlops(2.0), l0_mask=3, scope="replica"),
    ],
)
def test_config_round_trip(layer):
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()

"""Supervised contrast: by loops, by hand, and as a Keras loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.losses import SupervisedContrastLoss, supervised_contrast


def unit_rows(rng, n, d):
    x = rng.normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def shares(rows, i, temperature):
    """Softmax over the others of row i, with loops; the row itself has none."""
    powers = [
        0.0 if j == i else np.exp(np.dot(rows[i], rows[j]) / temperature) for j in range(len(rows))
    ]
    return np.array(powers) / sum(powers)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("temperature", [0.05, 0.7])
def test_contrast_against_loops(seed, temperature):
    rng = np.random.default_rng(seed)
    labels, z = rng.integers(0, 4, 9), unit_rows(rng, 9, 3)
    expected, with_mates = np.zeros(9), 0
    for i in range(9):
        mates = [j for j in range(9) if j != i and labels[j] == labels[i]]
        with_mates += bool(mates)
        if mates:
            expected[i] = -np.mean(np.log(shares(z, i, temperature)[mates]))
    values = supervised_contrast(labels, z, temperature)
    np.testing.assert_allclose(values, expected * 9 / with_mates, rtol=1e-9)


def test_contrast_by_hand():
    """Rows at 0, 60 and 180 degrees; the first two are of one class, the third has no mate.

    Cosines 1/2, -1 and -1/2, temperature 1/2: scores 1, -2 and -1. Row 0: -log(e / (e + e^-2)) =
    log(1 + e^-3); row 1: log(1 + e^-2). Two of three rows have a mate: times 3/2.
    """
    angles = np.radians([0.0, 60.0, 180.0])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    values = supervised_contrast([7, 7, 1], rows, 0.5)
    np.testing.assert_allclose(
        values, [1.5 * np.log(1 + np.exp(-3)), 1.5 * np.log(1 + np.exp(-2)), 0.0], rtol=1e-9
    )


def test_without_any_pair_contrast_costs_nothing():
    z = tf.Variable(np.eye(3, dtype=np.float32))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(supervised_contrast([0, 1, 2], z))
    assert loss == 0.0
    np.testing.assert_array_equal(tape.gradient(loss, z), np.zeros((3, 3)))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_cosines_near_one_stay_finite(dtype):
    rows = np.ones((4, 2), dtype) / np.sqrt(np.array(2, dtype))
    values = supervised_contrast([0, 0, 1, 1], rows, 0.001)
    assert values.dtype == tf.float32
    np.testing.assert_allclose(values, np.full(4, np.log(3)), rtol=1e-4)


def test_as_keras_loss():
    rng = np.random.default_rng(1)
    labels, z = np.array([0, 0, 1, 1, 2, 2]), unit_rows(rng, 6, 3).astype(np.float32)
    loss = SupervisedContrastLoss(temperature=0.2)
    expected = np.mean(supervised_contrast(labels, z, 0.2))
    np.testing.assert_allclose(loss(labels, z), expected, rtol=1e-6)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(again) is SupervisedContrastLoss
    assert again.temperature == 0.2
    with pytest.raises(ValueError, match=r"temperature=0: expected a finite number > 0"):
        SupervisedContrastLoss(temperature=0)

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.losses import ArcFaceLoss, arcface


def per_example(margin=0.5, scale=64.0):
    return ArcFaceLoss(margin, scale, reduction=None)


def reference(labels, cosines, margin, scale):
    """The definition through angles, in float64, one example at a time."""
    values = []
    for label, row in zip(labels, np.asarray(cosines, np.float64), strict=True):
        theta = math.acos(row[label])
        if theta + margin <= math.pi:
            target = math.cos(theta + margin)
        else:
            target = math.cos(theta) - margin * math.sin(margin)
        logits = scale * np.array([target if k == label else c for k, c in enumerate(row)])
        values.append(np.log(np.sum(np.exp(logits - logits[label]))))
    return np.array(values)


def test_by_hand():
    """Two classes, s = 2, m = pi/3.

    Row 1: target cos 60deg, theta + m = 120deg: logits 2 * (-1/2) and 2 * 1/4 give
    log(1 + e^(0.5 + 1)) = log(1 + e^1.5) = 1.7014133. Row 2: target cos 0 = 1, with margin
    cos 60deg = 1/2; other 0: log(1 + e^(0 - 1)) = 0.3132617. Row 3: target -1, theta = pi, beyond:
    -1 - (pi/3) (sqrt(3)/2) = -1.9068997, other 1: log(1 + e^(2 + 3.8137994)) = 5.8167811.
    """
    labels = np.array([0, 1, 1])
    cosines = np.array([[0.5, 0.25], [0.0, 1.0], [1.0, -1.0]])
    values = per_example(math.pi / 3, 2.0)(labels, cosines)
    np.testing.assert_allclose(values, [1.7014133, 0.3132617, 5.8167811], rtol=1e-6)


@pytest.mark.parametrize("margin", [0.0, 0.5, 1.2, math.pi / 2])
def test_against_the_definition(margin):
    rng = np.random.default_rng(0)
    cosines = rng.uniform(-1, 1, (200, 10))
    labels = rng.integers(0, 10, 200)
    expected = reference(labels, cosines, margin, 64.0)
    np.testing.assert_allclose(arcface(labels, cosines, margin), expected, rtol=1e-9, atol=1e-12)
    values = per_example(margin)(labels, cosines.astype(np.float32))
    assert values.shape == (200,)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-4)


def test_without_margin_it_is_softmax_cross_entropy():
    rng = np.random.default_rng(1)
    cosines = rng.uniform(-1, 1, (20, 5)).astype(np.float32)
    labels = rng.integers(0, 5, 20)
    softmax = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, 16.0 * cosines)
    np.testing.assert_allclose(ArcFaceLoss(0.0, 16.0)(labels, cosines), softmax, rtol=1e-5)


@pytest.mark.parametrize("margin", [0.0, 0.3, 0.5, 1.0, math.pi / 2])
def test_loss_never_falls_while_the_angle_grows(margin):
    """Over the whole half circle, also past pi - m, where cos(theta + m) alone would rise again."""
    theta = np.linspace(0, math.pi, 20_001)
    cosines = np.stack([np.cos(theta), np.zeros_like(theta)], axis=1)
    values = arcface(np.zeros(len(theta), np.int32), cosines, margin, scale=1.0).numpy()
    assert np.all(np.diff(values) > 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("target", [1.0, -1.0, 1.0 - 2**-24, -1.0 + 2**-24, 1.0 + 2**-22, -1.0001])
def test_value_and_gradient_are_finite_at_the_ends(target, dtype):
    """Exact values at the ends: s cos(m) and s (-1 - m sin(m)), less the other logit, 0."""
    cosines = tf.constant([[target, 0.0]], dtype)
    with tf.GradientTape() as tape:
        tape.watch(cosines)
        value = arcface([0], cosines, 0.5, scale=1.0)
    gradient = tape.gradient(value, cosines).numpy()
    inside = np.clip(target, -1.0, 1.0)
    np.testing.assert_allclose(value, reference([0], [[inside, 0.0]], 0.5, 1.0), rtol=1e-6)
    assert np.all(np.isfinite(gradient))
    assert gradient[0, 0] <= 0  # raising the target's cosine never costs


def test_gradient_against_finite_differences():
    rng = np.random.default_rng(2)
    cosines = rng.uniform(-0.99, 0.99, (6, 4))
    labels = rng.integers(0, 4, 6)
    theory, numeric = tf.test.compute_gradient(
        lambda c: arcface(labels, c, 0.5, scale=4.0), [tf.constant(cosines)], delta=1e-6
    )
    np.testing.assert_allclose(theory[0], numeric[0], rtol=1e-5, atol=1e-7)


def test_half_precision_cosines_are_computed_in_float32():
    """64 x logits in float16 would be off by up to 0.03; only the input's rounding remains."""
    rng = np.random.default_rng(3)
    cosines = rng.uniform(-1, 1, (50, 8)).astype(np.float16)
    labels = rng.integers(0, 8, 50)
    values = per_example()(labels, tf.constant(cosines))
    assert values.dtype == tf.float32
    np.testing.assert_allclose(values, reference(labels, cosines, 0.5, 64.0), rtol=1e-5, atol=1e-4)


def test_many_equal_cosines_do_not_overflow():
    """All cosines 1: logits 64 cos(0.5) and 999 times 64."""
    value = float(per_example()([3], np.ones((1, 1000), np.float32))[0])
    assert value == pytest.approx(math.log(999) + 64 * (1 - math.cos(0.5)), rel=1e-4)


def test_labels_may_be_a_column():
    rng = np.random.default_rng(4)
    cosines = rng.uniform(-1, 1, (5, 3))
    labels = rng.integers(0, 3, 5)
    np.testing.assert_array_equal(
        per_example()(labels[:, None], cosines), per_example()(labels, cosines)
    )


def test_label_out_of_range_is_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"= 3 is not in \[0, 3\)"):
        ArcFaceLoss()([3], np.zeros((1, 3)))


@pytest.mark.parametrize("margin", [-0.1, 1.6, float("nan"), None])
def test_bad_margin(margin):
    with pytest.raises(ValueError, match=r"margin=.*expected a finite number >= 0 <= 1\.57"):
        ArcFaceLoss(margin)


@pytest.mark.parametrize("scale", [0.0, -64.0, float("nan"), float("inf")])
def test_bad_scale(scale):
    with pytest.raises(ValueError, match=r"scale=.*expected a finite number > 0"):
        ArcFaceLoss(scale=scale)


def test_config_round_trip():
    loss = ArcFaceLoss.from_config(ArcFaceLoss(0.3, 30.0, reduction="sum").get_config())
    assert (loss.margin, loss.scale, loss.reduction) == (0.3, 30.0, "sum")

"""Warps against SciPy's resampling and filters, and the statistics of what is drawn."""

import math

import numpy as np
import pytest
import scipy.ndimage
import tensorflow as tf

from sparse_embed.datasets import augment

STILL = {
    "rotation": 0.0,
    "scale": 0.0,
    "shear": 0.0,
    "translation": 0.0,
    "blur": 0.0,
    "noise": 0.0,
}
SEED = (3, 4)


@pytest.fixture(scope="module")
def images():
    """Smooth random images, so that no interpolation is trivially right."""
    noise = np.random.default_rng(0).random((6, 16, 22))
    return scipy.ndimage.gaussian_filter(noise, (0, 1, 1)).astype(np.float32)


def test_affine_resamples_as_scipy_does(images):
    warp = augment.Warp(rotation=30.0, scale=0.3, shear=0.3, translation=4.0)
    rows = augment.random_affine(SEED, len(images), 16, 22, warp).numpy().astype(np.float64)
    warped = augment.affine(tf.constant(images), tf.constant(rows, tf.float32)).numpy()
    for image, (a0, a1, a2, b0, b1, b2, *_), result in zip(images, rows, warped, strict=True):
        # SciPy's coordinates are (row, column) = (y, x).
        expected = scipy.ndimage.affine_transform(
            image, [[b1, b0], [a1, a0]], offset=[b2, a2], order=1, mode="grid-constant"
        )
        np.testing.assert_allclose(result, expected, atol=1e-4)
        assert not np.allclose(result, image, atol=0.05)


def test_random_affine_inverts_the_documented_map():
    """Rebuilds each forward map as rotation @ [[sx, k], [0, sy]] and checks the drawn ranges.

    The QR decomposition with a positive diagonal is unique, so the factors of the documented
    product can be read back from the inverse of what is returned.
    """
    warp = augment.Warp(rotation=20.0, scale=0.2, shear=0.3, translation=3.0)
    rows = augment.random_affine(SEED, 2000, 24, 32, warp).numpy().astype(np.float64)
    assert rows.shape == (2000, 8)
    np.testing.assert_array_equal(rows[:, 6:], 0)
    backward = np.zeros((2000, 3, 3))
    backward[:, 0], backward[:, 1], backward[:, 2, 2] = rows[:, :3], rows[:, 3:6], 1
    forward = np.linalg.inv(backward)
    rotation, factor = np.linalg.qr(forward[:, :2, :2])
    signs = np.sign(np.diagonal(factor, axis1=1, axis2=2))
    rotation, factor = rotation * signs[:, None, :], factor * signs[:, :, None]
    assert np.linalg.det(rotation).min() > 0  # no reflections
    centre = np.array([15.5, 11.5, 1.0])  # x, y
    shift = forward @ centre - centre
    drawn = {
        "rotation": np.degrees(np.arctan2(rotation[:, 1, 0], rotation[:, 0, 0])),
        "scale x": np.log(factor[:, 0, 0]),
        "scale y": np.log(factor[:, 1, 1]),
        "shear": factor[:, 0, 1],
        "translation x": shift[:, 0],
        "translation y": shift[:, 1],
    }
    for name, values in drawn.items():
        bound = getattr(warp, name.split()[0])
        assert np.abs(values).max() <= bound * (1 + 1e-4), name
        # Uniform on [-bound, bound]: mean 0, standard deviation bound / sqrt(3).
        assert abs(values.mean()) < 4 * bound / math.sqrt(3 * 2000), name
        assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.05), name
    together = np.corrcoef(np.stack(list(drawn.values())))
    assert np.abs(together - np.eye(6)).max() < 0.1  # drawn independently


def test_gaussian_blur_is_scipys(images):
    sigmas = np.array([0.0, 0.3, 0.6, 1.0, 1.5, 2.5], np.float32)
    blurred = augment.gaussian_blur(tf.constant(images), tf.constant(sigmas)).numpy()
    np.testing.assert_array_equal(blurred[0], images[0])
    for image, sigma, result in zip(images[1:], sigmas[1:], blurred[1:], strict=True):
        expected = scipy.ndimage.gaussian_filter(image, sigma, mode="constant", radius=15)
        np.testing.assert_allclose(result, expected, atol=1e-5)


def test_still_warp_changes_nothing(images):
    same = augment.augment(tf.constant(images), SEED, augment.Warp(**STILL))
    np.testing.assert_allclose(same, images, atol=1e-6)


def test_noise_statistics():
    """A deviation uniform in [0, n] gives noise of mean 0 and variance n^2 / 3."""
    blank = tf.zeros((4000, 8, 8))
    noisy = augment.augment(blank, SEED, augment.Warp(**{**STILL, "noise": 0.3})).numpy()
    assert abs(noisy.mean()) < 0.002
    assert noisy.var() == pytest.approx(0.03, rel=0.05)
    deviations = noisy.std(axis=(1, 2))
    assert deviations.min() < 0.02
    assert 0.27 < deviations.max() < 0.45
    neighbours = np.corrcoef(noisy[:, :, :-1].ravel(), noisy[:, :, 1:].ravel())[0, 1]
    assert abs(neighbours) < 0.01


def test_seed_decides_everything(images):
    first = augment.augment(tf.constant(images), SEED, augment.Warp())
    again = augment.augment(tf.constant(images), SEED, augment.Warp())
    other = augment.augment(tf.constant(images), (3, 5), augment.Warp())
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).mean() > 0.01


def test_each_image_of_a_batch_is_warped_its_own_way(images):
    copies = tf.constant(np.repeat(images[:1], 8, axis=0))
    warped = augment.augment(copies, SEED, augment.Warp(noise=0.0)).numpy()
    distances = np.abs(warped[:, None] - warped[None]).mean(axis=(2, 3))
    assert distances[~np.eye(8, dtype=bool)].min() > 1e-3


@pytest.mark.parametrize("name", list(STILL))
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "wide"])
def test_bad_ranges_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        augment.Warp(**{name: value})

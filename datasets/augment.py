"""Random warps of small grey images, vectorised over a batch and run inside the graph.

Every function is a pure function of its arguments: the randomness comes from stateless operations
keyed by the given seed, so a batch can be made again from its seed alone.
"""

import dataclasses
import math

import tensorflow as tf

from sparse_embed.common.checks import check_number


@dataclasses.dataclass(frozen=True)
class Warp:
    """How far images are warped; each quantity is drawn per image, uniformly within its range.

    Attributes:
        rotation: degrees, within +-rotation.
        scale: each axis is stretched by exp(u), u within +-scale.
        shear: horizontal shear, within +-shear.
        translation: pixels along each axis, within +-translation.
        blur: standard deviation of the Gaussian blur in pixels, within [0, blur].
        noise: standard deviation of the Gaussian pixel noise, within [0, noise], where the
            difference between ink and background is 1.
    """

    rotation: float = 12.0
    scale: float = 0.15
    shear: float = 0.15
    translation: float = 2.0
    blur: float = 1.0
    noise: float = 0.1

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_number(field.name, getattr(self, field.name), minimum=0)


def random_affine(seed: tf.Tensor, count: int, height: int, width: int, warp: Warp) -> tf.Tensor:
    """Draws the affine maps of a batch of images.

    A point p of the image, relative to the centre, goes to `R(angle) [[sx, k], [0, sy]] p + t`.
    Resampling maps a pixel of the result back to where it came from, so this returns the inverse.

    Args:
        seed: two integers, as for `tf.random.stateless_uniform`.
        count: number of images.
        height: of an image.
        width: of an image.
        warp: the ranges.

    Returns:
        (count, 8) float32 rows `[a0, a1, a2, b0, b1, b2, 0, 0]`: pixel (x, y) of the result is
        taken from (a0 x + a1 y + a2, b0 x + b1 y + b2).
    """
    ranges = [
        math.radians(warp.rotation),
        warp.scale,
        warp.scale,
        warp.shear,
        warp.translation,
        warp.translation,
    ]
    draws = tf.random.stateless_uniform((len(ranges), count), seed, -1.0, 1.0)
    angle, log_sx, log_sy, shear, tx, ty = tf.unstack(draws * tf.constant(ranges)[:, None])
    cos, sin = tf.cos(angle), tf.sin(angle)
    inverse_sx, inverse_sy = tf.exp(-log_sx), tf.exp(-log_sy)
    slant = -shear * inverse_sx * inverse_sy
    a0, a1 = inverse_sx * cos - slant * sin, inverse_sx * sin + slant * cos
    b0, b1 = -inverse_sy * sin, inverse_sy * cos
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    x, y = middle_x + tx, middle_y + ty  # where the centre of the image goes
    zero = tf.zeros_like(a0)
    rows = [a0, a1, middle_x - a0 * x - a1 * y, b0, b1, middle_y - b0 * x - b1 * y, zero, zero]
    return tf.stack(rows, axis=1)


def affine(images: tf.Tensor, transforms: tf.Tensor) -> tf.Tensor:
    """Resamples (batch, height, width) images bilinearly; pixels outside count as 0.

    Args:
        images: (batch, height, width) float32.
        transforms: (batch, 8) rows, as `random_affine` returns them.
    """
    warped = tf.raw_ops.ImageProjectiveTransformV3(
        images=images[..., None],
        transforms=transforms,
        output_shape=tf.shape(images)[1:3],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )
    return tf.ensure_shape(warped[..., 0], images.shape)


def gaussian_blur(images: tf.Tensor, sigmas: tf.Tensor) -> tf.Tensor:
    """Blurs each of (batch, height, width) images with its own Gaussian; pixels outside count as 0.

    The blur is separable, so it is `K X K'`, one matrix for each axis, with the symmetric
    `K_ij = g(i - j) / sum over all integers n of g(n)`, `g(n) = exp(-n^2 / (2 sigma^2))`: two small
    matrix products per image, whatever the widths of the kernels.

    Args:
        images: (batch, height, width) float32.
        sigmas: (batch,) standard deviations in pixels, 0 for no blur.
    """
    size = max(images.shape[1:])
    squares = tf.constant([float(n * n) for n in range(1 - size, size)])
    taps = tf.exp(-squares / (2.0 * tf.maximum(sigmas, 1e-2)[:, None] ** 2))
    taps /= tf.reduce_sum(taps, axis=1, keepdims=True)
    place = tf.range(size)
    kernel = tf.gather(taps, place[:, None] - place[None, :] + size - 1, axis=1)
    _, height, width = images.shape
    return tf.matmul(kernel[:, :height, :height], tf.matmul(images, kernel[:, :width, :width]))


def augment(images: tf.Tensor, seed: tf.Tensor, warp: Warp) -> tf.Tensor:
    """Warps, blurs and adds noise to a batch.

    Args:
        images: (batch, height, width) float32 with a known batch size, background 0.
        seed: two integers; the same seed and images give the same result.
        warp: the ranges.

    Returns:
        (batch, height, width) float32. Noise is not clipped, so values may leave the input's range.
    """
    count, height, width = images.shape
    seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 4))
    images = affine(images, random_affine(seeds[0], count, height, width, warp))
    if warp.blur:
        images = gaussian_blur(
            images, tf.random.stateless_uniform((count,), seeds[1], 0.0, warp.blur)
        )
    if warp.noise:
        deviation = tf.random.stateless_uniform((count, 1, 1), seeds[2], 0.0, warp.noise)
        images += deviation * tf.random.stateless_normal(images.shape, seeds[3])
    return images

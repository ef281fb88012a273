"""The augmentation of photographs: a random shift and a random mirroring, inside the graph."""

import tensorflow as tf


def random_shift_flip(images: tf.Tensor, seed: tf.Tensor, shift: int = 0) -> tf.Tensor:
    """Mirrors each image left to right with probability 1/2, after a shift by whole pixels.

    A shift within +-`shift` along each axis, black coming in, is the usual "pad by `shift`, crop at
    random" of CIFAR; faces, which are aligned, are only mirrored (`shift` 0).

    Args:
        images: (batch, height, width, channels) uint8.
        seed: two integers, as for `tf.random.stateless_uniform`: the same seed gives the same
            result.
        shift: largest shift in pixels.
    """
    count, width = tf.shape(images)[0], tf.cast(tf.shape(images)[2], tf.float32)
    seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    flip = tf.cast(tf.random.stateless_uniform((count,), seeds[0]) < 0.5, tf.float32)
    moves = tf.random.stateless_uniform((2, count), seeds[1], -shift, shift + 1, tf.int32)
    dx, dy = tf.unstack(tf.cast(moves, tf.float32))
    one, zero = tf.ones_like(flip), tf.zeros_like(flip)
    # Pixel (x, y) of the result is taken from (a0 x + a2, y + b2): one exact resampling does both.
    rows = [one - 2 * flip, zero, dx + flip * (width - 1), zero, one, dy, zero, zero]
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack(rows, axis=1),
        output_shape=tf.shape(images)[1:3],
        fill_value=0.0,
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )
    return tf.ensure_shape(moved, images.shape)

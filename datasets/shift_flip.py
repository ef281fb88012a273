"""The augmentation of photographs: random mirroring and random shifts, inside the graph.

Each is a pure function of the images and the seed (two integers, as for
`tf.random.stateless_uniform`). Images are (batch, height, width, channels) with all but the batch
known beforehand.
"""

import tensorflow as tf


def random_flip(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Mirrors each image left to right with probability 1/2, as in training on faces."""
    count = tf.shape(images)[0]
    _, width, channels = images.shape[1:]
    # Reversing is several times faster on rows of pixels than on a batch of images, and choosing
    # whole images by their number than choosing pixel by pixel.
    mirrored = tf.reverse(tf.reshape(images, (-1, width, channels)), axis=[1])
    both = tf.concat([images, tf.reshape(mirrored, tf.shape(images))], axis=0)
    flip = tf.cast(tf.random.stateless_uniform((count,), seed) < 0.5, tf.int32)
    return tf.ensure_shape(tf.gather(both, tf.range(count) + flip * count), images.shape)


def random_shift(images: tf.Tensor, seed: tf.Tensor, largest: int) -> tf.Tensor:
    """Shifts each image by up to `largest` pixels along each axis; black fills the gap.

    It is the usual "pad by `largest`, then crop at random" of CIFAR.
    """
    count = tf.shape(images)[0]
    height, width, _ = images.shape[1:]
    margin = (largest, largest)
    padded = tf.pad(images, ((0, 0), margin, margin, (0, 0)))
    start = tf.random.stateless_uniform((2, count, 1), seed, 0, 2 * largest + 1, tf.int32)
    rows = tf.gather(padded, start[0] + tf.range(height), axis=1, batch_dims=1)
    moved = tf.gather(rows, start[1] + tf.range(width), axis=2, batch_dims=1)
    return tf.ensure_shape(moved, images.shape)


def random_shift_flip(
    images: tf.Tensor, seed: tf.Tensor, largest: int = 4, mirror: bool = True
) -> tf.Tensor:
    """Shifts, then mirrors each image, as in training on CIFAR; or only shifts it."""
    first, second = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    images = random_shift(images, first, largest)
    return random_flip(images, second) if mirror else images

"""Parts that architectures share: channels under `width`, convolution with batch norm, PReLU."""

from typing import Any

import keras

Tensor = Any  # Keras' symbolic and eager tensors, NumPy arrays

# For the moving averages of mean and variance that inference uses: they span a few dozen batches,
# so that they are as accurate after a few hundred steps as after 200,000.
BATCH_NORM_MOMENTUM = 0.9


def scaled(channels: int, width: float) -> int:
    """Channels of a layer in a network `width` times as wide: at least one."""
    return max(1, round(channels * width))


def batch_norm(x: Tensor, **kwargs: Any) -> Tensor:
    """Batch norm whose moving averages suit short training runs.

    Its statistics are those of the global batch: several replicas give the same result as one.
    """
    return keras.layers.BatchNormalization(
        momentum=BATCH_NORM_MOMENTUM, synchronized=True, **kwargs
    )(x)


def conv(x: Tensor, channels: int, kernel: int, stride: int = 1) -> Tensor:
    """Convolution without bias: the batch norm after it has one."""
    return keras.layers.Conv2D(
        channels,
        kernel,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
    )(x)


def conv_norm(x: Tensor, channels: int, kernel: int, stride: int = 1) -> Tensor:
    """Convolution and batch norm."""
    return batch_norm(conv(x, channels, kernel, stride))


def prelu(x: Tensor) -> Tensor:
    """max(x, 0) + a min(x, 0) with one learnt a per channel, 1/4 at first (He et al. 2015)."""
    return keras.layers.PReLU(
        alpha_initializer=keras.initializers.Constant(0.25), shared_axes=[1, 2]
    )(x)

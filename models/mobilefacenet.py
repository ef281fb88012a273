"""MobileFaceNet (Chen et al. 2018), table 1: about a million parameters for faces of 112x112."""

import math

import keras

from sparse_embed.models.blocks import Tensor, batch_norm, conv_norm, prelu, scaled

# (expansion t, output channels c, repetitions n, stride of the first s), as in the paper's table.
BOTTLENECKS = ((2, 64, 5, 2), (4, 128, 1, 2), (2, 128, 6, 1), (4, 128, 1, 2), (2, 128, 2, 1))


def mobilefacenet(images: Tensor, width: float) -> Tensor:
    """The network up to the global depthwise convolution; the last linear 1x1 is the head's.

    | input       | operator            | t | c   | n | s |
    |-------------|---------------------|---|-----|---|---|
    | 112^2 x 3   | conv 3x3            | - | 64  | 1 | 2 |
    | 56^2 x 64   | depthwise conv 3x3  | - | 64  | 1 | 1 |
    | 56^2 x 64   | bottleneck          | 2 | 64  | 5 | 2 |
    | 28^2 x 64   | bottleneck          | 4 | 128 | 1 | 2 |
    | 14^2 x 128  | bottleneck          | 2 | 128 | 6 | 1 |
    | 14^2 x 128  | bottleneck          | 4 | 128 | 1 | 2 |
    | 7^2 x 128   | bottleneck          | 2 | 128 | 2 | 1 |
    | 7^2 x 128   | conv 1x1            | - | 512 | 1 | 1 |
    | 7^2 x 512   | linear GDConv 7x7   | - | 512 | 1 | 1 |
    | 1^2 x 512   | linear conv 1x1     | - | d   | 1 | 1 |

    Batch norm follows every convolution, PReLU those that are not linear. The kernel of the
    global depthwise convolution (GDConv), which weighs each place of each channel, is as large as
    its input for other image sizes too.

    Args:
        images: Keras tensor (batch, height, width, channels).
        width: multiplies the channels.

    Returns:
        Keras tensor (batch, features): 512 features at width 1.
    """
    x = prelu(conv_norm(images, scaled(64, width), 3, stride=2))
    x = prelu(_depthwise_norm(x, (3, 3), padding="same"))
    for expansion, channels, repetitions, stride in BOTTLENECKS:
        for i in range(repetitions):
            x = _bottleneck(x, expansion, scaled(channels, width), stride if i == 0 else 1)
    x = prelu(conv_norm(x, scaled(512, width), 1))
    x = _depthwise_norm(x, tuple(x.shape[1:3]), padding="valid")
    return keras.layers.Flatten()(x)


def _bottleneck(x: Tensor, expansion: int, channels: int, stride: int) -> Tensor:
    """Expand 1x1, filter depthwise 3x3, project linearly 1x1; plus the input if shapes agree."""
    y = prelu(conv_norm(x, expansion * x.shape[-1], 1))
    y = prelu(_depthwise_norm(y, (3, 3), padding="same", stride=stride))
    y = conv_norm(y, channels, 1)
    return keras.layers.Add()([x, y]) if x.shape == y.shape else y


def _depthwise_norm(x: Tensor, kernel: tuple[int, int], padding: str, stride: int = 1) -> Tensor:
    """Depthwise convolution and batch norm."""
    # He et al.'s variance 2 / fan-in; Keras' own initializer counts all channels in the fan-in, but
    # a depthwise filter sees only one.
    deviation = math.sqrt(2 / math.prod(kernel))
    x = keras.layers.DepthwiseConv2D(
        kernel,
        strides=stride,
        padding=padding,
        use_bias=False,
        depthwise_initializer=keras.initializers.RandomNormal(stddev=deviation),
    )(x)
    return batch_norm(x)

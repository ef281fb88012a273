"""ResNet-20 for CIFAR (He et al. 2016, section 4.2)."""

import keras
from keras import ops

from sparse_embed.models.blocks import Tensor, conv_norm, scaled

CHANNELS = (16, 32, 64)
UNITS_PER_STAGE = 3


def resnet20(images: Tensor, width: float) -> Tensor:
    """A convolution and three stages of three residual units, then an average.

    | layer                    | output for CIFAR, 32x32x3 |
    |--------------------------|---------------------------|
    | conv 3x3                 | 32 x 32 x 16              |
    | 3 units                  | 32 x 32 x 16              |
    | 3 units, first stride 2  | 16 x 16 x 32              |
    | 3 units, first stride 2  | 8 x 8 x 64                |
    | average over all places  | 64                        |

    1 + 2 * 9 convolutions and the head's linear map: 20 layers with weights. Shortcuts have none
    (the paper's option A): where the shape changes they take every second place and fill the new
    channels with zeros.

    Args:
        images: Keras tensor (batch, height, width, channels).
        width: multiplies the channels.

    Returns:
        Keras tensor (batch, features): 64 features at width 1.
    """
    x = keras.layers.ReLU()(conv_norm(images, scaled(CHANNELS[0], width), 3))
    for stage, channels in enumerate(CHANNELS):
        for unit in range(UNITS_PER_STAGE):
            stride = 2 if stage > 0 and unit == 0 else 1
            x = residual(x, scaled(channels, width), stride)
    return keras.layers.GlobalAveragePooling2D()(x)


def residual(x: Tensor, channels: int, stride: int) -> Tensor:
    """ReLU(shortcut(x) + (conv, batch norm, ReLU, conv, batch norm)(x))."""
    y = keras.layers.ReLU()(conv_norm(x, channels, 3, stride))
    y = conv_norm(y, channels, 3)
    if stride > 1:
        x = keras.layers.MaxPooling2D(1, strides=stride)(x)  # pools of one: every second place
    if channels > x.shape[-1]:
        x = ops.pad(x, [[0, 0], [0, 0], [0, 0], [0, channels - x.shape[-1]]])
    return keras.layers.ReLU()(keras.layers.Add()([x, y]))

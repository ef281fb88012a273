"""ResNet for faces of 112x112 with 3-13-30-3 improved residual units (Deng et al., ArcFace)."""

import keras

from sparse_embed.models.blocks import Tensor, batch_norm, conv_norm, prelu, scaled

# (residual units, channels) of the four stages; the first unit of each halves the image.
STAGES = ((3, 64), (13, 128), (30, 256), (3, 512))


def resnet101(images: Tensor, width: float) -> Tensor:
    """The "LResNet100E-IR" of ArcFace, which the paper trained and calls ResNet-101.

    | layer                       | output for faces, 112x112x3 |
    |-----------------------------|-----------------------------|
    | conv 3x3, batch norm, PReLU | 112 x 112 x 64              |
    | 3 units, the first stride 2 | 56 x 56 x 64                |
    | 13 units, first stride 2    | 28 x 28 x 128               |
    | 30 units, first stride 2    | 14 x 14 x 256               |
    | 3 units, first stride 2     | 7 x 7 x 512                 |
    | batch norm, dropout 0.4     | 7 x 7 x 512                 |
    | flatten                     | 25088                       |

    With two convolutions per unit there are 1 + 2 (3 + 13 + 30 + 3) = 99 convolutions on the
    longest path, and the head's linear map is the hundredth layer with weights (shortcuts not
    counted). It is not the ResNet-101 of ImageNet (3-4-23-3 bottleneck units). The first
    convolution has stride 1 and no pooling follows, because aligned faces are small images.

    Args:
        images: Keras tensor (batch, height, width, channels).
        width: multiplies the channels.

    Returns:
        Keras tensor (batch, features).
    """
    x = prelu(conv_norm(images, scaled(64, width), 3))
    for units, channels in STAGES:
        for i in range(units):
            x = _improved_residual(x, scaled(channels, width), first=i == 0)
    x = batch_norm(x)
    x = keras.layers.Dropout(0.4)(x)
    return keras.layers.Flatten()(x)


def _improved_residual(x: Tensor, channels: int, first: bool) -> Tensor:
    """Shortcut of x plus (batch norm, conv, batch norm, PReLU, conv, batch norm)(x).

    In the first unit of a stage the second convolution has stride 2, and a 1x1 convolution of
    stride 2 with batch norm takes the shortcut.
    """
    stride = 2 if first else 1
    shortcut = conv_norm(x, channels, 1, stride) if first else x
    y = prelu(conv_norm(batch_norm(x), channels, 3))
    y = conv_norm(y, channels, 3, stride)
    return keras.layers.Add()([shortcut, y])

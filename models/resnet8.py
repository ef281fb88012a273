"""`resnet8`: three residual units for words and other small images, fast on a CPU."""

import keras

from sparse_embed.models.blocks import Tensor, conv_norm, scaled
from sparse_embed.models.resnet20 import residual

CHANNELS = (32, 64, 128)


def resnet8(images: Tensor, width: float) -> Tensor:
    """A convolution and three residual units, then flatten.

    | layer               | output for words, 24x48x1 |
    |---------------------|---------------------------|
    | conv 5x5, stride 2  | 12 x 24 x 32              |
    | unit                | 12 x 24 x 32              |
    | unit, stride 2      | 6 x 12 x 64               |
    | unit, stride 2      | 3 x 6 x 128               |
    | flatten             | 2304                      |

    1 + 2 * 3 convolutions and the head's linear map: 8 layers with weights. The units are those of
    `resnet20`. Flattening, unlike an average, keeps positions: the order of letters makes a word.

    Args:
        images: Keras tensor (batch, height, width, channels).
        width: multiplies the channels.

    Returns:
        Keras tensor (batch, features).
    """
    x = keras.layers.ReLU()(conv_norm(images, scaled(CHANNELS[0], width), 5, stride=2))
    for stage, channels in enumerate(CHANNELS):
        x = residual(x, scaled(channels, width), stride=1 if stage == 0 else 2)
    return keras.layers.Flatten()(x)

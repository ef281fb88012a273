"""`convnet`: three plain convolutions for small images, fast on a CPU."""

import keras

from sparse_embed.models.blocks import Tensor, batch_norm, conv, conv_norm, scaled


def convnet(images: Tensor, width: float) -> Tensor:
    """Three convolutions, each with batch norm and ReLU and each halving the image, then flatten.

    | layer                   | output for glyphs, 32x32x1 |
    |-------------------------|----------------------------|
    | conv 5x5, stride 2      | 16 x 16 x 24               |
    | conv 3x3, max-pool 2x2  | 8 x 8 x 48                 |
    | conv 3x3, max-pool 2x2  | 4 x 4 x 96                 |
    | flatten                 | 1536                       |

    Made for accuracy after a few minutes on two CPU cores. Most time is spent where the image is
    large, so the first convolution has a stride; after the others max-pooling, though slower,
    learns more in the same time, and batch norm after the pooling works on a quarter of the values.
    Flattening, unlike an average, keeps positions: glyphs differ in where their strokes are.

    Args:
        images: Keras tensor (batch, height, width, channels).
        width: multiplies the channels.

    Returns:
        Keras tensor (batch, features).
    """
    x = keras.layers.ReLU()(conv_norm(images, scaled(24, width), 5, stride=2))
    for channels in (48, 96):
        x = keras.layers.MaxPooling2D()(conv(x, scaled(channels, width), 3))
        x = keras.layers.ReLU()(batch_norm(x))
    return keras.layers.Flatten()(x)

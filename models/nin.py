"""Network in network (Lin et al. 2014) for CIFAR-100, adapted to give embeddings."""

import keras

from sparse_embed.models.blocks import Tensor, scaled


def nin(images: Tensor, width: float) -> Tensor:
    """Three blocks of a spatial convolution and 1x1 convolutions ("mlpconv"), then an average.

    | block | mlpconv                            | then                                |
    |-------|------------------------------------|-------------------------------------|
    | 1     | 5x5, 192 - 1x1, 160 - 1x1, 96      | max-pool 3x3, stride 2; dropout 1/2 |
    | 2     | 5x5, 192 - 1x1, 192 - 1x1, 192     | avg-pool 3x3, stride 2; dropout 1/2 |
    | 3     | 3x3, 192 - 1x1, 192 (- 1x1, 100)   | average over all places             |

    A ReLU follows every convolution; the only batch norm is the head's. Lin et al. end with one
    map per class, averaged; here the head's linear map, after the average instead of before it,
    takes the place of that last 1x1 convolution (in brackets).

    Args:
        images: Keras tensor (batch, height, width, channels).
        width: multiplies the channels.

    Returns:
        Keras tensor (batch, features): 192 features at width 1.
    """
    x = _mlpconv(images, 5, (192, 160, 96), width)
    x = keras.layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = keras.layers.Dropout(0.5)(x)
    x = _mlpconv(x, 5, (192, 192, 192), width)
    x = keras.layers.AveragePooling2D(3, strides=2, padding="same")(x)
    x = keras.layers.Dropout(0.5)(x)
    x = _mlpconv(x, 3, (192, 192), width)
    return keras.layers.GlobalAveragePooling2D()(x)


def _mlpconv(x: Tensor, kernel: int, channels: tuple[int, ...], width: float) -> Tensor:
    """A convolution with `kernel` and then 1x1 convolutions, each with ReLU."""
    for i, count in enumerate(channels):
        x = keras.layers.Conv2D(
            scaled(count, width),
            kernel if i == 0 else 1,
            padding="same",
            activation="relu",
            kernel_initializer="he_normal",
        )(x)
    return x

"""`haarnet`: a small residual network for CIFAR that learns much in little time of a CPU."""

import keras
import numpy as np

from sparse_embed.models.blocks import batch_norm, conv_norm, scaled

CHANNELS = (64, 128, 256)


def haarnet(images, width: float):
    """A Haar transform, a convolution and two residual stages, then the maximum of each channel.

    | layer                              | output for CIFAR, 32x32x3 |
    |------------------------------------|---------------------------|
    | Haar transform of 2x2, batch norm  | 16 x 16 x 12              |
    | conv 3x3                           | 16 x 16 x 64              |
    | max-pool, conv 3x3, residual unit  | 8 x 8 x 128               |
    | max-pool, conv 3x3, residual unit  | 4 x 4 x 256               |
    | maximum over all places            | 256                       |

    Batch norm and GELU follow every convolution; a residual unit adds two of them to its input. The
    first layer starts as an orthogonal transform of blocks of 2x2 pixels, so that nothing of the
    picture is lost at half the resolution, where a convolution costs a quarter. Its channels are
    nearly uncorrelated in photographs, and the batch norm after it brings them to one scale: the
    picture comes in whitened, which is what plain gradient steps learn fastest from.

    Args:
        images: Keras tensor (batch, height, width, channels).
        width: multiplies the channels.

    Returns:
        Keras tensor (batch, features): 256 features at width 1.
    """
    haar = haar_kernel(images.shape[-1])
    transform = keras.layers.Conv2D(haar.shape[-1], 2, strides=2, use_bias=False)
    x = batch_norm(transform(images))
    transform.set_weights([haar])  # no initializer of our own, which the saved file would name
    x = _conv_norm_gelu(x, scaled(CHANNELS[0], width))
    for channels in CHANNELS[1:]:
        x = _conv_norm_gelu(keras.layers.MaxPooling2D()(x), scaled(channels, width))
        y = _conv_norm_gelu(_conv_norm_gelu(x, x.shape[-1]), x.shape[-1])
        x = keras.layers.Add()([x, y])
    return keras.layers.GlobalMaxPooling2D()(x)


def haar_kernel(channels: int) -> np.ndarray:
    """Returns the orthogonal (2, 2, channels, 4 channels) kernel of the first layer.

    Its columns are the products of the four Haar patterns of 2x2 pixels (mean, rows, columns,
    diagonals) and, for three channels, brightness and the two opponent colours red - blue and
    green - (red + blue) / 2; otherwise of the channels themselves.
    """
    signs = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]) / 2
    colours = np.eye(channels)
    if channels == 3:
        colours = np.array([[1, 1, 1], [1, 0, -1], [-1, 2, -1]]) / np.sqrt([[3], [2], [6]])
    kernel = np.einsum("ap,bc->pcab", signs, colours)
    return kernel.reshape(2, 2, channels, 4 * channels).astype(np.float32)


def _conv_norm_gelu(x, channels: int):
    return keras.layers.Activation("gelu")(conv_norm(x, channels, 3))

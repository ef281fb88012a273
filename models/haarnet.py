"""`haarnet`: a wide, shallow network for CIFAR that learns much in few passes over the images."""

import keras
import numpy as np

from sparse_embed.models.blocks import Tensor, batch_norm, conv, conv_norm, scaled

CHANNELS = (64, 256, 256)


def haarnet(images: Tensor, width: float) -> Tensor:
    """A Haar transform and three blocks of two convolutions, then the maximum of each channel.

    | layer                                       | output for CIFAR, 32x32x3 |
    |---------------------------------------------|---------------------------|
    | Haar transform of every 2x2, batch norm     | 31 x 31 x 12              |
    | conv 3x3, max-pool, conv 3x3                | 15 x 15 x 64              |
    | conv 3x3, max-pool, conv 3x3                | 7 x 7 x 256               |
    | conv 3x3, max-pool, conv 3x3                | 3 x 3 x 256               |
    | maximum over all places                     | 256                       |

    Batch norm and GELU follow every convolution, after the max-pool where there is one. Jordan
    ("94% on CIFAR-10 in 3.29 seconds on a single GPU", 2024) found that a wide network with few
    layers and whitened images gets furthest in few passes; these channels are his. In place of
    whitening by the covariance of the images, the first layer starts as an orthogonal transform of
    2x2 pixels: its channels are nearly uncorrelated in photographs, and the batch norm after it
    brings them to one scale.

    Args:
        images: Keras tensor (batch, height, width, channels).
        width: multiplies the channels.

    Returns:
        Keras tensor (batch, features): 256 features at width 1.
    """
    haar = haar_kernel(images.shape[-1])
    transform = keras.layers.Conv2D(haar.shape[-1], 2, use_bias=False)
    x = batch_norm(transform(images))
    transform.set_weights([haar])  # not our own initializer, which the saved file would name
    for channels in CHANNELS:
        x = keras.layers.MaxPooling2D()(conv(x, scaled(channels, width), 3))
        x = keras.layers.Activation("gelu")(batch_norm(x))
        x = keras.layers.Activation("gelu")(conv_norm(x, scaled(channels, width), 3))
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
    whole: np.ndarray = kernel.reshape(2, 2, channels, 4 * channels).astype(np.float32)
    return whole

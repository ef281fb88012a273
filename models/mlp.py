"""`mlp`: a hidden layer for dense embeddings that another encoder has made."""

import keras

from sparse_embed.models.blocks import batch_norm, scaled

HIDDEN = 1024


def mlp(embeddings, width: float):
    """Batch norm, then a linear map, batch norm and ReLU, beside the normalised input itself.

    The input is kept beside the hidden units, so that the head starts from what the other encoder
    knows and has to learn only what sparse codes need beyond a linear map of it.

    Args:
        embeddings: Keras tensor (batch, dim).
        width: multiplies the 1,024 hidden units.

    Returns:
        Keras tensor (batch, dim + hidden units).
    """
    x = batch_norm(embeddings)
    hidden = keras.layers.Dense(
        scaled(HIDDEN, width), use_bias=False, kernel_initializer="he_normal"
    )(x)
    hidden = keras.layers.ReLU()(batch_norm(hidden))
    return keras.layers.Concatenate()([x, hidden])

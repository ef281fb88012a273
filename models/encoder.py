"""`build_encoder`: an architecture by name, with the embedding head on top."""

import numbers
from collections.abc import Callable
from typing import NamedTuple

import keras

from sparse_embed.common.checks import check_choice, check_number
from sparse_embed.models.blocks import Tensor
from sparse_embed.models.convnet import convnet
from sparse_embed.models.haarnet import haarnet
from sparse_embed.models.head import embedding_head
from sparse_embed.models.linear import linear
from sparse_embed.models.mobilefacenet import mobilefacenet
from sparse_embed.models.nin import nin
from sparse_embed.models.resnet8 import resnet8
from sparse_embed.models.resnet20 import resnet20
from sparse_embed.models.resnet101 import resnet101


class Architecture(NamedTuple):
    """A network without its head.

    Attributes:
        backbone: maps Keras tensors of images, and `width`, to features (batch, n).
        minimum: the smallest shape of an example. For images the product of all strides is the
            smallest height and width.
    """

    backbone: Callable[[Tensor, float], Tensor]
    minimum: tuple[int, ...]


ARCHITECTURES = {
    "convnet": Architecture(convnet, (8, 8, 1)),
    "haarnet": Architecture(haarnet, (9, 9, 1)),
    "linear": Architecture(linear, (1,)),
    "mobilefacenet": Architecture(mobilefacenet, (16, 16, 1)),
    "nin": Architecture(nin, (4, 4, 1)),
    "resnet101": Architecture(resnet101, (16, 16, 1)),
    "resnet20": Architecture(resnet20, (4, 4, 1)),
    "resnet8": Architecture(resnet8, (8, 8, 1)),
}


def build_encoder(
    name: str,
    embedding_dim: int,
    activation: str,
    input_shape: tuple[int, ...],
    width: float = 1.0,
    initial_probability: float | None = None,
) -> keras.Model:
    """Returns a model that maps images (or dense embeddings) to embeddings of unit norm.

    The model consists of Keras' own layers only: `keras.models.load_model(path)` reads its `.keras`
    file anywhere, without this package.

    Args:
        name: "convnet", "haarnet", "mobilefacenet", "nin", "resnet101", "resnet20" or "resnet8";
            "linear" for examples that are vectors.
        embedding_dim: dimension of the embeddings. The paper uses 1024 for sparse embeddings of
            faces, 128 and 512 for dense ones, 64 for CIFAR-100.
        activation: "relu" or "soft_threshold" for sparse embeddings, "none" for dense ones (see
            `embedding_head`).
        input_shape: (height, width, channels) of an image, such as (112, 112, 3) for faces. Pixels
            are expected between 0 and 1, as the data pipelines return them. For "linear", (dim,).
        width: multiplies the channels of every layer but the embedding; below 1 for a network that
            trains on a CPU.
        initial_probability: how likely a dimension is to be active before training (see
            `embedding_head`).

    Returns:
        A `keras.Model` from float images (batch, *input_shape) to float32 embeddings (batch,
        embedding_dim). An image that activates no dimension gives a zero row.

    Raises:
        ValueError: an argument is not one of its choices or out of its range; images smaller than
            the network's strides are refused too.
    """
    check_choice("name", name, ARCHITECTURES)
    check_number("width", width, above=0)
    backbone, minimum = ARCHITECTURES[name]
    _check_input_shape(name, input_shape, minimum)
    examples = keras.Input(tuple(input_shape), name="images" if len(minimum) == 3 else "vectors")
    embeddings = embedding_head(
        backbone(examples, width), embedding_dim, activation, initial_probability
    )
    return keras.Model(examples, embeddings, name=name)


def _check_input_shape(name: str, input_shape: tuple[int, ...], minimum: tuple[int, ...]) -> None:
    """Raises ValueError unless its integers match `minimum` in number and none is smaller."""
    shape = tuple(input_shape) if isinstance(input_shape, (tuple, list)) else ()
    if len(shape) != len(minimum) or not all(
        isinstance(side, numbers.Integral) and side >= least
        for side, least in zip(shape, minimum, strict=True)
    ):
        axes = "(height, width, channels)" if len(minimum) == 3 else "(dim,)"
        raise ValueError(
            f"input_shape={input_shape!r}: expected integers {axes}, for {name} at least {minimum}"
        )

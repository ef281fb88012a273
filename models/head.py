"""The embedding head: linear map and batch norm, an activation that can be sparse, unit norm.

Paper, section 5 "Activation function": the bias of the layer before the activation is the direct
control knob of the sparsity. Here that bias is the batch norm's `beta`, so the linear map before it
has none; for the soft threshold, which is symmetric, `gamma` matters as much.

The head consists of Keras' own layers and operations only. Recent versions of Keras import no other
package's classes while they read a file, so only this lets `keras.models.load_model` read a saved
encoder where this package is not imported, or not even installed. The layers at the end of this
file are for training and for other networks: a model with one of them loads after
`import sparse_embed.models`.
"""

import statistics
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from sparse_embed.common.checks import check_choice, check_number
from sparse_embed.common.layer_state import add_step_counter
from sparse_embed.models.blocks import Tensor, batch_norm

# Our name for an activation -> Keras' name for it. Keras' `soft_shrink` has the threshold 1/2.
ACTIVATIONS = {"relu": "relu", "soft_threshold": "soft_shrink", "none": "linear"}

# Vectors shorter than this count as zero; squared it is still far from float32's smallest, 1e-38.
SMALLEST_NORM = 1e-12


def _inverse_norm(x: Tensor, axis: int) -> Tensor:
    """Returns 1 / ||x||_2 along `axis`, which stays with length 1, and 0 where x is zero."""
    square = ops.sum(ops.square(x), axis=axis, keepdims=True)
    alive = square > SMALLEST_NORM**2
    # The inner `where` keeps the unused branch finite, whose gradient is multiplied by 0.
    return ops.where(alive, ops.rsqrt(ops.where(alive, square, 1.0)), 0.0)


def l2_normalize(x: Tensor, axis: int = -1) -> Tensor:
    """Returns x / ||x||_2 along `axis` in float32, and zeros where x is zero.

    A zero vector has no direction: it stays zero (it is similar to nothing, and costs nothing in
    the index), and no gradient flows through it. `keras.ops.normalize` gives the same values, but
    multiplies the gradient by 1e7 there (`keras.layers.UnitNormalization` by 1e12): one batch of
    blank images would spoil the weights. Half precision becomes float32 before squaring, where 1e-5
    would vanish and 300 overflow.

    Args:
        x: a tensor, or a Keras tensor while a model is built.
        axis: the axis of length 1 afterwards.
    """
    x = ops.cast(x, "float32")
    return x * _inverse_norm(x, axis)


@ops.custom_gradient
def _inverse_lengths(weights: Tensor) -> tuple[Tensor, Callable[..., Tensor]]:
    """Returns the (1, classes) values 1 / ||w_c||, and 0 for a zero column, which learns nothing.

    With 85,000 classes and 1,024 dimensions the weights take 348 MB, and so does every term of
    their size. The gradient -g_c w_c / ||w_c||^3 is one such term; what TensorFlow derives from the
    sum of squares is three.

    Args:
        weights: (d, classes) tensor with the w_c as columns.
    """
    inverse = _inverse_norm(weights, axis=0)

    def gradient(*args: Tensor, upstream: Tensor = None) -> Tensor:
        upstream = args[0] if upstream is None else upstream
        return weights * (-upstream * inverse * inverse * inverse)

    return inverse, gradient


def embedding_head(
    features: Tensor,
    embedding_dim: int,
    activation: str,
    initial_probability: float | None = None,
) -> Tensor:
    """Linear map -> batch norm -> activation -> unit norm.

    The layers are named `embedding_linear`, `embedding_norm`, `embedding_activation` (its output is
    not normalised yet) and `embedding` (the unit-norm output). From the batch norm on everything is
    float32, under every dtype policy.

    Args:
        features: Keras tensor (batch, n).
        embedding_dim: dimension d of the embedding.
        activation: "relu" for max(x, 0); "soft_threshold" for sgn(x) max(|x| - 1/2, 0); "none" for
            dense embeddings.
        initial_probability: how likely a dimension is to be active before training, by the choice
            of the batch norm's first `beta` or `gamma`. None leaves them at 0 and 1, which is 0.5
            for relu and 0.62 for the soft threshold. Adam moves `beta` by at most the learning rate
            per step: from 0.5, a short training run ends before it is sparse.

    Returns:
        Keras tensor (batch, embedding_dim) of unit-norm rows; a row without any active dimension is
        zero.
    """
    check_number("embedding_dim", embedding_dim, integer=True, minimum=1)
    check_choice("activation", activation, ACTIVATIONS)
    x = keras.layers.Dense(
        embedding_dim, use_bias=False, kernel_initializer="he_normal", name="embedding_linear"
    )(features)
    first = _initial_norm(activation, initial_probability)
    x = batch_norm(x, dtype="float32", name="embedding_norm", **first)
    x = keras.layers.Activation(
        ACTIVATIONS[activation], dtype="float32", name="embedding_activation"
    )(x)
    # A separate model, so that the encoder shows one layer `embedding` and not seven operations.
    activations = keras.Input((embedding_dim,), dtype="float32")
    return keras.Model(activations, l2_normalize(activations), name="embedding")(x)


def _initial_norm(activation: str, probability: float | None) -> dict[str, Any]:
    """Initializers of a batch norm after which a dimension is active with that probability.

    Its output is N(beta, gamma^2) at first. ReLU: P(N(beta, 1) > 0) = Phi(beta). Soft threshold:
    P(|N(0, gamma^2)| > 1/2) = 2 Phi(-1 / (2 gamma)).
    """
    if probability is None:
        return {}
    check_number("initial_probability", probability, above=0)
    if probability >= 1 or activation == "none":
        raise ValueError(
            f"initial_probability={probability!r}: expected a number below 1, and an activation "
            f"that can be zero, got {activation}"
        )
    quantile = statistics.NormalDist().inv_cdf
    if activation == "relu":
        return {"beta_initializer": keras.initializers.Constant(quantile(probability))}
    gamma = -0.5 / quantile(probability / 2)
    return {"gamma_initializer": keras.initializers.Constant(gamma)}


@keras.saving.register_keras_serializable("sparse_embed")
class SoftThreshold(keras.layers.Layer):
    """SThresh(x) = sgn(x) max(|x| - threshold, 0) (paper, section 5), for your own networks.

    Args:
        threshold: half the width of the interval around 0 that becomes 0; the paper's is 1/2.
    """

    def __init__(self, threshold: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = float(check_number("threshold", threshold, minimum=0))

    def call(self, inputs: Tensor) -> Tensor:
        """Applies the threshold to each value."""
        return ops.soft_shrink(inputs, self.threshold)

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """The shape of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The arguments that `from_config` needs to make this layer again."""
        return {**super().get_config(), "threshold": self.threshold}


@keras.saving.register_keras_serializable("sparse_embed")
class KeepLargest(keras.layers.Layer):
    """Cuts each embedding to its largest values, and scales what is left to unit norm.

    y_i = c_i / ||c_i|| with c_ij = x_ij if |x_ij| is among the k(t) largest of row i, else 0. In
    training step t = 0, 1, ...

        k(t) = k + floor((k_0 - k) max(T - t, 0) / T) with k_0 = min(4 k, d):

    linear from k_0 to k in T steps, since a small k from the first step on would leave most
    dimensions without a gradient. At inference k(t) is k.

    Values of equal magnitude stay or go together, so that a row may keep more than k of them. The
    gradient flows through the kept values alone; a row of zeros stays one, without a gradient.
    `retrieval.keep_largest` does the same to stored embeddings. Computed in float32 under every
    dtype policy.

    The layer counts the training steps itself. The count is saved with the model, hence a schedule
    goes on after a restart where it stopped.

    Args:
        k: number of values that a row keeps at last; nothing is cut if there are no more.
        anneal_steps: T, the number of steps until k is reached, >= 1.
    """

    def __init__(self, k: int, anneal_steps: int, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.k = int(check_number("k", k, integer=True, minimum=1))
        self.anneal_steps = int(check_number("anneal_steps", anneal_steps, integer=True, minimum=1))

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Creates the step counter."""
        self.last, self.first = min(self.k, input_shape[-1]), min(4 * self.k, input_shape[-1])
        self.step = add_step_counter(self)

    def call(self, embeddings: Tensor, training: bool = False) -> Tensor:
        """Returns the (batch, d) embeddings, cut; counts a step if `training`."""
        magnitudes = ops.stop_gradient(ops.abs(embeddings))
        count = ops.convert_to_tensor(self.last, "int64")
        if training:
            left = ops.maximum(self.anneal_steps - ops.convert_to_tensor(self.step), 0)
            count += (self.first - self.last) * left // self.anneal_steps
            self.step.assign_add(1)
        # The number of values to sort is part of the graph, so it is that of the first step.
        largest = ops.top_k(magnitudes, self.first)[0]
        smallest_kept = ops.take(largest, ops.expand_dims(count - 1, 0), axis=-1)
        # Neither smaller nor larger than anything, NaN stays: the loss must show it.
        return l2_normalize(ops.where(magnitudes < smallest_kept, 0.0, embeddings))

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """The shape of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The arguments that `from_config` needs to make this layer again."""
        return {**super().get_config(), "k": self.k, "anneal_steps": self.anneal_steps}


@keras.saving.register_keras_serializable("sparse_embed")
class ArcFaceHead(keras.layers.Layer):
    """Cosines between embeddings x_i and class weights w_c: <x_i, w_c> / (||x_i|| ||w_c||).

    The input of `ArcFaceLoss`. Divides by both lengths in the forward pass, so that the output is a
    cosine whatever an optimizer does to the weights' length; the cosine with a zero embedding is 0.
    Computed in float32 under every dtype policy: the loss multiplies the cosines by 64, and float16
    would leave errors of 0.03 in the logits.

    Weights: `class_weights`, shape (embedding_dim, num_classes).

    Args:
        num_classes: number of classes.
    """

    def __init__(self, num_classes: int, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.num_classes = int(check_number("num_classes", num_classes, integer=True, minimum=1))

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Makes the class weights."""
        self.class_weights = self.add_weight(
            shape=(input_shape[-1], self.num_classes),
            initializer=keras.initializers.RandomNormal(stddev=0.01),
            name="class_weights",
        )

    def call(self, embeddings: Tensor) -> Tensor:
        """Maps embeddings (batch, embedding_dim) to cosines (batch, num_classes)."""
        weights = ops.cast(self.class_weights, "float32")
        # Products first, lengths then: no copy of the weights with unit length is made or kept.
        return ops.matmul(l2_normalize(embeddings), weights) * _inverse_lengths(weights)

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """(batch, num_classes)."""
        return (*input_shape[:-1], self.num_classes)

    def get_config(self) -> dict[str, Any]:
        """The arguments that `from_config` needs to make this layer again."""
        return {**super().get_config(), "num_classes": self.num_classes}

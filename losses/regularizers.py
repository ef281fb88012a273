"""Regularizers of the activations: the paper's relaxed FLOPs, l1 as its baseline, and newer ones.

With the mean absolute activations abar_j = 1/n sum_i |a_ij|, relaxed FLOPs are sum_j abar_j^2 and
l1 is sum_j abar_j (section 4). Two later papers change what relaxed FLOPs look at: DF-FLOPS weights
the dimensions by how often they are active, the l0 mask leaves out rows that are sparse enough.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from sparse_embed.common.checks import check_choice, check_number
from sparse_embed.common.layer_state import add_state, add_step_counter
from sparse_embed.losses.replicas import all_reduce_sum, mark_as_own, only_own
from sparse_embed.losses.schedules import TargetFlops

# A number, a function of the step, or what follows a number of multiply-adds.
Weight = float | Callable[[Any], Any] | TargetFlops


def _absolute(activations: Any) -> tf.Tensor:
    """Returns |a_ij| in at least float32: float16 sums overflow and drop small terms."""
    activations = tf.convert_to_tensor(activations)
    if activations.shape.rank != 2:
        raise ValueError(f"activations of shape {activations.shape}: expected (batch, dimensions)")
    if activations.dtype.size < 4:
        activations = tf.cast(activations, tf.float32)
    return tf.abs(activations)


def relaxed_flops(activations: Any) -> tf.Tensor:
    """Returns the relaxed FLOPs of a (batch, d) tensor: sum_j (1/n sum_i |a_ij|)^2.

    The continuous relaxation of the multiply-adds per database row that a search with an inverted
    index costs (section 4).
    """
    return tf.reduce_sum(tf.square(tf.reduce_mean(_absolute(activations), axis=0)))


def l1_norm(activations: Any) -> tf.Tensor:
    """Returns the mean l1 norm of the rows of a (batch, d) tensor: 1/n sum_i sum_j |a_ij|."""
    return tf.reduce_sum(tf.reduce_mean(_absolute(activations), axis=0))


class ActivationRegularization(keras.layers.Layer):
    """Passes its input through and adds lambda(t) * penalty(mean activations) to the loss.

    The loss is added while training only: lambda(t) grows during the warm-up, and validation losses
    that contain it could be compared neither between steps nor between weights. The penalty itself
    is reported in both. Metrics in the logs of `fit` and `evaluate`, with averages over examples as
    Keras forms them for `loss`:

    - `<name>_weight`: lambda at the latest step.
    - `<name>_penalty`: average penalty of the batches, without the weight.
    - `<name>_loss`: average of what was added to the loss, 0 in `evaluate`.

    The layer counts the training steps itself (t = 0 at the first one). The count is saved with
    the model, hence a schedule goes on after a restart where it stopped.

    Under a strategy, Keras divides the added losses by the number of replicas (a custom training
    loop must do the same) and adds up the gradients. Then `scope="global"` gives exactly the loss
    and the gradients of one replica with the whole batch, also if the replicas hold unequal
    batches. With `scope="replica"`, each replica penalises its own mean activations: as the square
    is convex, the penalty is larger on average and depends on the number of replicas.

    Args:
        weight: lambda: a number >= 0; or a serialisable function from the training step (a scalar
            tensor) to lambda, such as `QuadraticWarmup`; or `TargetFlops`, which adapts it.
        scope: "global" averages activations over the batches of all replicas, "replica" over the
            replica's own batch.
        name: name of the layer, prefix of its metrics.
        **kwargs: other arguments of `keras.layers.Layer`. Under every dtype policy the input passes
            unchanged, and the penalty, the state and the metrics are float32.
    """

    def __init__(
        self, weight: Weight, scope: str = "global", name: str | None = None, **kwargs: Any
    ) -> None:
        # Without autocast: in mixed precision the input must pass unchanged, too. That alone would
        # not keep Keras from casting the state and the metrics to half precision.
        super().__init__(name=name, autocast=False, **{**kwargs, "dtype": "float32"})
        if not (callable(weight) or isinstance(weight, TargetFlops)):
            weight = float(check_number("weight", weight, minimum=0))
        self.weight = weight
        self.scope = check_choice("scope", scope, ("global", "replica"))
        self._weight_metric = keras.metrics.Mean(name=f"{self.name}_weight")
        self._penalty_metric = keras.metrics.Mean(name=f"{self.name}_penalty")
        self._loss_metric = keras.metrics.Mean(name=f"{self.name}_loss")

    def penalty(self, mean_activations: tf.Tensor) -> tf.Tensor:
        """Returns the penalty, a scalar, given the (d,) mean absolute activations."""
        raise NotImplementedError

    def penalised(self, absolute: tf.Tensor) -> tf.Tensor:
        """Returns the part of the (batch, d) absolute activations to take the mean of: all."""
        return absolute

    def observe(self, active: tf.Tensor, examples: tf.Tensor) -> None:
        """Learns from how many of a training step's examples activate each dimension: nothing."""

    @property
    def _counts(self) -> bool:
        """Whether the layer needs to know how often dimensions are active."""
        return isinstance(self.weight, TargetFlops)

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Creates the step counter, and the state of `TargetFlops`."""
        self.step = add_step_counter(self)
        if isinstance(self.weight, TargetFlops):
            if self.weight.flops >= input_shape[-1]:
                raise ValueError(
                    f"flops={self.weight.flops}: expected less than {input_shape[-1]}, the "
                    "dimension of the embeddings"
                )
            first = tf.constant(self.weight.first_state(input_shape[-1]))
            self.controller = add_state(self, "controller", lambda shape, dtype: first, first.shape)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns `inputs`; adds the loss if `training`."""
        absolute = _absolute(inputs)
        examples = tf.shape(absolute)[0]
        total = tf.reduce_sum(self.penalised(absolute), axis=0)
        count = tf.cast(examples, absolute.dtype)
        if self.scope == "global":
            total, count = all_reduce_sum(total, count)
        # A replica's part of a last, incomplete batch may be empty.
        penalty = self.penalty(tf.math.divide_no_nan(total, count))
        if self._counts:
            active = tf.math.count_nonzero(absolute, axis=0, dtype=tf.float32)
            active, everyone = all_reduce_sum(active, tf.cast(examples, tf.float32))
            if training:
                self.observe(active, everyone)

        weight, state = self.weight, None
        if isinstance(weight, TargetFlops):
            weight, state = weight.adapt(
                tf.convert_to_tensor(self.step),
                tf.convert_to_tensor(self.controller),
                tf.math.divide_no_nan(active, everyone),
            )
        elif callable(weight):
            weight = weight(tf.convert_to_tensor(self.step))
        weight = tf.cast(weight, penalty.dtype)

        self._penalty_metric.update_state(penalty, sample_weight=examples)
        self._weight_metric.reset_state()  # the latest value, not the mean over the epoch
        self._weight_metric.update_state(weight)
        if training:
            self._loss_metric.update_state(weight * penalty, sample_weight=examples)
            if state is not None:
                self.controller.assign(state)
            # In this order: replicas wait for each other at the counter, hence all of them have
            # cleared the losses of the step before, which they share, when the first adds its own.
            self.step.assign_add(1)
            self.add_loss(mark_as_own(weight * penalty))
        return inputs

    def _get_own_losses(self) -> list[tf.Tensor]:
        # Keras has one list of losses per layer for all replicas. Without this, each replica would
        # count the losses of the others as well: the gradients would be right, the total not.
        return only_own(super()._get_own_losses())

    def compute_output_spec(self, inputs: Any, training: bool = False) -> keras.KerasTensor:
        """Returns the shape and dtype of the input."""
        return keras.KerasTensor(inputs.shape, dtype=inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {
            **super().get_config(),
            "weight": keras.saving.serialize_keras_object(self.weight),
            "scope": self.scope,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ActivationRegularization":
        """Returns the layer that `get_config` described."""
        weight = keras.saving.deserialize_keras_object(config["weight"])
        return cls(**{**config, "weight": weight})


@keras.saving.register_keras_serializable(package="sparse_embed")
class FlopsRegularization(ActivationRegularization):
    """Adds lambda(t) * sum_j abar_j^2, the relaxed FLOPs of the batch (section 4).

    Arguments, metrics and use with several replicas: see `ActivationRegularization`.
    """

    def __init__(
        self, weight: Weight, scope: str = "global", name: str = "flops", **kwargs: Any
    ) -> None:
        super().__init__(weight, scope=scope, name=name, **kwargs)

    def penalty(self, mean_activations: tf.Tensor) -> tf.Tensor:
        """Returns the sum of squares."""
        return tf.reduce_sum(tf.square(mean_activations))


@keras.saving.register_keras_serializable(package="sparse_embed")
class L1Regularization(ActivationRegularization):
    """Adds lambda(t) * sum_j abar_j, the mean l1 norm of the batch: the paper's baseline.

    Arguments, metrics and use with several replicas: see `ActivationRegularization`.
    """

    def __init__(
        self, weight: Weight, scope: str = "global", name: str = "l1", **kwargs: Any
    ) -> None:
        super().__init__(weight, scope=scope, name=name, **kwargs)

    def penalty(self, mean_activations: tf.Tensor) -> tf.Tensor:
        """Returns the sum."""
        return tf.reduce_sum(mean_activations)


@keras.saving.register_keras_serializable(package="sparse_embed")
class DFFlopsRegularization(FlopsRegularization):
    """Adds lambda(t) * sum_j w_j abar_j^2: FLOPs that see how often a dimension is active.

    DF-FLOPS (arXiv 2505.15070). With x_j the share of examples that activated dimension j,

        w_j = 1 / (1 + (x_j^(log 2 / log cutoff) - 1)^steepness):

    0 for a dimension that is never active, 1/2 at the cutoff, 1 for one that always is. The w_j
    are renewed every `REFRESH` training steps from the examples since the last time; before that,
    all are 1. The paper counts on validation documents; counting on training examples needs none.

    Args:
        weight: see `ActivationRegularization`.
        df_cutoff: the share of examples, between 0 and 1, at which w_j is 1/2.
        df_steepness: how steeply w_j rises there, > 0.
        scope: see `ActivationRegularization`; the w_j are those of the global batch in any case.
        name: name of the layer, prefix of its metrics.
        **kwargs: other arguments of `keras.layers.Layer`.
    """

    REFRESH = 100

    def __init__(
        self,
        weight: Weight,
        df_cutoff: float = 0.1,
        df_steepness: float = 10.0,
        scope: str = "global",
        name: str = "df_flops",
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, scope=scope, name=name, **kwargs)
        self.df_cutoff = float(check_number("df_cutoff", df_cutoff, above=0))
        if self.df_cutoff >= 1:
            raise ValueError(f"df_cutoff={df_cutoff!r}: expected a number below 1")
        self.df_steepness = float(check_number("df_steepness", df_steepness, above=0))

    _counts = True

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Creates the counts and the weights of the dimensions."""
        super().build(input_shape)
        self.active = add_state(self, "active", shape=(input_shape[-1],))
        self.examples = add_state(self, "examples")
        self.dimension_weights = add_state(self, "dimension_weights", "ones", (input_shape[-1],))

    def observe(self, active: tf.Tensor, examples: tf.Tensor) -> None:
        """Counts the examples; renews the weights when it is time."""
        active, examples = active + self.active, examples + self.examples
        is_time = tf.equal(tf.convert_to_tensor(self.step) % self.REFRESH, self.REFRESH - 1)
        renewed = self.weights_of(tf.math.divide_no_nan(active, examples))
        self.dimension_weights.assign(
            tf.where(is_time, renewed, tf.convert_to_tensor(self.dimension_weights))
        )
        self.active.assign(tf.where(is_time, tf.zeros_like(active), active))
        self.examples.assign(tf.where(is_time, 0.0, examples))

    def weights_of(self, shares: tf.Tensor) -> tf.Tensor:
        """Returns w_j given the (d,) shares x_j."""
        # x = 0 gives an infinite power, and w = 0 as it should.
        power = tf.pow(shares, math.log(2.0) / math.log(self.df_cutoff))
        return 1.0 / (1.0 + tf.pow(power - 1.0, self.df_steepness))

    def penalty(self, mean_activations: tf.Tensor) -> tf.Tensor:
        """Returns the weighted sum of squares."""
        weights = tf.cast(self.dimension_weights, mean_activations.dtype)
        return tf.reduce_sum(weights * tf.square(mean_activations))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        own = {"df_cutoff": self.df_cutoff, "df_steepness": self.df_steepness}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="sparse_embed")
class MaskedFlopsRegularization(FlopsRegularization):
    """Adds lambda(t) * relaxed FLOPs of the rows that are not sparse enough.

    The l0 mask (arXiv 2504.14839): sum_j (1/n sum_i m_i |a_ij|)^2 with m_i = 1 if row i has more
    than t non-zeros, else 0. A row that costs little already is left alone.

    Args:
        weight: see `ActivationRegularization`.
        l0_mask: t, >= 0; with 0 the penalty is that of `FlopsRegularization`.
        scope: see `ActivationRegularization`.
        name: name of the layer, prefix of its metrics.
        **kwargs: other arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        weight: Weight,
        l0_mask: int = 16,
        scope: str = "global",
        name: str = "masked_flops",
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, scope=scope, name=name, **kwargs)
        self.l0_mask = int(check_number("l0_mask", l0_mask, integer=True, minimum=0))

    def penalised(self, absolute: tf.Tensor) -> tf.Tensor:
        """Returns the rows with more than t non-zeros, and zeros for the others."""
        counts = tf.math.count_nonzero(absolute, axis=1, keepdims=True, dtype=tf.int32)
        return tf.where(counts > self.l0_mask, absolute, tf.zeros_like(absolute))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "l0_mask": self.l0_mask}

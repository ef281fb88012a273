"""Regularizers of the activations: the paper's relaxed FLOPs, and l1 as its baseline (section 4).

Both are functions of the mean absolute activations abar_j = 1/n sum_i |a_ij| alone:
relaxed FLOPs = sum_j abar_j^2, and l1 = sum_j abar_j.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

from sparse_embed.common.checks import check_choice, check_number
from sparse_embed.losses.replicas import all_reduce_sum, mark_as_own, only_own


def _absolute(activations) -> tf.Tensor:
    """Returns |a_ij| in at least float32: float16 sums overflow and drop small terms."""
    activations = tf.convert_to_tensor(activations)
    if activations.shape.rank != 2:
        raise ValueError(f"activations of shape {activations.shape}: expected (batch, dimensions)")
    if activations.dtype.size < 4:
        activations = tf.cast(activations, tf.float32)
    return tf.abs(activations)


def relaxed_flops(activations) -> tf.Tensor:
    """Returns the relaxed FLOPs of a (batch, d) tensor: sum_j (1/n sum_i |a_ij|)^2.

    The continuous relaxation of the multiply-adds per database row that a search with an inverted
    index costs (section 4).
    """
    return tf.reduce_sum(tf.square(tf.reduce_mean(_absolute(activations), axis=0)))


def l1_norm(activations) -> tf.Tensor:
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
        weight: lambda, either a number >= 0 or a serialisable function from the training step (a
            scalar tensor) to lambda, such as `QuadraticWarmup`.
        scope: "global" averages activations over the batches of all replicas, "replica" over the
            replica's own batch.
        name: name of the layer, prefix of its metrics.
        **kwargs: other arguments of `keras.layers.Layer`.
    """

    def __init__(
        self, weight: float | Callable, scope: str = "global", name: str | None = None, **kwargs
    ):
        # Without autocast: in mixed precision the input must pass unchanged, too.
        super().__init__(name=name, autocast=False, **kwargs)
        if not callable(weight):
            weight = float(check_number("weight", weight, minimum=0))
        self.weight = weight
        self.scope = check_choice("scope", scope, ("global", "replica"))
        self._weight_metric = keras.metrics.Mean(name=f"{self.name}_weight")
        self._penalty_metric = keras.metrics.Mean(name=f"{self.name}_penalty")
        self._loss_metric = keras.metrics.Mean(name=f"{self.name}_loss")

    def penalty(self, mean_activations: tf.Tensor) -> tf.Tensor:
        """Returns the penalty, a scalar, given the (d,) mean absolute activations."""
        raise NotImplementedError

    def build(self, input_shape):
        """Creates the step counter."""
        self.step = self.add_weight(
            shape=(),
            initializer="zeros",
            dtype="int64",
            trainable=False,
            aggregation="only_first_replica",  # all replicas take the same step: count it once
            name="step",
        )

    def call(self, inputs, training=False):
        """Returns `inputs`; adds the loss if `training`."""
        absolute = _absolute(inputs)
        examples = tf.shape(absolute)[0]
        total, count = tf.reduce_sum(absolute, axis=0), tf.cast(examples, absolute.dtype)
        if self.scope == "global":
            total, count = all_reduce_sum(total, count)
        # A replica's part of a last, incomplete batch may be empty.
        penalty = self.penalty(tf.math.divide_no_nan(total, count))

        weight = self.weight
        if callable(weight):
            weight = weight(tf.convert_to_tensor(self.step))
        weight = tf.cast(weight, penalty.dtype)

        self._penalty_metric.update_state(penalty, sample_weight=examples)
        self._weight_metric.reset_state()  # the latest value, not the mean over the epoch
        self._weight_metric.update_state(weight)
        if training:
            self._loss_metric.update_state(weight * penalty, sample_weight=examples)
            # In this order: replicas wait for each other at the counter, hence all of them have
            # cleared the losses of the step before, which they share, when the first adds its own.
            self.step.assign_add(1)
            self.add_loss(mark_as_own(weight * penalty))
        return inputs

    def _get_own_losses(self):
        # Keras has one list of losses per layer for all replicas. Without this, each replica would
        # count the losses of the others as well: the gradients would be right, the total not.
        return only_own(super()._get_own_losses())

    def compute_output_spec(self, inputs, training=False):
        """Returns the shape and dtype of the input."""
        return keras.KerasTensor(inputs.shape, dtype=inputs.dtype)

    def get_config(self) -> dict:
        """Returns the arguments of the constructor."""
        return {
            **super().get_config(),
            "weight": keras.saving.serialize_keras_object(self.weight),
            "scope": self.scope,
        }

    @classmethod
    def from_config(cls, config: dict):
        """Returns the layer that `get_config` described."""
        weight = keras.saving.deserialize_keras_object(config["weight"])
        return cls(**{**config, "weight": weight})


@keras.saving.register_keras_serializable(package="sparse_embed")
class FlopsRegularization(ActivationRegularization):
    """Adds lambda(t) * sum_j abar_j^2, the relaxed FLOPs of the batch (section 4).

    Arguments, metrics and use with several replicas: see `ActivationRegularization`.
    """

    def __init__(self, weight, scope="global", name="flops", **kwargs):
        super().__init__(weight, scope=scope, name=name, **kwargs)

    def penalty(self, mean_activations):
        """Returns the sum of squares."""
        return tf.reduce_sum(tf.square(mean_activations))


@keras.saving.register_keras_serializable(package="sparse_embed")
class L1Regularization(ActivationRegularization):
    """Adds lambda(t) * sum_j abar_j, the mean l1 norm of the batch: the paper's baseline.

    Arguments, metrics and use with several replicas: see `ActivationRegularization`.
    """

    def __init__(self, weight, scope="global", name="l1", **kwargs):
        super().__init__(weight, scope=scope, name=name, **kwargs)

    def penalty(self, mean_activations):
        """Returns the sum."""
        return tf.reduce_sum(mean_activations)

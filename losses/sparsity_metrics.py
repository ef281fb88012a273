"""Metrics to watch while training sparse embeddings, over whole epochs instead of batches.

All metrics follow from three totals over the examples of an epoch: how often each dimension was
not zero (c_j), the sum of its absolute values (s_j), and the number of examples (n). Ratios are
formed from the totals, so that neither the batch size nor the number of replicas changes them.
"""

from typing import Any

import keras
import tensorflow as tf

from sparse_embed.common.checks import check_number


@keras.saving.register_keras_serializable(package="sparse_embed")
class SparsityMetrics(keras.metrics.Metric):
    """The sparsity metrics of the paper (sections 3 to 5) over all embeddings seen.

    With p_j = c_j / n the result is a dictionary of these, each key after `<name>_`:

    - `flops_per_row`: sum_j p_j^2, the multiply-adds per row of a search among these embeddings.
    - `flops_per_row_unbiased`: sum_j c_j (c_j - 1) / (n (n - 1)), the share of ordered pairs of
      *different* examples that have j in common, summed over j. For independent examples each such
      pair has it with probability P_j^2, so that this is an unbiased estimate of the population's
      FLOPs per row, while `flops_per_row` exceeds it by sum_j P_j (1 - P_j) / n on average. NaN for
      n < 2.
    - `relaxed_flops`: sum_j (s_j / n)^2, over the epoch. The regularizer's own metric, averaged
      over batches, is larger for the same reason.
    - `active_dimensions`: sum_j p_j, the mean number of non-zeros per example.
    - `activation_probability`: mean_j p_j.
    - `dead_dimensions`: how many c_j are zero.
    - `suboptimality_ratio`: flops_per_row / (d mean(p)^2) >= 1; 1 if all dimensions are equally
      likely to be active, NaN if all are dead.

    Use it on a model whose output is the embeddings, `compile(metrics=[SparsityMetrics(512)])`, or
    put a `SparsityMonitor` behind the embeddings of any model.

    Args:
        dimensions: d, the number of dimensions.
        name: name of the metric, prefix of the keys.
        **kwargs: other arguments of `keras.metrics.Metric`.
    """

    def __init__(self, dimensions: int, name: str = "sparsity", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.dimensions = int(check_number("dimensions", dimensions, integer=True, minimum=1))
        # float64 counts exactly up to 2^53; float32 would stop counting at 2^24 examples. Each
        # replica keeps its own totals, which are added up when an epoch ends. (Within an epoch, the
        # progress bar of `fit` shows the average of the replicas' metrics.)
        shape = (self.dimensions,)
        self._nonzeros = self.add_variable(shape, "zeros", dtype="float64", name="nonzeros")
        self._absolute = self.add_variable(shape, "zeros", dtype="float64", name="absolute")
        self._examples = self.add_variable((), "zeros", dtype="float64", name="examples")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a (batch, d) tensor of embeddings, `y_pred`; `y_true` is not used."""
        if sample_weight is not None:
            raise ValueError("sample_weight: expected None, since every example counts once")
        embeddings = tf.convert_to_tensor(y_pred)
        self._nonzeros.assign_add(tf.math.count_nonzero(embeddings, axis=0, dtype=tf.float64))
        self._absolute.assign_add(tf.reduce_sum(tf.cast(tf.abs(embeddings), tf.float64), axis=0))
        self._examples.assign_add(tf.cast(tf.shape(embeddings)[0], tf.float64))

    def probabilities(self) -> tf.Tensor:
        """Returns p_j, how likely each dimension is to be active, as (d,) float64."""
        return tf.convert_to_tensor(self._nonzeros) / tf.convert_to_tensor(self._examples)

    def result(self) -> dict[str, Any]:
        """Returns the metrics."""
        p = self.probabilities()
        counts = tf.convert_to_tensor(self._nonzeros)
        examples = tf.convert_to_tensor(self._examples)
        flops = tf.reduce_sum(tf.square(p))
        metrics = {
            "flops_per_row": flops,
            "flops_per_row_unbiased": tf.reduce_sum(p * (counts - 1.0)) / (examples - 1.0),
            "relaxed_flops": tf.reduce_sum(tf.square(self._absolute / examples)),
            "active_dimensions": tf.reduce_sum(p),
            "activation_probability": tf.reduce_mean(p),
            "dead_dimensions": tf.reduce_sum(tf.cast(counts == 0, tf.float64)),
            "suboptimality_ratio": flops / (self.dimensions * tf.square(tf.reduce_mean(p))),
        }
        return {f"{self.name}_{key}": value for key, value in metrics.items()}

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "dimensions": self.dimensions}


@keras.saving.register_keras_serializable(package="sparse_embed")
class SparsityMonitor(keras.layers.Layer):
    """Passes embeddings through and reports their `SparsityMetrics` in `fit` and `evaluate`.

    For models whose output is not the embeddings, such as one that ends in ArcFace cosines. Costs
    two sums over the batch per step, and no communication between replicas.

    Args:
        name: name of the layer, prefix of the metrics.
        **kwargs: other arguments of `keras.layers.Layer`.
    """

    def __init__(self, name: str = "sparsity", **kwargs: Any) -> None:
        # As in `ActivationRegularization`; half precision would count to 2,048.
        super().__init__(name=name, autocast=False, **{**kwargs, "dtype": "float32"})

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Creates the totals."""
        self._figures = SparsityMetrics(input_shape[-1], name=self.name)

    def probabilities(self) -> tf.Tensor:
        """Returns p_j over the examples of this epoch so far, as (d,) float64."""
        return self._figures.probabilities()

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns `inputs`."""
        self._figures.update_state(None, inputs)
        return inputs

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """Returns the shape and dtype of the input."""
        return keras.KerasTensor(inputs.shape, dtype=inputs.dtype)

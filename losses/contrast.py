"""Supervised contrast: examples of a class attract each other, all others repel."""

from typing import Any

import keras
import tensorflow as tf

from sparse_embed.common.checks import check_number
from sparse_embed.losses.replicas import all_reduce_sum
from sparse_embed.losses.triplet import global_batch


def supervised_contrast(labels: Any, embeddings: Any, temperature: float = 0.05) -> tf.Tensor:
    """Returns the supervised contrastive loss of each example (Khosla et al., 2020, L_out).

    With s_ij = <z_i, z_j> / temperature and P(i) the other examples of the class of i,

        loss_i = -1/|P(i)| sum over p in P(i) of log(exp(s_ip) / sum over a != i of exp(s_ia)),

    times (examples / examples that have a P(i)), so that the mean over the batch is the mean over
    those. An example without another of its class costs nothing. Under a strategy, the others are
    those of all replicas, as in `triplet_semi_hard`.

    Args:
        labels: (batch,) or (batch, 1) class numbers.
        embeddings: (batch, d) unit-norm rows.
        temperature: what the cosines are divided by, > 0.

    Returns:
        (batch,) tensor, in the dtype of `embeddings` but at least float32.
    """
    labels, embeddings, all_labels, all_embeddings, first = global_batch(labels, embeddings)
    places = first + tf.range(tf.shape(labels)[0])
    own = tf.equal(places[:, None], tf.range(tf.shape(all_labels)[0])[None, :])
    scores = tf.matmul(embeddings, all_embeddings, transpose_b=True) / temperature
    others = tf.where(own, tf.fill(tf.shape(scores), scores.dtype.min), scores)
    logs = scores - tf.reduce_logsumexp(others, axis=1, keepdims=True)
    positive = tf.cast(tf.equal(labels[:, None], all_labels) & ~own, logs.dtype)
    mates = tf.reduce_sum(positive, axis=1, keepdims=True)
    loss = -tf.reduce_sum(tf.math.divide_no_nan(positive, mates) * logs, axis=1)
    (found,) = all_reduce_sum(tf.reduce_sum(tf.cast(mates > 0, logs.dtype)))
    examples = tf.cast(tf.shape(all_labels)[0], logs.dtype)
    return loss * tf.math.divide_no_nan(examples, found)


@keras.saving.register_keras_serializable(package="sparse_embed")
class SupervisedContrastLoss(keras.losses.Loss):
    """`supervised_contrast` as a Keras loss on (labels, embeddings), one value per example.

    Computes in float32 whatever the precision of the embeddings.

    Args:
        temperature: what the cosines are divided by, > 0.
        reduction: see `keras.losses.Loss`.
        name: name of the loss.
    """

    def __init__(
        self,
        temperature: float = 0.05,
        reduction: str | None = "sum_over_batch_size",
        name: str = "supervised_contrast",
    ):
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.temperature = float(check_number("temperature", temperature, above=0))

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns one value per example."""
        return supervised_contrast(y_true, y_pred, self.temperature)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "temperature": self.temperature}

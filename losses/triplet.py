"""Triplet loss with semi-hard negatives (FaceNet, Schroff et al.), used for CIFAR-100."""

from typing import Any

import keras
import tensorflow as tf

from sparse_embed.common.checks import check_number
from sparse_embed.losses.replicas import all_gather, all_reduce_sum


def _squared_distances(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Returns the (len(a), len(b)) squared Euclidean distances between rows."""
    norms_a = tf.reduce_sum(tf.square(a), axis=1, keepdims=True)
    norms_b = tf.reduce_sum(tf.square(b), axis=1)
    # Rounding may make the distance of equal rows negative.
    return tf.maximum(norms_a + norms_b - 2.0 * tf.matmul(a, b, transpose_b=True), 0.0)


def _semi_hard_negatives(distances: tf.Tensor, negative: tf.Tensor) -> tf.Tensor:
    """Returns which column is the negative of each anchor (row) and other example (column).

    It is the nearest negative that is further away than the other example; without any, the
    furthest negative. Sorting each row once finds all of them in O(n log n) time and O(n) memory
    per anchor.
    """
    keys = tf.where(negative, distances, tf.fill(tf.shape(distances), distances.dtype.max))
    order = tf.argsort(keys, axis=1)  # all negatives come first
    first_further = tf.searchsorted(tf.gather(keys, order, batch_dims=1), distances, side="right")
    last = tf.math.count_nonzero(negative, axis=1, keepdims=True, dtype=tf.int32) - 1
    return tf.gather(order, tf.clip_by_value(first_further, 0, tf.maximum(last, 0)), batch_dims=1)


def triplet_semi_hard(labels: Any, embeddings: Any, margin: float = 0.2) -> tf.Tensor:
    """Returns the share of each anchor in the semi-hard triplet loss of the global batch.

    With squared distances D, every ordered pair (a, p) of two examples of one class is completed by
    the nearest negative n further from a than p, D(a, n) > D(a, p), or by the furthest negative if
    none is, and costs [D(a, p) - D(a, n) + margin]_+. The value of anchor a is the sum over its
    positives p times (examples / pairs), both counted over the global batch. The mean of the values
    is therefore the mean over all pairs, which is how FaceNet's loss is usually averaged. A batch
    without pairs or without negatives costs nothing.

    Under a strategy, positives and negatives come from the batches of all replicas, anchors from
    this replica alone. The replicas' batches must be of equal size for Keras' average over replicas
    to be the average over examples.

    Args:
        labels: (batch,) or (batch, 1) class numbers.
        embeddings: (batch, d) unit-norm rows.
        margin: least gap between the two squared distances.

    Returns:
        (batch,) tensor, in the dtype of `embeddings` but at least float32.
    """
    labels, embeddings, all_labels, all_embeddings, first = global_batch(labels, embeddings)
    distances = _squared_distances(embeddings, all_embeddings)
    return semi_hard_cost(labels, all_labels, first, distances, margin)


def global_batch(labels: Any, embeddings: Any) -> tuple[tf.Tensor, ...]:
    """Returns the labels and embeddings of this replica, those of all, and this one's first place.

    Labels become (batch,) int32, embeddings keep their dtype but are at least float32.
    """
    embeddings = tf.convert_to_tensor(embeddings)
    if embeddings.dtype.size < 4:
        embeddings = tf.cast(embeddings, tf.float32)
    labels = tf.reshape(tf.cast(labels, tf.int32), [-1])
    return labels, embeddings, *all_gather(labels, embeddings)


def semi_hard_cost(
    labels: tf.Tensor, all_labels: tf.Tensor, first: tf.Tensor, distances: tf.Tensor, margin: float
) -> tf.Tensor:
    """Returns the share of each anchor in the semi-hard triplet loss, whatever the distance.

    Args:
        labels: (batch,) classes of this replica's examples, the anchors.
        all_labels: (n,) classes of the global batch.
        first: place of the first anchor in the global batch.
        distances: (batch, n), from each anchor to each example.
        margin: least gap between the two distances.
    """
    same = tf.equal(labels[:, None], all_labels[None, :])
    own_column = first + tf.range(tf.shape(labels)[0])
    is_self = tf.equal(own_column[:, None], tf.range(tf.shape(all_labels)[0])[None, :])
    has_negative = tf.reduce_any(~same, axis=1, keepdims=True)
    pair = tf.cast(same & ~is_self & has_negative, distances.dtype)

    chosen = _semi_hard_negatives(tf.stop_gradient(distances), ~same)
    negative_distances = tf.gather(distances, chosen, batch_dims=1)
    cost = pair * tf.maximum(distances - negative_distances + margin, 0.0)

    (pairs,) = all_reduce_sum(tf.reduce_sum(pair))
    examples = tf.cast(tf.shape(all_labels)[0], pairs.dtype)
    return tf.reduce_sum(cost, axis=1) * tf.math.divide_no_nan(examples, tf.stop_gradient(pairs))


@keras.saving.register_keras_serializable(package="sparse_embed")
class TripletSemiHardLoss(keras.losses.Loss):
    """`triplet_semi_hard` as a Keras loss on (labels, embeddings), one value per anchor.

    Computes in float32 whatever the precision of the embeddings. Keras hands labels over as floats:
    class numbers are exact up to 2^24.

    Args:
        margin: above 0 and at most 4, the largest squared distance of unit vectors. FaceNet: 0.2.
        reduction: see `keras.losses.Loss`.
        name: name of the loss.
    """

    def __init__(
        self,
        margin: float = 0.2,
        reduction: str | None = "sum_over_batch_size",
        name: str = "triplet",
    ):
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.margin = float(check_number("margin", margin, above=0, maximum=4))

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns one value per example."""
        return triplet_semi_hard(y_true, y_pred, self.margin)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "margin": self.margin}

"""Sums and gathers over the replicas of a `tf.distribute` strategy.

The only module here that knows about distribution. Outside a replica of a strategy with several
replicas (eager use, one device, tracing a model's shapes) both functions return their input.
Both are differentiable: the gradient that reaches an input is the sum of the gradients that the
*sum over replicas* of the losses sends to it. Keras divides every replica's loss by the number of
replicas and adds the replicas' gradients, so what is computed from these sums and gathers has the
gradient of one replica holding the whole batch.
"""

import tensorflow as tf


def _context() -> tf.distribute.ReplicaContext | None:
    """Returns the replica context if there are other replicas to talk to."""
    context = tf.distribute.get_replica_context()  # None in cross-replica context
    return context if context is not None and context.num_replicas_in_sync > 1 else None


def all_reduce_sum(*tensors: tf.Tensor) -> list[tf.Tensor]:
    """Returns each tensor summed over the replicas."""
    context = _context()
    if context is None:
        return list(tensors)
    return context.all_reduce(tf.distribute.ReduceOp.SUM, list(tensors))


def all_gather(labels: tf.Tensor, embeddings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Concatenates the batches of all replicas, which may differ in size.

    Args:
        labels: (batch,) tensor.
        embeddings: (batch, d) tensor; gradients flow back to the replica that each row came from.

    Returns:
        The labels and the embeddings of the global batch, in the order of the replicas, and the
        place of this replica's first row in it.
    """
    context = _context()
    if context is None:
        return labels, embeddings, tf.constant(0)
    # Each label travels with the number of its replica: one gather instead of two.
    replica = context.replica_id_in_sync_group
    tagged = tf.stack([labels, tf.fill(tf.shape(labels), tf.cast(replica, labels.dtype))], axis=1)
    tagged = tf.stop_gradient(context.all_gather(tf.stop_gradient(tagged), axis=0))
    embeddings = context.all_gather(embeddings, axis=0)
    before = tf.cast(tagged[:, 1], tf.int32) < tf.cast(replica, tf.int32)
    return tagged[:, 0], embeddings, tf.math.count_nonzero(before, dtype=tf.int32)

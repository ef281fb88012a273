"""Sums and gathers over the replicas of a `tf.distribute` strategy.

The only module here that knows about distribution. Outside a replica of a strategy with several
replicas (eager use, one device, tracing a model's shapes) its functions return their input.

Sums and gathers are differentiable: the gradient that reaches an input is that of the losses of all
replicas together. Keras divides every replica's loss by the number of replicas and adds up the
replicas' gradients, so that a loss computed from these sums and gathers has the gradients of one
replica that holds the whole batch.
"""

import threading
from collections.abc import Iterable

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
    return list(context.all_reduce(tf.distribute.ReduceOp.SUM, list(tensors)))


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


def mark_as_own(tensor: tf.Tensor) -> tf.Tensor:
    """Marks a tensor as made by this replica, for `only_own`, and returns it."""
    tensor._replica_thread = threading.get_ident()
    return tensor


def only_own(tensors: Iterable[tf.Tensor]) -> list[tf.Tensor]:
    """Returns those tensors that this replica has marked as its own.

    The replicas of a `MirroredStrategy` are threads that share the Python objects of the model, and
    take turns at every communication. What one of them appends to a list, the others find there.
    """
    if _context() is None:
        return list(tensors)
    here = threading.get_ident()
    return [tensor for tensor in tensors if getattr(tensor, "_replica_thread", None) == here]

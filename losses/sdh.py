"""Sparse Deep Hashing: optimal hash codes for a batch, and the metric loss that they mask.

Jeong & Song, "Efficient end-to-end learning for quantizable representations" (ICML 2018), which the
paper compares with, alternates two steps on every batch:

1. Given the embeddings, find the best hash code for each class, while classes share as few bits as
possible (`optimal_codes`).
2. Given the codes, take a gradient step of a metric loss on a distance that sees the active bits
   alone (`hash_distances`, `sdh_triplet`).

At retrieval the code of an image is its k largest dimensions (`sparse_embed.retrieval.hash_codes`).

The paper leaves three choices open. They follow Jeong & Song's own code: the loss is their triplet
loss (which the paper uses on CIFAR-100), its margin is 0.1, and the pairwise cost counts each pair
of classes once (their equation sums over ordered pairs, which is the same with half the cost).
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparse_embed.common.checks import check_number
from sparse_embed.losses.triplet import global_batch, semi_hard_cost

_UNITS = 1_000_000  # per 1.0 of cost, since flows have integer costs


def optimal_codes(
    embeddings: np.ndarray, labels: np.ndarray, active_bits: int, pairwise_cost: float = 0.1
) -> np.ndarray:
    """Returns the active bits of each example's class, by a minimum-cost flow.

    With c_p the mean embedding of class p, codes z_p in {0, 1}^d minimise

        sum_p -<c_p, z_p> + pairwise_cost * sum_{p < q} <z_p, z_q>,   sum_j z_pj = active_bits.

    Args:
        embeddings: (n, d).
        labels: (n,) class numbers.
        active_bits: k, how many bits of a code are ones.
        pairwise_cost: cost of each bit that two classes share.

    Returns:
        (n, active_bits) int32, ascending dimensions; the same for all examples of a class.
    """
    embeddings, labels = np.asarray(embeddings), np.asarray(labels)
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
        raise ValueError(
            f"embeddings of shape {embeddings.shape} and labels of shape {labels.shape}: expected "
            "(n, d) and (n,)"
        )
    check_number("active_bits", active_bits, integer=True, minimum=1, maximum=embeddings.shape[1])
    check_number("pairwise_cost", pairwise_cost, minimum=0)
    if not np.isfinite(embeddings).all():
        raise ValueError("embeddings hold a value that is NaN or infinite")
    classes, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    means = np.zeros((len(classes), embeddings.shape[1]))
    np.add.at(means, inverse, embeddings)
    means /= counts[:, None]
    return _assign(means, active_bits, pairwise_cost)[inverse]


def _assign(means: np.ndarray, active_bits: int, pairwise_cost: float) -> np.ndarray:
    """The optimal active bits (classes, active_bits) given the classes' means.

    A flow of `active_bits` from each class node over arcs (p, j) of capacity 1 and cost -c_pj to
    bits, and on to the sink over arcs of capacity 1 that cost 0, 1, 2, ... times the pairwise cost:
    the m-th class that takes a bit shares it with m - 1 others.
    """
    from ortools.graph.python import min_cost_flow

    classes, bits = means.shape
    if classes == 0:
        return np.zeros((0, active_bits), np.int32)
    levels = _most_classes_per_bit(means, active_bits, pairwise_cost)
    sink = classes + bits
    bit_nodes = classes + np.arange(bits)
    flow = min_cost_flow.SimpleMinCostFlow()
    choices = flow.add_arcs_with_capacity_and_unit_cost(
        np.repeat(np.arange(classes), bits),
        np.tile(bit_nodes, classes),
        np.ones(means.size, np.int64),
        np.rint(-_UNITS * means).astype(np.int64).ravel(),
    )
    flow.add_arcs_with_capacity_and_unit_cost(
        np.repeat(bit_nodes, levels),
        np.full(bits * levels, sink),
        np.ones(bits * levels, np.int64),
        np.tile(np.arange(levels) * round(_UNITS * pairwise_cost), bits),
    )
    flow.set_nodes_supplies(np.arange(classes), np.full(classes, active_bits))
    flow.set_node_supply(sink, -classes * active_bits)
    status = flow.solve()
    if status != flow.OPTIMAL:
        raise RuntimeError(f"the minimum-cost flow of {classes} classes and {bits} bits: {status}")
    chosen = flow.flows(choices).reshape(classes, bits) > 0
    return np.nonzero(chosen)[1].reshape(classes, active_bits).astype(np.int32)


def _most_classes_per_bit(means: np.ndarray, active_bits: int, pairwise_cost: float) -> int:
    """A bound on how many classes share a bit in an optimal assignment: fewer arcs to the sink.

    Let m of n classes share bit j, p one of them. Among the d - k bits that p does not have, one is
    taken by at most l = nk / (d - k) classes. Were p to move there from j, it would save m - 1 - l
    times the pairwise cost and lose at most the spread of c_p: m <= 1 + l + spread / cost.
    """
    classes: int
    bits: int
    classes, bits = means.shape
    if pairwise_cost == 0 or active_bits == bits:
        return classes
    others = classes * active_bits / (bits - active_bits)
    spread = np.ptp(means, axis=1).max() / pairwise_cost
    return int(min(classes, 2 + others + spread))


def hash_distances(a: tf.Tensor, bits_a: tf.Tensor, b: tf.Tensor, bits_b: tf.Tensor) -> tf.Tensor:
    """Returns the (len(a), len(b)) L1 distances over the bits active in either code.

    D_ij = sum over q in (bits of i or bits of j) of |a_iq - b_jq|. Only 2 k of the d differences
    are computed for each pair.

    Args:
        a: (m, d) embeddings.
        bits_a: (m, k) their active bits.
        b: (n, d) embeddings.
        bits_b: (n, k) their active bits.
    """
    shared = tf.reduce_any(tf.equal(bits_a[:, :, None, None], bits_b[None, None]), axis=3)
    own = tf.gather(a, bits_a, batch_dims=1)[:, :, None] - tf.gather(tf.transpose(b), bits_a)
    theirs = tf.gather(b, bits_b, batch_dims=1)[:, :, None] - tf.gather(tf.transpose(a), bits_b)
    once = tf.where(shared, tf.zeros_like(own), tf.abs(own))  # shared bits are among theirs
    return tf.reduce_sum(once, axis=1) + tf.transpose(tf.reduce_sum(tf.abs(theirs), axis=1))


def sdh_triplet(
    labels: Any,
    embeddings: Any,
    active_bits: int,
    pairwise_cost: float = 0.1,
    margin: float = 0.1,
) -> tf.Tensor:
    """Returns the share of each anchor in the semi-hard triplet loss on hash distances.

    As `triplet_semi_hard`, with `hash_distances` under the codes of `optimal_codes` in place of
    squared Euclidean distances. Each replica finds the codes of the global batch for itself; no
    gradient flows through them.

    Args:
        labels: (batch,) or (batch, 1) class numbers.
        embeddings: (batch, d) unit-norm rows.
        active_bits: k.
        pairwise_cost: cost of each bit that two classes share.
        margin: least gap between the two distances.

    Returns:
        (batch,) tensor, in the dtype of `embeddings` but at least float32.
    """
    labels, embeddings, all_labels, all_embeddings, first = global_batch(labels, embeddings)

    def solve(rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        # Broken embeddings make the loss broken too, and guards watch the loss.
        return optimal_codes(np.nan_to_num(rows), classes, active_bits, pairwise_cost)

    all_bits = tf.numpy_function(solve, [all_embeddings, all_labels], tf.int32, stateful=False)
    all_bits = tf.ensure_shape(all_bits, [None, active_bits])
    bits = all_bits[first : first + tf.shape(labels)[0]]
    distances = hash_distances(embeddings, bits, all_embeddings, all_bits)
    return semi_hard_cost(labels, all_labels, first, distances, margin)


@keras.saving.register_keras_serializable(package="sparse_embed")
class SDHLoss(keras.losses.Loss):
    """`sdh_triplet` as a Keras loss on (labels, embeddings), one value per anchor.

    Computes in float32 whatever the precision of the embeddings, and calls a solver from the graph:
    compile with `jit_compile=False`.

    Args:
        active_bits: k, how many bits of a code are ones. The paper: 3; for CIFAR-100 1 to 3.
        pairwise_cost: cost of each bit that two classes share. The paper: 0.1.
        margin: above 0. Jeong & Song: 0.1.
        reduction: see `keras.losses.Loss`.
        name: name of the loss.
    """

    def __init__(
        self,
        active_bits: int = 3,
        pairwise_cost: float = 0.1,
        margin: float = 0.1,
        reduction: str | None = "sum_over_batch_size",
        name: str = "sdh",
    ):
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.active_bits = int(check_number("active_bits", active_bits, integer=True, minimum=1))
        self.pairwise_cost = float(check_number("pairwise_cost", pairwise_cost, minimum=0))
        self.margin = float(check_number("margin", margin, above=0))

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns one value per example."""
        return sdh_triplet(y_true, y_pred, self.active_bits, self.pairwise_cost, self.margin)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {
            **super().get_config(),
            "active_bits": self.active_bits,
            "pairwise_cost": self.pairwise_cost,
            "margin": self.margin,
        }

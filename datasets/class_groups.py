"""Batches in which examples of one class come together, for losses that compare pairs."""

import numpy as np
import tensorflow as tf

from sparse_embed.common.checks import check_number
from sparse_embed.datasets.examples import Pick, shuffle_index, shuffled


def class_groups(labels: np.ndarray, per_class: int) -> Pick:
    """Returns the order of a stream in which `per_class` examples of one class follow each other.

    Each pass divides a class of n examples anew into floor(n / per_class) groups, and shuffles the
    groups of all classes together. No example comes twice in a pass; those left over come in
    another one. Classes with fewer than `per_class` examples are left out. Like `shuffled`, the
    order is a function of position and seed alone.

    Args:
        labels: (n,) class of each example.
        per_class: examples per group.
    """
    check_number("per_class", per_class, integer=True, minimum=1)
    by_class = tf.constant(np.argsort(labels, kind="stable"))
    counts = np.bincount(labels)
    groups = counts // per_class
    total_groups = int(groups.sum())
    if total_groups == 0:
        raise ValueError(
            f"per_class={per_class}: expected at most {counts.max(initial=0)}, the size of the "
            "largest class"
        )
    first = tf.constant(np.cumsum(counts) - counts)  # of each class, in by_class
    class_of_group = np.repeat(np.arange(len(counts)), groups)
    number_in_class = tf.constant(
        np.arange(total_groups) - np.repeat(np.cumsum(groups) - groups, groups)
    )
    last, class_of_group = tf.constant(counts - 1), tf.constant(class_of_group)

    def pick(positions: tf.Tensor, total: int, seed: int) -> tf.Tensor:
        del total
        places = positions // per_class
        group = shuffled(places, total_groups, seed)
        of = tf.gather(class_of_group, group)
        member = tf.gather(number_in_class, group) * per_class + positions % per_class
        member = shuffle_index(member, tf.gather(last, of), seed, places // total_groups, of + 1)
        return tf.gather(by_class, tf.gather(first, of) + member)

    return pick

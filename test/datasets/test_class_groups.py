import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.datasets.class_groups import class_groups
from sparse_embed.datasets.examples import ArraySource, Examples

COUNTS = [7, 1, 4, 0, 9, 2]  # of classes 0 to 5
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(6), COUNTS))
GROUPS = 2 + 0 + 1 + 0 + 3 + 0  # of three
ORDER = class_groups(LABELS, 3)


def one_pass(number, seed=0):
    """The groups of a pass, (groups, 3)."""
    positions = tf.range(3 * GROUPS, dtype=tf.int64) + 3 * GROUPS * number
    return ORDER(positions, len(LABELS), seed).numpy().reshape(GROUPS, 3)


@pytest.mark.parametrize("number", [0, 1, 17])
def test_a_pass_has_each_example_at_most_once_and_groups_of_one_class(number):
    groups = one_pass(number)
    assert len(np.unique(groups)) == groups.size
    classes = LABELS[groups]
    assert (classes == classes[:, :1]).all()
    np.testing.assert_array_equal(np.bincount(classes[:, 0], minlength=6), [2, 0, 1, 0, 3, 0])


def test_passes_and_seeds_differ_and_in_the_end_all_examples_came():
    groups = np.concatenate([one_pass(number) for number in range(40)])
    assert set(groups.ravel()) == set(np.flatnonzero(np.isin(LABELS, [0, 2, 4])))
    firsts = LABELS[groups[::GROUPS, 0]]
    assert set(firsts) == {0, 2, 4}  # the order of the groups changes
    together = {frozenset(group) for group in groups if LABELS[group[0]] == 4}
    assert len(together) > 50  # of (9 choose 3) = 84 ways, about 64 in 120 draws
    assert not np.array_equal(one_pass(0), one_pass(0, seed=1))


def test_batches_follow_the_order_from_any_step():
    rows = np.arange(len(LABELS), dtype=np.float32)[:, None]
    examples = Examples(
        "rows", (1,), ArraySource(rows), np.arange(len(LABELS)), LABELS.astype(np.int32), ("",) * 6
    )
    batches = list(examples.training_batches(6, 5, 0, ORDER).take(4))
    later = next(iter(examples.training_batches(6, 5, 2, ORDER)))
    for values, expected in zip(later, batches[2], strict=True):
        np.testing.assert_array_equal(values, expected)
    for drawn, labels in batches:
        np.testing.assert_array_equal(LABELS[drawn.numpy().astype(int)[:, 0]], labels)
        assert len(set(labels[:3].numpy())) == len(set(labels[3:].numpy())) == 1


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="per_class=10: expected at most 9, the size of the"):
        class_groups(LABELS, 10)
    with pytest.raises(ValueError, match="per_class=0: expected an integer >= 1"):
        class_groups(LABELS, 0)

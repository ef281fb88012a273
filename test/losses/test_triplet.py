import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_embed.losses import TripletSemiHardLoss, triplet_semi_hard


def brute_force(labels, embeddings, margin):
    """FaceNet's semi-hard mining with loops: the values of the anchors."""
    n = len(labels)

    def squared(i, j):
        return float(np.sum((embeddings[i] - embeddings[j]) ** 2))

    costs, pairs = np.zeros(n), 0
    for a in range(n):
        for p in range(n):
            if p == a or labels[p] != labels[a]:
                continue
            negatives = [squared(a, x) for x in range(n) if labels[x] != labels[a]]
            if not negatives:
                continue
            further = [distance for distance in negatives if distance > squared(a, p)]
            chosen = min(further) if further else max(negatives)
            costs[a] += max(squared(a, p) - chosen + margin, 0.0)
            pairs += 1
    return costs * n / pairs if pairs else costs


def unit_rows(rng, n, d):
    x = rng.normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 14),
    st.integers(1, 5),
    st.floats(0.01, 2.0),
)
@settings(max_examples=60)
def test_against_loops(seed, n, classes, margin):
    rng = np.random.default_rng(seed)
    labels, embeddings = rng.integers(0, classes, n), unit_rows(rng, n, 3)
    values = triplet_semi_hard(labels, embeddings, margin)
    assert values.shape == (n,)
    np.testing.assert_allclose(values, brute_force(labels, embeddings, margin), atol=1e-9)


def test_by_hand():
    """Points on the unit circle; squared distances 2 - 2 cos(angle between).

    A = 0deg and B = 60deg are of class 0, C = 90deg and D = 180deg of class 1. D(A,B) = 1,
    D(A,C) = 2, D(A,D) = 4, D(B,C) = 2 - sqrt(3) = 0.2679492, D(B,D) = 3, D(C,D) = 2.
    With margin 1.5:
    (A,B): nearest negative further than 1 is C: 1 - 2 + 1.5 = 0.5.
    (B,A): C is nearer than A, so D: 1 - 3 + 1.5 < 0: 0.
    (C,D): negatives A at 2 (not further than 2) and B: none further, furthest is A:
           2 - 2 + 1.5 = 1.5.
    (D,C): A at 4, B at 3: B: 2 - 3 + 1.5 = 0.5.
    Four examples, four pairs: the values are the sums themselves.
    """
    angles = np.deg2rad([0, 60, 90, 180])
    embeddings = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    # cos 90deg must be exactly 0, so that A and D are equally far from C.
    embeddings = np.round(embeddings, 15)
    values = triplet_semi_hard([0, 0, 1, 1], embeddings, 1.5)
    np.testing.assert_allclose(values, [0.5, 0.0, 1.5, 0.5], atol=1e-12)
    loss = TripletSemiHardLoss(1.5)([0, 0, 1, 1], embeddings)
    assert float(loss) == pytest.approx(2.5 / 4, abs=1e-6)


def test_mean_over_the_batch_is_the_mean_over_pairs():
    """Class sizes 3, 2 and 1 make 3 * 2 + 2 * 1 = 8 ordered pairs of 6 examples."""
    rng = np.random.default_rng(0)
    labels, embeddings = np.array([0, 0, 0, 1, 1, 2]), unit_rows(rng, 6, 3)
    costs = brute_force(labels, embeddings, 0.2) * 8 / 6
    assert float(TripletSemiHardLoss(0.2)(labels, embeddings)) == pytest.approx(costs.sum() / 8)


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [5, 5, 5, 5]])
def test_without_pairs_or_without_negatives_it_costs_nothing(labels):
    x = tf.constant(unit_rows(np.random.default_rng(1), 4, 3))
    with tf.GradientTape() as tape:
        tape.watch(x)
        values = triplet_semi_hard(labels, x, 0.2)
    np.testing.assert_array_equal(values, np.zeros(4))
    np.testing.assert_array_equal(tape.gradient(values, x), np.zeros((4, 3)))


def test_equal_and_zero_embeddings_have_finite_gradients():
    x = tf.constant([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        values = triplet_semi_hard([0, 0, 1, 1], x, 0.2)
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(tape.gradient(values, x)))


def test_gradient_against_finite_differences():
    rng = np.random.default_rng(2)
    labels, embeddings = rng.integers(0, 3, 9), unit_rows(rng, 9, 4)
    theory, numeric = tf.test.compute_gradient(
        lambda x: triplet_semi_hard(labels, x, 0.5), [tf.constant(embeddings)], delta=1e-6
    )
    assert np.abs(theory[0]).max() > 0.1
    np.testing.assert_allclose(theory[0], numeric[0], rtol=1e-5, atol=1e-7)


def test_half_precision_embeddings_are_computed_in_float32():
    rng = np.random.default_rng(3)
    labels, embeddings = rng.integers(0, 3, 12), unit_rows(rng, 12, 8).astype(np.float16)
    loss = TripletSemiHardLoss(0.2, reduction=None)
    values = loss(labels[:, None], tf.constant(embeddings))
    assert values.dtype == tf.float32
    expected = brute_force(labels, embeddings.astype(np.float64), 0.2)
    np.testing.assert_allclose(values, expected, atol=1e-5)


@pytest.mark.parametrize("margin", [0.0, -0.2, 4.1, float("nan")])
def test_bad_margin(margin):
    with pytest.raises(ValueError, match=r"margin=.*expected a finite number > 0 <= 4"):
        TripletSemiHardLoss(margin)


def test_config_round_trip():
    loss = TripletSemiHardLoss.from_config(TripletSemiHardLoss(0.3).get_config())
    assert (loss.margin, loss.name) == (0.3, "triplet")


def test_a_negative_as_far_as_the_positive_is_not_further():
    """Points of a grid, many of them equally far from each other."""
    ties = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        labels, points = rng.integers(0, 3, 10), rng.integers(0, 3, (10, 2)).astype(float)
        values = triplet_semi_hard(labels, points, 2.0)
        np.testing.assert_allclose(values, brute_force(labels, points, 2.0), atol=1e-12)
        squares = np.square(points[:, None] - points).sum(axis=2)
        same = labels[:, None] == labels
        ties += sum(np.isin(d[s], d[~s]).any() for d, s in zip(squares, same, strict=True))
    assert ties > 100

"""Verification against brute force: loops over every pair and every threshold."""

import itertools

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval.pair_verification import (
    pair_scores,
    verification,
    verification_of_scores,
)


def unit(x):
    return (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def tied_scores(seed, count=87):
    """Scores in steps of a tenth, so that both kinds of pairs tie; 87 pairs make unequal folds."""
    rng = np.random.default_rng(seed)
    same = rng.random(count) < 0.5
    scores = np.round(rng.normal(size=count) + 1.2 * same, 1).astype(np.float32)
    return scores, same


def rates(scores, same, threshold):
    accepted = [score >= threshold for score in scores]
    tpr = np.mean([yes for yes, is_same in zip(accepted, same, strict=True) if is_same])
    fpr = np.mean([yes for yes, is_same in zip(accepted, same, strict=True) if not is_same])
    return fpr, tpr


def accuracy(scores, same, threshold):
    pairs = zip(scores, same, strict=True)
    return np.mean([(score >= threshold) == is_same for score, is_same in pairs])


@pytest.mark.parametrize("seed", range(4))
def test_folds_against_brute_force(seed):
    scores, same = tied_scores(seed)
    result = verification_of_scores(scores, same, fars=(0.05, 0.2))
    folds = np.array_split(np.arange(87), 10)
    assert [len(fold) for fold in folds] == [9] * 7 + [8] * 3
    expected, at_far = [], {0.05: [], 0.2: []}
    for number, fold in enumerate(folds):
        others = [i for i in range(87) if i not in fold]
        levels = sorted(set(scores[others].tolist()))
        cuts = [-np.inf, *[(a + b) / 2 for a, b in itertools.pairwise(levels)], np.inf]
        best = max(cuts, key=lambda cut: (accuracy(scores[others], same[others], cut), cut))
        assert result.fold_thresholds[number] == pytest.approx(best, abs=1e-6)
        expected.append(accuracy(scores[fold], same[fold], best))
        for far, values in at_far.items():
            allowed = [
                level
                for level in [*levels, np.inf]
                if rates(scores[others], same[others], level)[0] <= far
            ]
            values.append(rates(scores[fold], same[fold], min(allowed)))
    np.testing.assert_allclose(result.fold_accuracies, expected)
    assert result.accuracy == pytest.approx(np.mean(expected))
    assert result.accuracy_std == pytest.approx(np.std(expected))
    for far, values in at_far.items():
        fprs, tprs = zip(*values, strict=True)
        assert result.val_at_far[far] == pytest.approx((np.mean(tprs), np.std(tprs), np.mean(fprs)))


@pytest.mark.parametrize("seed", range(4))
def test_curve_against_brute_force(seed):
    scores, same = tied_scores(seed)
    result = verification_of_scores(scores, same, fars=(0.0, 0.03, 0.5))
    levels = [np.inf, *sorted(set(scores.tolist()), reverse=True)]
    np.testing.assert_allclose(result.roc.thresholds, levels)
    points = [rates(scores, same, level) for level in levels]
    np.testing.assert_allclose(np.transpose(points), [result.roc.fpr, result.roc.tpr])
    for far, tar in result.tar_at_far.items():
        assert tar == pytest.approx(max(tpr for fpr, tpr in points if fpr <= far))


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("flip", [False, True])
def test_scores_dense_and_sparse(kind, flip):
    rng = np.random.default_rng(0)
    rows, mirrored = (unit(np.maximum(rng.normal(size=(40, 6)), 0)) for _ in range(2))
    rows[4] = mirrored[4] = 0  # an image without any active dimension is like nothing
    scores = pair_scores(kind(rows), kind(mirrored) if flip else None)
    for i in range(20):
        a, b = rows[2 * i], rows[2 * i + 1]
        expected = a @ b
        if flip:
            a, b = a + mirrored[2 * i], b + mirrored[2 * i + 1]
            norms = np.linalg.norm(a) * np.linalg.norm(b)
            expected = a @ b / norms if norms else 0
        assert scores[i] == pytest.approx(expected, abs=1e-6)
    same = np.arange(20) % 2 == 0
    result = verification(kind(rows), same, kind(mirrored) if flip else None)
    np.testing.assert_array_equal(result.scores, scores)


def test_embeddings_that_tell_identities_apart_are_always_right():
    rows = np.eye(40)[np.repeat(np.arange(40), 2)]  # 40 pairs of one identity each
    rows[41::2] = np.roll(rows[41::2], 1, axis=0)  # the last 20 of two
    order = np.arange(40).reshape(2, 20).T.ravel()  # alternating
    rows = rows.reshape(40, 2, 40)[order].reshape(80, 40)
    result = verification(rows, order < 20)
    assert result.accuracy == 1.0
    assert result.val_at_far[1e-3] == (1.0, 0.0, 0.0)
    assert result.tar_at_far[1e-3] == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"same": np.ones(3, bool)}, r"same of shape \(3,\): expected one per row of pairs"),
        ({"same": np.arange(20)}, "same has dtype int64: expected bool"),
        ({"same": np.ones(20, bool)}, "all pairs outside fold 0 are of one kind"),
        ({"embeddings": np.eye(39)}, r"embeddings of shape \(39, 39\): expected two rows per pair"),
        ({"embeddings": np.zeros((0, 4))}, "expected two rows per pair, and at least one pair"),
        ({"embeddings": 2 * np.eye(40)}, "embeddings: row 0 has norm 2: expected"),
        ({"flipped": np.eye(38)}, r"flipped of shape \(38, 38\): expected \(40, 40\)"),
        ({"flipped": 3 * np.eye(40)}, "flipped: row 0 has norm 3"),
        ({"folds": 1}, "folds=1: expected an integer >= 2"),
        ({"fars": (2,)}, "fars=2: expected a finite number >= 0 <= 1"),
    ],
)
def test_mistakes_are_named(change, message):
    good = {"embeddings": np.eye(40), "same": np.arange(20) % 2 == 0}
    verification(**good)
    with pytest.raises(ValueError, match=message):
        verification(**(good | change))

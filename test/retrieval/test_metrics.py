import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval import DenseSearch
from sparse_embed.retrieval.metrics import (
    check_labels,
    check_unit_norm,
    drop_self,
    has_mate,
    precision_at_k,
    recall_at_k,
)


def test_recall_by_hand():
    """Database classes 0 0 1 1 2. Query 0 (class 0) finds class 1, then 0: a hit at 2, not at 1.

    Query 1 (class 2) finds nothing; query 2 (class 1) finds class 1 at once.
    """
    labels = np.array([0, 0, 1, 1, 2])
    ids = np.array([[3, 1], [-1, -1], [2, 4]])
    query_labels = np.array([0, 2, 1])
    assert recall_at_k(ids, query_labels, labels, 1) == pytest.approx(1 / 3)
    assert recall_at_k(ids, query_labels, labels) == pytest.approx(1 / 3)
    assert recall_at_k(ids, query_labels, labels, 2) == pytest.approx(2 / 3)


def test_drop_self_removes_the_query_or_else_the_last():
    ids = np.array([[10, 4, 7], [3, 11, 12], [5, 6, 8]])
    scores = np.array([[0.9, 0.5, 0.1], [0.8, 0.7, 0.6], [0.3, 0.2, 0.1]])
    kept_scores, kept_ids = drop_self(scores, ids, first=10)
    np.testing.assert_array_equal(kept_ids, [[4, 7], [3, 12], [5, 6]])
    np.testing.assert_array_equal(kept_scores, [[0.5, 0.1], [0.8, 0.6], [0.3, 0.2]])


def test_has_mate():
    labels = np.array([7, 3, 7, 5])
    np.testing.assert_array_equal(has_mate(labels), [True, False, True, False])
    np.testing.assert_array_equal(
        has_mate(labels, np.array([5, 5, 1])), [False, False, False, True]
    )


def test_precision_by_hand():
    """Database classes 0 0 1 1 2. Query 0 (class 0) finds classes 1, 0: half. Query 1 (class 2)
    finds one row, of class 2: half, as the empty place counts. Query 2 (class 1) finds 1, 1."""
    labels = np.array([0, 0, 1, 1, 2])
    ids = np.array([[3, 1, 0], [4, -1, -1], [2, 3, 4]])
    query_labels = np.array([0, 2, 1])
    assert precision_at_k(ids, query_labels, labels, 2) == pytest.approx((0.5 + 0.5 + 1) / 3)
    assert precision_at_k(ids, query_labels, labels, 3) == pytest.approx((2 + 1 + 2) / 9)


def test_precision_among_the_others_against_brute_force():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 60)
    rows = rng.normal(size=(5, 8))[labels] + rng.normal(size=(60, 8))
    _, ids = drop_self(*DenseSearch(rows).search(rows, 5))
    share = 0.0
    for i in range(60):
        others = sorted(set(range(60)) - {i}, key=lambda j: -(rows[i] @ rows[j]))
        share += np.mean([labels[j] == labels[i] for j in others[:4]]) / 60
    assert precision_at_k(ids, labels, labels, 4) == pytest.approx(share)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array, np.float16])
def test_unit_norm(kind):
    rows = np.eye(70_000, 3)  # more than one block of rows, and zero from row 3 on
    check_unit_norm("rows", kind(rows))
    with pytest.raises(ValueError, match="rows: row 3 has norm 0: expected"):
        check_unit_norm("rows", kind(rows), zero_rows=False)
    rows[66_000] = 0.5, 0, 0
    with pytest.raises(ValueError, match=r"rows: row 66000 has norm 0\.5: expected"):
        check_unit_norm("rows", kind(rows))
    rows[0] = 2, 0, 0  # the first that is wrong is named
    with pytest.raises(ValueError, match=r"rows: row 0 has norm 2: expected"):
        check_unit_norm("rows", kind(rows))


def test_mistakes_are_named():
    with pytest.raises(
        ValueError, match=r"labels of shape \(2,\): expected one per row of x, \(3,\)"
    ):
        check_labels("labels", [1, 2], 3, "x")
    ids = np.zeros((2, 3), int)
    with pytest.raises(ValueError, match=r"ids of shape \(0, 3\): expected \(queries, results\)"):
        precision_at_k(ids[:0], np.zeros(0), np.zeros(5), 1)
    with pytest.raises(ValueError, match="ids holds 5: expected less than 5, the number of data"):
        precision_at_k(ids + 5, np.zeros(2), np.zeros(5), 1)
    with pytest.raises(ValueError, match="k=4: expected 1 to 3"):
        recall_at_k(ids, np.zeros(2), np.zeros(5), 4)
    with pytest.raises(ValueError, match="ids has 2 rows"):
        recall_at_k(ids, np.zeros(3), np.zeros(5))

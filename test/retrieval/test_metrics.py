import numpy as np
import pytest

from sparse_embed.retrieval.metrics import drop_self, has_mate, recall_at_k


def test_recall_by_hand():
    """Database classes 0 0 1 1 2. Query 0 (class 0) finds class 1, then 0: a hit at 2, not at 1.

    Query 1 (class 2) finds nothing; query 2 (class 1) finds class 1 at once.
    """
    labels = np.array([0, 0, 1, 1, 2])
    ids = np.array([[3, 1], [-1, -1], [2, 4]])
    query_labels = np.array([0, 2, 1])
    assert recall_at_k(ids, query_labels, labels, 1) == pytest.approx(1 / 3)
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


def test_mistakes_are_named():
    ids = np.zeros((2, 3), int)
    with pytest.raises(ValueError, match="k=4: expected 1 to 3"):
        recall_at_k(ids, np.zeros(2), np.zeros(5), 4)
    with pytest.raises(ValueError, match="ids has 2 rows"):
        recall_at_k(ids, np.zeros(3), np.zeros(5))

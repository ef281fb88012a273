import numpy as np
import pytest

from sparse_embed.retrieval import DenseSearch


def brute_force(database, queries, k, threshold):
    """Sorts all pairs with Python's sort, by falling score and then rising id."""
    scores = np.full((len(queries), k), -np.inf, np.float32)
    ids = np.full((len(queries), k), -1)
    for row, query in enumerate(queries):
        ranked = sorted((-float(vector @ query), i) for i, vector in enumerate(database))
        kept = [(-s, i) for s, i in ranked if threshold is None or -s >= threshold][:k]
        for place, (score, i) in enumerate(kept):
            scores[row, place], ids[row, place] = score, i
    return scores, ids


@pytest.mark.parametrize("threshold", [None, 2.0])
@pytest.mark.parametrize("k", [1, 5, 40, 60])
def test_against_brute_force_with_many_ties(k, threshold):
    rng = np.random.default_rng(k)
    # Small whole numbers: exact in float32, and full of equal scores.
    database = rng.integers(-2, 3, (40, 6)).astype(np.float32)
    queries = rng.integers(-2, 3, (15, 6)).astype(np.float32)
    scores, ids = DenseSearch(database).search(queries, k, threshold)
    expected_scores, expected_ids = brute_force(database, queries, k, threshold)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(scores, expected_scores)


def test_queries_beyond_one_block(monkeypatch):
    monkeypatch.setattr("sparse_embed.retrieval.dense._BLOCK_BYTES", 4 * 30 * 7)
    rng = np.random.default_rng(0)
    database = rng.normal(size=(30, 8)).astype(np.float32)
    queries = rng.normal(size=(20, 8)).astype(np.float32)
    _, ids = DenseSearch(database).search(queries, 3)
    np.testing.assert_array_equal(ids, np.argsort(-(queries @ database.T), axis=1)[:, :3])


def test_mistakes_are_named():
    search = DenseSearch(np.zeros((3, 4), np.float32))
    with pytest.raises(ValueError, match=r"queries of shape \(1, 5\): expected \(n, 4\)"):
        search.search(np.zeros((1, 5), np.float32))
    with pytest.raises(ValueError, match="k=0"):
        search.search(np.zeros((1, 4), np.float32), 0)
    with pytest.raises(ValueError, match=r"database of shape \(3,\)"):
        DenseSearch(np.zeros(3, np.float32))

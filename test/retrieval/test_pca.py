import numpy as np
import pytest

from sparse_embed.retrieval import DenseSearch, PCASearch


def unit(rng, rows, dims):
    # Axes of falling length, rotated, and a mean that is not zero.
    x = rng.normal(size=(rows, dims)) * 0.8 ** np.arange(dims)
    x = x @ np.linalg.qr(rng.normal(size=(dims, dims)))[0] + 0.3
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_against_singular_vectors(threshold):
    rng = np.random.default_rng(0)
    database, queries = unit(rng, 300, 16), unit(rng, 9, 16)
    centred = database.astype(np.float64) - database.mean(axis=0, dtype=np.float64)
    directions = np.linalg.svd(centred)[2][:5].T
    expected = (queries @ directions) @ (database @ directions).T
    scores, ids = PCASearch(database, 5).search(queries, 40, threshold)
    for row in range(len(queries)):
        ranked = np.argsort(-expected[row], kind="stable")[:40]
        if threshold is not None:
            ranked = ranked[expected[row, ranked] >= threshold]
        np.testing.assert_array_equal(ids[row, : len(ranked)], ranked)
        np.testing.assert_allclose(scores[row, : len(ranked)], expected[row, ranked], atol=1e-5)
        assert (ids[row, len(ranked) :] == -1).all()
        assert (scores[row, len(ranked) :] == -np.inf).all()


def test_all_directions_give_exhaustive_search():
    rng = np.random.default_rng(1)
    database, queries = unit(rng, 200, 12), unit(rng, 7, 12)
    search = PCASearch(database, 12)
    scores, ids = search.search(queries, 10)
    expected, expected_ids = DenseSearch(database).search(queries, 10)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert search.shape == (200, 12)
    assert PCASearch(database, 5).settings == {"dims": 5}
    assert search.nbytes == 4 * (200 * 12 + 12 * 12)


def test_database_beyond_one_block(monkeypatch):
    rng = np.random.default_rng(2)
    database, queries = unit(rng, 100, 8), unit(rng, 5, 8)
    whole = PCASearch(database, 3).search(queries, 4)
    monkeypatch.setattr("sparse_embed.retrieval.pca._BLOCK", 30)
    np.testing.assert_allclose(PCASearch(database, 3).search(queries, 4)[0], whole[0], atol=1e-5)


def test_mistakes_are_named():
    rng = np.random.default_rng(3)
    database = unit(rng, 20, 8)
    with pytest.raises(ValueError, match="dims=9: expected an integer >= 1 <= 8"):
        PCASearch(database, 9)
    with pytest.raises(ValueError, match=r"dense of shape \(0, 8\): expected at least one row"):
        PCASearch(database[:0], 2)
    with pytest.raises(ValueError, match=r"queries of shape \(1, 7\)"):
        PCASearch(database, 2).search(database[:1, :7])
    longer = database.copy()
    longer[13] *= 2
    with pytest.raises(ValueError, match="dense: row 13 has norm 2: expected embeddings of unit"):
        PCASearch(longer, 2)
    with pytest.raises(ValueError, match="queries: row 0 has norm nan"):
        PCASearch(database, 2).search(np.full((1, 8), np.nan, np.float32))

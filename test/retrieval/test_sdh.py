import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval import Reranker, SDHSearch, SparseIndex, TwoStage, hash_codes


def random_codes(rng, rows, bits, k):
    codes = np.zeros((rows, bits), np.float32)
    for row in codes:
        row[rng.choice(bits, k, replace=False)] = 1
    return codes


def test_codes_are_the_largest_dimensions():
    codes = hash_codes(np.array([[0.1, -0.9, 0.3, 0.2], [0.5, 0.5, 0.5, -1.0]]), 2)
    # Largest, whatever the sign; of the three equal ones the first two.
    np.testing.assert_array_equal(codes.toarray(), [[0, 0, 1, 1], [1, 1, 0, 0]])
    assert codes.dtype == np.float32
    assert codes.has_sorted_indices


@pytest.mark.parametrize("k", [1, 3])
def test_candidates_are_the_union_of_buckets(k):
    rng = np.random.default_rng(k)
    database, queries = random_codes(rng, 300, 40, k), random_codes(rng, 12, 40, k)
    queries[5] = 0
    search = SDHSearch(scipy.sparse.csr_array(database))
    scores, ids = search.candidates(scipy.sparse.csr_array(queries))
    counts = search.num_candidates(queries)
    buckets = [set(np.flatnonzero(database[:, bit])) for bit in range(40)]
    longest = 0
    for row, query in enumerate(queries):
        active = np.flatnonzero(query)
        wanted = set().union(*(buckets[bit] for bit in active))
        shared = {i: sum(i in buckets[bit] for bit in active) for i in wanted}
        ranked = sorted(wanted, key=lambda i: (-shared[i], i))
        assert list(ids[row][ids[row] >= 0]) == ranked
        assert list(scores[row][: len(ranked)]) == [shared[i] for i in ranked]
        assert (scores[row][len(ranked) :] == -np.inf).all()
        assert counts[row] == len(ranked)
        longest = max(longest, len(ranked))
        first = search.search(queries[row : row + 1], 4)[1][0]
        assert list(first[first >= 0]) == ranked[:4]
        twice = search.candidates(queries[row : row + 1], threshold=2)[1][0]
        assert list(twice[twice >= 0]) == [i for i in ranked if shared[i] >= 2]
    assert ids.shape == (12, longest)


def test_candidates_of_more_queries_than_are_searched_at_once():
    rng = np.random.default_rng(1)
    database, queries = random_codes(rng, 50, 16, 2), random_codes(rng, 200, 16, 2)
    expected = (queries @ database.T > 0).sum(axis=1)
    np.testing.assert_array_equal(SDHSearch(database).num_candidates(queries), expected)


def test_size_is_that_of_the_buckets():
    """Buckets are posting lists: the search keeps nothing else."""
    codes = random_codes(np.random.default_rng(0), 3000, 40, 3)
    assert SDHSearch(codes).nbytes == SparseIndex.build(codes).nbytes


def test_all_candidates_are_re_ranked():
    rng = np.random.default_rng(0)
    database, queries = random_codes(rng, 200, 24, 2), random_codes(rng, 6, 24, 2)
    dense = rng.normal(size=(200, 8)).astype(np.float32)
    dense_queries = rng.normal(size=(6, 8)).astype(np.float32)
    two_stage = TwoStage(SDHSearch(database), Reranker(dense))
    _, ids = two_stage.search(queries, dense_queries, k=5, shortlist=None)
    products = np.where(queries @ database.T > 0, dense_queries @ dense.T, -np.inf)
    np.testing.assert_array_equal(ids, np.argsort(-products, axis=1, kind="stable")[:, :5])
    with pytest.raises(ValueError, match="shortlist=None: SparseIndex has no `candidates`"):
        TwoStage(SparseIndex.build(database), Reranker(dense)).search(
            queries, dense_queries, shortlist=None
        )


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"codes holds 0.5: expected zeros and ones"):
        SDHSearch(np.array([[0, 0.5]]))
    with pytest.raises(ValueError, match=r"codes of shape \(0, 3\)"):
        SDHSearch(np.zeros((0, 3)))
    search = SDHSearch(np.eye(3))
    assert search.shape == (3, 3)
    with pytest.raises(ValueError, match=r"queries holds 2\.0: expected zeros and ones"):
        search.search(np.array([[2.0, 0, 0]]))
    with pytest.raises(ValueError, match="queries has 4 columns: expected 3"):
        search.search(np.eye(4))
    with pytest.raises(ValueError, match="active_bits=4: expected an integer >= 1 <= 3"):
        hash_codes(np.eye(3), 4)
    with pytest.raises(ValueError, match="NaN"):
        hash_codes(np.array([[0, np.nan]]), 1)
    with pytest.raises(ValueError, match=r"embeddings of shape \(2,\)"):
        hash_codes(np.zeros(2), 1)

"""Dense re-ranking against NumPy."""

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval import DenseSearch, Reranker, SparseIndex, TwoStage
from sparse_embed.retrieval.index import available_kernels


@pytest.mark.parametrize("kernels", available_kernels())
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("dims", [1, 31, 64, 130])
def test_rerank_equals_numpy(tmp_path, kernels, dtype, dims):
    rng = np.random.default_rng(dims)
    dense = rng.normal(size=(200, dims)).astype(dtype)
    dense[0] = dense[7]  # a tie
    np.save(tmp_path / "dense.npy", dense)
    queries = rng.normal(size=(5, dims))
    ids = np.stack([rng.choice(200, 30, replace=False) for _ in queries])
    ids[:, -2:] = (0, 7)
    ids[1, ::2] = -1
    for store in (dense, np.load(tmp_path / "dense.npy", mmap_mode="r"), np.asfortranarray(dense)):
        scores, found = Reranker(store, kernels).rerank(queries, ids, k=35, num_threads=2)
        assert scores.shape == found.shape == (5, 35)
        for q in range(5):
            rows = np.unique(ids[q][ids[q] >= 0])
            exact = dense[rows].astype(np.float64) @ queries[q].astype(np.float32).astype(
                np.float64
            )
            order = np.lexsort((rows, -exact))
            kept = found[q][found[q] >= 0]
            unique = list(dict.fromkeys(kept.tolist()))
            assert unique == rows[order].tolist()
            best = dict(zip(rows.tolist(), exact, strict=True))
            np.testing.assert_allclose(
                scores[q][: len(kept)], [best[i] for i in kept.tolist()], rtol=1e-5, atol=1e-5
            )
            assert (scores[q][len(kept) :] == -np.inf).all()


def test_every_float16_is_read_right():
    """All 63,488 finite half-precision numbers, times one."""
    bits = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = bits[np.isfinite(bits)][:, None]
    ids = np.arange(len(halves))[None]
    for kernels in available_kernels():
        scores, found = Reranker(halves, kernels).rerank(np.ones((1, 1)), ids, len(halves))
        np.testing.assert_array_equal(scores[0], halves[found[0], 0].astype(np.float32))


def test_two_stage_reorders_the_shortlist():
    rng = np.random.default_rng(0)
    sparse = scipy.sparse.random_array((400, 50), density=0.1, rng=rng, format="csr")
    dense = rng.normal(size=(400, 16)).astype(np.float32)
    queries, dense_queries = sparse[:8], dense[:8]
    index = SparseIndex.build(sparse)
    scores, ids = TwoStage(index, Reranker(dense)).search(
        queries, dense_queries, k=3, shortlist=20, threshold=0.1
    )
    shortlist = index.search(queries, 20, 0.1)[1]
    for q in range(8):
        rows = shortlist[q][shortlist[q] >= 0]
        products = dense[rows] @ dense_queries[q]
        order = np.argsort(-products)[:3]
        np.testing.assert_array_equal(ids[q][: len(order)], rows[order])
        np.testing.assert_allclose(scores[q][: len(order)], products[order], rtol=1e-5)
        assert (ids[q][len(order) :] == -1).all()
        assert (scores[q][len(order) :] == -np.inf).all()
    some = rng.permutation(400)[:90]
    for how, visible in (("allowed", some), ("forbidden", np.setdiff1d(np.arange(400), some))):
        _, ids_of_some = TwoStage(index, Reranker(dense)).search(
            queries, dense_queries, k=3, shortlist=20, **{how: some}
        )
        shortlist_of_some = index.search(queries, 20, allowed=visible)[1]
        _, expected = Reranker(dense).rerank(dense_queries, shortlist_of_some, 3)
        np.testing.assert_array_equal(ids_of_some, expected)
    # The order is not that of the sparse scores, or re-ranking would have done nothing.
    assert (ids != shortlist[:, :3]).any(axis=1).sum() > 4


@pytest.mark.parametrize("kernels", available_kernels())
def test_ids_of_ones_own_are_those_of_the_index(kernels):
    """Rows in another order, under other ids; half of all dense rows tie."""
    rng = np.random.default_rng(0)
    dense = rng.choice([0.0, 1.0], (200, 6)).astype(np.float32)
    ids = rng.permutation(2**40 + np.arange(300))[:200]
    by_id = np.argsort(ids)
    plain = TwoStage(SparseIndex.build(dense[by_id]), Reranker(dense[by_id], kernels))
    wanted = plain.search(dense[:9], dense[:9], k=30, shortlist=100)
    order = rng.permutation(200)
    index = SparseIndex.build(dense, ids)
    own = TwoStage(index, Reranker(dense[order], kernels, ids[order]))
    for _ in range(2):
        scores, found = own.search(dense[:9], dense[:9], k=30, shortlist=100)
        np.testing.assert_array_equal(scores, wanted[0])
        np.testing.assert_array_equal(found, ids[by_id][wanted[1]])
        index.add(2 * dense[:1], [7])  # a row that comes and goes
        index.remove([7])
        index.compact()
    TwoStage(index, Reranker(np.append(dense, dense[:1], axis=0), ids=[*ids, 7]))
    found = own.search(dense[:1], dense[:1], k=5, threshold=100)[1]
    assert (found == -1).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Reranker(np.zeros((3, 4))), "dense has dtype float64"),
        (lambda: Reranker(np.zeros(4, np.float32)), "dense has dtype float32 and shape"),
        (lambda: _reranker().rerank(np.zeros((1, 5)), [[0]], 1), "dense_queries has shape"),
        (lambda: _reranker().rerank(np.full((1, 4), np.nan), [[0]], 1), "dense_queries holds"),
        (lambda: _reranker().rerank(np.zeros((1, 4)), [[3]], 1), "ids holds 3: expected ids < 3"),
        (lambda: _reranker().rerank(np.zeros((1, 4)), [[0], [1]], 1), "ids has shape"),
        (lambda: _reranker().rerank(np.zeros((1, 4)), [[0]], 0), "k=0"),
        (lambda: TwoStage(SparseIndex.build(np.eye(2)), _reranker()), "the index has 2 rows"),
        (lambda: _reranker(ids=[1, 2]), r"ids has shape \(2,\): expected \(3,\)"),
        (lambda: _reranker(ids=[1, 2, -1]), "ids holds -1: expected ids >= 0"),
        (lambda: _reranker(ids=[5, 2, 5]), "ids holds 5 twice"),
        (
            lambda: _reranker(ids=[5, 2, 7]).rerank(np.zeros((1, 4)), [[7, -1, 3]], 1),
            "ids holds 3: expected ids of the reranker's rows",
        ),
        (
            lambda: TwoStage(SparseIndex.build(np.eye(3)), _reranker(ids=[0, 1, 7])),
            "the index has the id 2: expected ids of the reranker's rows",
        ),
        (
            lambda: TwoStage(DenseSearch(np.eye(3)), _reranker()).search(
                np.eye(3), np.eye(3, 4), forbidden=[0]
            ),
            "forbidden is given: DenseSearch has no filters",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def _reranker(ids=None):
    return Reranker(np.zeros((3, 4), np.float32), ids=ids)

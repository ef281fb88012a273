"""faiss' indexes against what NumPy makes of their codes; faiss itself chose only those."""

import faiss
import numpy as np
import pytest

from sparse_embed.retrieval import (
    DenseSearch,
    HNSWSearch,
    IVFPQSearch,
    LSHSearch,
    Reranker,
    TwoStage,
)

ROWS, DIMS = 1000, 16


def unit(x):
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, DIMS))
    rows = centres[rng.integers(0, 60, ROWS + 20)] + 0.4 * rng.normal(size=(ROWS + 20, DIMS))
    rows = unit(rows)
    return rows[:ROWS], rows[ROWS:]


@pytest.fixture(scope="module")
def ivfpq(data):
    return IVFPQSearch(data[0], nlist=12, m=4, bits=4, nprobe=12)


def best(scores, k, threshold=-np.inf):
    """Top k of a score matrix by falling score, then rising id."""
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    scores = np.take_along_axis(scores, ids, axis=1)
    return np.where(scores >= threshold, scores, -np.inf), np.where(scores >= threshold, ids, -1)


def recall(ids, right):
    return np.mean([np.isin(a, b).mean() for a, b in zip(right, ids, strict=True)])


@pytest.mark.parametrize("bits", [8, 256])
def test_lsh_is_the_hamming_distance_of_signs(data, bits):
    rows, queries = data
    search = LSHSearch(rows, bits)
    projection = faiss.vector_to_array(search._index.rrot.A).reshape(bits, DIMS)
    signs, query_signs = rows @ projection.T > 0, queries @ projection.T > 0
    hamming = (query_signs[:, None] != signs[None]).sum(axis=2)
    expected = np.cos(np.pi * hamming / bits)
    scores, ids = search.search(queries, ROWS)
    np.testing.assert_array_equal(ids, np.argsort(hamming, axis=1, kind="stable"))
    np.testing.assert_allclose(scores, np.sort(expected)[:, ::-1], atol=1e-6)
    # Of rows with equal scores faiss may return others, but not other scores.
    scores, ids = search.search(queries, 10, threshold=0.3)
    np.testing.assert_allclose(scores, best(expected, 10, 0.3)[0], atol=1e-6)
    np.testing.assert_array_equal(ids >= 0, scores >= 0.3)
    codes, rotation = ROWS * bits // 8, 4 * bits * DIMS
    assert codes + rotation < search.nbytes < codes + rotation + 1000


def test_lsh_estimates_cosines(data):
    rows, queries = data
    scores, ids = LSHSearch(rows, 2048).search(queries, ROWS)
    cosines = np.take_along_axis(queries @ rows.T, ids, axis=1)
    # The share h/bits of an angle has a standard deviation of at most 1 / (2 sqrt(bits)).
    assert np.sqrt(np.mean((scores - cosines) ** 2)) < np.pi / (2 * np.sqrt(2048))


def test_ivfpq_with_all_lists_is_the_product_with_decoded_rows(data, ivfpq):
    _, queries = data
    index = ivfpq._index
    centroids = ivfpq._quantizer.reconstruct_n(0, index.nlist)
    words = faiss.vector_to_array(index.pq.centroids).reshape(4, 16, DIMS // 4)
    decoded = np.full((ROWS, DIMS), np.nan, np.float32)
    for number in range(index.nlist):
        size = index.invlists.list_size(number)
        ids = faiss.rev_swig_ptr(index.invlists.get_ids(number), size)
        packed = faiss.rev_swig_ptr(index.invlists.get_codes(number), 2 * size).reshape(size, 2)
        codes = np.stack([packed & 15, packed >> 4], axis=2).reshape(size, 4)  # low half first
        residual = np.concatenate([words[part, codes[:, part]] for part in range(4)], axis=1)
        decoded[ids] = centroids[number] + residual
    expected = queries @ decoded.T
    scores, ids = ivfpq.search(queries, 30, threshold=0.5)
    np.testing.assert_allclose(scores, best(expected, 30, 0.5)[0], atol=1e-5)
    found = ids >= 0
    np.testing.assert_allclose(
        scores[found], np.take_along_axis(expected, ids, axis=1)[found], atol=1e-5
    )


def test_one_ivfpq_index_serves_a_sweep(data, ivfpq):
    rows, queries = data
    _, right = DenseSearch(rows).search(queries, 10)
    two_stage = TwoStage(ivfpq, Reranker(rows))
    recalls = []
    for nprobe in (1, 3, 12):
        ivfpq.nprobe = nprobe
        _, ids = two_stage.search(queries, queries, 10, shortlist=ROWS)
        recalls.append(recall(ids, right))
    assert recalls[0] < recalls[1] < recalls[2] == 1
    assert ivfpq.settings == {"nlist": 12, "m": 4, "bits": 4, "nprobe": 12}
    assert ivfpq.shape == (ROWS, DIMS)
    codes_and_ids, centroids, words = ROWS * (2 + 8), 4 * 12 * DIMS, 4 * 16 * DIMS
    kept = codes_and_ids + centroids + words
    assert kept < ivfpq.nbytes < kept + 2000


def test_small_databases_get_smaller_settings_and_it_is_said(data):
    rows, queries = data
    with pytest.warns(UserWarning, match="is too many") as caught:
        search = IVFPQSearch(rows[:200], m=8)
    said = "\n".join(str(warning.message) for warning in caught)
    assert "nlist=4096 is too many for a database of 200 rows: using 5" in said
    assert "bits=8 is too many for a database of 200 rows: using 2" in said
    assert "nprobe=100 is too many for a database of 200 rows: using 5" in said
    assert search.settings == {"nlist": 5, "m": 8, "bits": 2, "nprobe": 5}
    assert (
        recall(search.search(queries, 50)[1], DenseSearch(rows[:200]).search(queries, 5)[1]) > 0.8
    )


def test_hnsw_scores_are_exact_and_recall_grows(data):
    rows, queries = data
    search = HNSWSearch(rows, m=4, ef_construction=16, ef_search=200)
    scores, ids = search.search(queries, 10)
    np.testing.assert_allclose(scores, np.take_along_axis(queries @ rows.T, ids, axis=1), atol=1e-5)
    _, right = DenseSearch(rows).search(queries, 1)
    wide = recall(search.search(queries, 1)[1], right)
    search.ef_search = 1
    assert recall(search.search(queries, 1)[1], right) < wide
    assert wide > 0.9
    assert search.settings == {"m": 4, "ef_construction": 16, "ef_search": 1}
    links = 4 * 2 * 4 * ROWS  # 2 m of four bytes each in the lowest layer
    assert rows.nbytes + links < search.nbytes < rows.nbytes + 2 * links


def test_more_results_than_rows_leave_places_unused(data):
    rows, queries = data
    scores, ids = LSHSearch(rows[:3], 64).search(queries[:2], 5)
    np.testing.assert_array_equal(np.sort(ids[:, :3]), [[0, 1, 2]] * 2)
    assert (ids[:, 3:] == -1).all()
    assert (scores[:, 3:] == -np.inf).all()


def test_the_number_of_threads_is_given_back(data):
    rows, queries = data
    search = LSHSearch(rows[:10], 8)
    seen = []

    class Spy:
        d = DIMS
        ntotal = 10

        def search(self, queries, k):
            seen.append(faiss.omp_get_max_threads())
            raise KeyError(k)

    search._index = Spy()
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(3)
        for count in (1, 2):
            with pytest.raises(KeyError):
                search.search(queries, 1, num_threads=count)
            assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)
    assert seen == [1, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: LSHSearch(x, 100), "bits=100: expected a multiple of 8"),
        (lambda x: LSHSearch(2 * x, 64), "dense: row 0 has norm 2: expected embeddings of unit"),
        (lambda x: LSHSearch(x[:0], 64), r"dense of shape \(0, 16\): expected at least one row"),
        (lambda x: IVFPQSearch(x), "m=64: expected a divisor of the 16 dimensions"),
        (lambda x: IVFPQSearch(x, m=4, bits=9), "bits=9: expected an integer >= 1 <= 8"),
        (lambda x: IVFPQSearch(x, m=4, nprobe=0, nlist=2, bits=1), "nprobe=0: expected"),
        (lambda x: IVFPQSearch(x[:1], m=4), "dense has 1 row: expected at least 2"),
        (lambda x: HNSWSearch(x[0]), r"dense of shape \(16,\)"),
        (lambda x: HNSWSearch(x[:9], ef_search=0), "ef_search=0: expected an integer >= 1"),
        (lambda x: LSHSearch(x, 8).search(x[:1, :4]), r"queries of shape \(1, 4\).*\(n, 16\)"),
        (lambda x: LSHSearch(x, 8).search(x[:1], 0), "k=0: expected an integer >= 1"),
        (lambda x: LSHSearch(x, 8).search(x[:1], num_threads=0), "num_threads=0: expected"),
        (lambda x: LSHSearch(x, 8).search(x[:1] / 2), "queries: row 0 has norm 0.5"),
    ],
)
def test_mistakes_are_named(data, make, message):
    with pytest.raises(ValueError, match=message):
        make(data[0])

"""SparseIndex and Algorithm 1 against plain matrix products."""

import concurrent.futures
import itertools

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_embed.retrieval import Algorithm1, SparseIndex, algorithm1_search
from sparse_embed.retrieval.index import available_kernels


def random_csr(rng, rows, dims, density=0.1, signed=False, unit=True):
    """Random rows; about `density` of the entries are non-zero."""
    x = rng.exponential(size=(rows, dims)) * (rng.random((rows, dims)) < density)
    if signed:
        x *= rng.choice([-1.0, 1.0], size=x.shape)
    if unit:
        norms = np.linalg.norm(x, axis=1, keepdims=True)
        x /= np.where(norms > 0, norms, 1)
    return scipy.sparse.csr_array(x.astype(np.float32))


def clustered_csr(rng, rows, dims, size=10):
    """Rows around shared centres, so that scores reach from 0 to nearly 1."""
    centres = rng.exponential(size=(-(-rows // size), dims)) * (rng.random(dims) < 0.2)
    x = np.repeat(centres, size, axis=0)[:rows] * (rng.random((rows, dims)) < 0.7)
    x += 0.5 * rng.exponential(size=x.shape) * (rng.random(x.shape) < 0.02)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    return scipy.sparse.csr_array(x.astype(np.float32))


def expected(csr, queries, k, threshold, removed=()):
    """The k best by (float32 score, lower id) from SciPy's product, which adds in that order."""
    products = (scipy.sparse.csr_array(queries) @ scipy.sparse.csr_array(csr).T).toarray()
    scores = np.full((products.shape[0], k), -np.inf, np.float32)
    ids = np.full((products.shape[0], k), -1, np.int64)
    for q, row in enumerate(products):
        order = np.lexsort((np.arange(len(row)), -row))
        order = order[~np.isin(order, removed)]
        if threshold is not None:
            order = order[row[order] >= np.float32(threshold)]
        order = order[:k]
        scores[q, : len(order)] = row[order]
        ids[q, : len(order)] = order
    return scores, ids


def assert_same(got, want):
    np.testing.assert_array_equal(got[1], want[1])
    np.testing.assert_array_equal(got[0], want[0])


@pytest.mark.parametrize("kernels", available_kernels())
@pytest.mark.parametrize("signed", [False, True])
def test_thousands_of_random_cases_equal_the_product(kernels, signed):
    """3 sizes x 5 densities x 4 x 30 queries x 2 signs = 3,600 searches per instruction set."""
    rng = np.random.default_rng(int(signed))
    for rows, dims in ((1, 1), (150, 17), (700, 300)):
        for density in (0.003, 0.03, 0.1, 0.4, 1.0):
            csr = random_csr(rng, rows, dims, density, signed, unit=rng.random() < 0.7)
            queries = random_csr(rng, 30, dims, density, signed, unit=rng.random() < 0.7)
            index = SparseIndex(dims, block_rows=64)
            index.add(csr)
            index.kernels = kernels
            for k, threshold in ((1, None), (10, 0.25), (rows + 5, None), (20, -0.1)):
                want = expected(csr, queries, k, threshold)
                assert_same(index.search(queries, k, threshold), want)
                assert_same(algorithm1_search(csr, queries, k, threshold), want)
                exact = queries.astype(np.float64) @ csr.astype(np.float64).T
                found = want[1] >= 0
                rows_of = np.nonzero(found)[0]
                got = index.search(queries, k, threshold)[0][found]
                exact = exact.toarray()[rows_of, want[1][found]]
                np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernels", available_kernels())
@pytest.mark.parametrize(("k", "threshold"), [(1, None), (10, None), (10, 0.25), (1000, 0.25)])
def test_many_blocks_of_clustered_rows_equal_algorithm_1(kernels, k, threshold):
    """Enough blocks and candidates for every pruning step to take part."""
    rng = np.random.default_rng(k)
    csr = clustered_csr(rng, 20_000, 128)
    queries = csr[rng.choice(csr.shape[0], 40, replace=False)]
    index = SparseIndex(128, block_rows=256)
    index.add(csr)
    index.kernels = kernels
    want = Algorithm1(csr).search(queries, k, threshold)
    assert_same(index.search(queries, k, threshold), want)
    for q in range(5):  # one by one as well: batches take another way
        one = index.search(queries[[q]], k, threshold)
        assert_same(one, (want[0][[q]], want[1][[q]]))
    assert_same(index.search(queries, k, threshold, num_threads=3), want)
    assert_same(index.search(queries[:1], k, threshold, num_threads=4), [x[:1] for x in want])


values = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-30, -1e-30, 1e-42, 3e18, -2e19, 1e38]),
    st.floats(-2, 2, width=32),
)


@st.composite
def matrices(draw, dims, max_rows):
    rows = draw(st.integers(0, max_rows))
    cells = draw(
        st.lists(
            st.tuples(st.integers(0, max(rows - 1, 0)), st.integers(0, dims - 1), values),
            max_size=40 if rows else 0,
        )
    )
    x = np.zeros((rows, dims), np.float32)
    for i, j, value in cells:
        x[i, j] = value
    return scipy.sparse.csr_array(x)


@settings(max_examples=400)
@given(st.data())
def test_corner_cases_equal_algorithm_1(data):
    """Tiny matrices with ties, zeros, huge and tiny values, any k and threshold."""
    dims = data.draw(st.integers(1, 6))
    csr = data.draw(matrices(dims, 90))
    queries = data.draw(matrices(dims, 3))
    k = data.draw(st.integers(1, 100))
    threshold = data.draw(st.sampled_from([None, 0.0, 0.25, -0.5, 1e-40]))
    index = SparseIndex(dims, block_rows=64)
    index.add(csr)
    index.kernels = data.draw(st.sampled_from(available_kernels()))
    assert_same(index.search(queries, k, threshold), Algorithm1(csr).search(queries, k, threshold))


@pytest.mark.parametrize("threshold", [None, 1e-45])
@pytest.mark.parametrize("power", range(-90, -60, 5))
def test_products_too_small_for_a_normal_float_count(threshold, power):
    """0.55 x 2^-149 rounds up to 2^-149, the smallest float: no bound relative to it would hold.

    The query's largest weight is in a dimension that no row has, so that the others look small.
    """
    small = 2.0**power
    rows = np.zeros((3, 3), np.float32)
    rows[:2, 2] = 2.0**-149 / small
    csr = scipy.sparse.csr_array(rows)
    queries = scipy.sparse.csr_array(np.array([[small, 0, 0.55 * small]], np.float32))
    scores, ids = SparseIndex.build(csr).search(queries, 2, threshold)
    assert (scores == 2.0**-149).all()
    assert ids.tolist() == [[0, 1]]
    assert_same((scores, ids), Algorithm1(csr).search(queries, 2, threshold))


def test_ties_go_to_the_lower_id_across_blocks():
    csr = scipy.sparse.csr_array(np.tile(np.float32([[0.6, 0.8]]), (300, 1)))
    index = SparseIndex(2, block_rows=64)
    index.add(csr)
    for num_threads in (1, 3):
        scores, ids = index.search(np.array([[1.0, 0.0]]), 130, num_threads=num_threads)
        np.testing.assert_array_equal(ids[0], np.arange(130))
        np.testing.assert_array_equal(scores[0], np.float32(0.6))


@pytest.mark.parametrize("kernels", available_kernels())
def test_ties_with_a_guessed_threshold_go_to_the_lower_id(kernels):
    """Rows of few distinct values in many blocks: more of them tie with the guess than it keeps."""
    rng = np.random.default_rng(0)
    for dims, block_rows, distinct in itertools.product((2, 5, 20), (64, 128), (1, 2, 5)):
        rows = rng.choice(rng.random(distinct) + 0.01, (3000, dims))
        csr = scipy.sparse.csr_array((rows * (rng.random(rows.shape) < 0.5)).astype(np.float32))
        queries = csr[:5]
        index = SparseIndex(dims, block_rows)
        index.add(csr)
        index.kernels = kernels
        for k, threads in itertools.product((1, 10, 50), (1, 3)):
            got = index.search(queries, k, num_threads=threads)
            assert_same(got, algorithm1_search(csr, queries, k))


def test_without_threshold_unrelated_rows_score_zero_above_negative_ones():
    csr = np.array([[-1.0, 0.0], [0.0, 1.0], [0.5, 0.0], [0.0, 0.0]])
    scores, ids = SparseIndex.build(csr).search(np.array([[1.0, 0.0]]), k=6)
    np.testing.assert_array_equal(ids, [[2, 1, 3, 0, -1, -1]])
    np.testing.assert_array_equal(scores, [[0.5, 0.0, 0.0, -1.0, -np.inf, -np.inf]])


def test_empty_index_and_empty_queries():
    empty = SparseIndex.build(scipy.sparse.csr_array((0, 5), dtype=np.float32))
    scores, ids = empty.search(np.ones((2, 5)), k=3)
    assert (ids == -1).all()
    assert (scores == -np.inf).all()
    index = SparseIndex.build(np.eye(5))
    scores, ids = index.search(np.zeros((0, 5)), k=3)
    assert scores.shape == ids.shape == (0, 3)
    scores, ids = index.search(np.zeros((1, 5)), k=3)
    np.testing.assert_array_equal(ids, [[0, 1, 2]])
    assert (index.search(np.zeros((1, 5)), k=3, threshold=0.1)[1] == -1).all()
    no_dims = SparseIndex.build(np.zeros((3, 0)))
    np.testing.assert_array_equal(no_dims.search(np.zeros((1, 0)), k=2)[1], [[0, 1]])


def test_unsorted_duplicate_and_64_bit_csr_is_read_as_scipy_means_it_and_left_alone():
    data = np.array([1.0, 2.0, 3.0, 0.0], np.float64)
    indices = np.array([2, 0, 2, 1], np.int64)
    indptr = np.array([0, 3, 4], np.int64)
    csr = scipy.sparse.csr_matrix((data, indices, indptr), shape=(2, 3))
    csr.has_canonical_format = True  # as after an edit in place: the flag is stale
    for array in (data, indices, indptr):
        array.flags.writeable = False
    for search in (SparseIndex.build(csr).search, Algorithm1(csr).search):
        scores, ids = search(csr, k=2)
        np.testing.assert_array_equal(ids, [[0, 1], [0, 1]])
        np.testing.assert_array_equal(scores, [[20.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(csr.indices, [2, 0, 2, 1])
    assert SparseIndex.build(csr).flops(csr).tolist() == [2, 0]  # a stored zero is no posting


def test_more_dimensions_than_16_bits():
    rng = np.random.default_rng(0)
    csr = scipy.sparse.random_array((500, 100_000), density=2e-4, rng=rng, format="csr")
    csr = csr.astype(np.float32)
    index = SparseIndex.build(csr)
    for threshold in (None, 0.2):
        assert_same(index.search(csr[:50], 20, threshold), expected(csr, csr[:50], 20, threshold))
    assert_same(index.search(-csr[:5], 20), expected(csr, -csr[:5], 20, None))


@pytest.mark.parametrize("signed", [False, True])
def test_rows_may_be_added_and_removed(signed):
    rng = np.random.default_rng(5)
    csr = random_csr(rng, 500, 30, signed=signed)
    queries = random_csr(rng, 10, 30, signed=signed)
    index = SparseIndex(30, block_rows=64)
    removed = np.zeros(0, int)
    begin = 0
    for size in (0, 10, 54, 1, 200, 235):
        np.testing.assert_array_equal(
            index.add(csr[begin : begin + size]), np.arange(begin, begin + size)
        )
        begin += size
        if begin:
            gone = rng.choice(begin, 5)
            assert index.remove(gone) == len(np.setdiff1d(gone, removed))
            removed = np.union1d(removed, gone)
        assert index.shape == (begin, 30)
        assert len(index) == begin - len(removed)
        for k, threshold in ((3, None), (20, 0.1), (600, None)):
            want = expected(csr[:begin], queries, k, threshold, removed)
            assert_same(index.search(queries, k, threshold), want)
        alive = np.setdiff1d(np.arange(begin), removed)
        work = (queries != 0).astype(int) @ (csr[alive] != 0).astype(int).sum(axis=0)
        np.testing.assert_array_equal(index.flops(queries), work)


def test_building_with_threads_gives_the_same_index():
    csr = clustered_csr(np.random.default_rng(3), 30_000, 64)
    one, two = SparseIndex.build(csr), SparseIndex.build(csr, num_threads=2)
    assert [bytes(block) for block in one._index.snapshot().blocks] == [
        bytes(block) for block in two._index.snapshot().blocks
    ]


def test_concurrent_searches_on_one_index():
    rng = np.random.default_rng(0)
    csr = clustered_csr(rng, 20_000, 64)
    queries = csr[:64]
    index = SparseIndex.build(csr)
    want = Algorithm1(csr).search(queries, 50, 0.1)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(index.search, queries, 50, 0.1, 1 + i % 3) for i in range(24)]
        for future in futures:
            assert_same(future.result(), want)


def test_postings_take_at_most_5_bytes_per_nonzero():
    rng = np.random.default_rng(0)
    csr = random_csr(rng, 40_000, 256, density=1 / 32)
    index = SparseIndex.build(csr)
    parts = index.nbytes_by_part
    assert index.nbytes == sum(parts.values())
    assert parts["postings"] <= 5 * csr.nnz
    assert parts["rows"] <= 7 * csr.nnz  # 6 bytes and an offset per row


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda index: index.search(np.ones((1, 4)), k=0), "k=0"),
        (lambda index: index.search(np.ones((1, 4)), k=2.5), "k=2.5"),
        (lambda index: index.search(np.ones((1, 5))), "queries has 5 columns: expected 4"),
        (lambda index: index.search(np.ones(4)), "queries has 1 dimension"),
        (lambda index: index.search(np.array([[np.nan, 0, 0, 0]])), "queries holds a value"),
        (lambda index: index.search(np.array([[1e39, 0, 0, 0]])), "queries holds a value"),
        (lambda index: index.search(np.array([["a", "b", "c", "d"]])), "queries has dtype"),
        (lambda index: index.search(np.ones((1, 4)), threshold=np.nan), "threshold=nan"),
        (lambda index: index.search(np.ones((1, 4)), num_threads=0), "num_threads=0"),
        (lambda index: index.add(np.full((1, 4), np.inf)), "csr holds a value"),
        (lambda index: index.add(np.ones((1, 3))), "csr has 3 columns: expected 4"),
        (lambda index: index.remove([3]), "ids holds 3: expected 0 <= id < 3"),
        (lambda index: index.remove([-1]), "ids holds -1"),
        (lambda index: index.remove([0.5]), "ids has dtype float64"),
        (lambda index: setattr(index, "kernels", "mmx"), "kernels='mmx': expected one of"),
        (lambda index: SparseIndex(4, block_rows=100), "block_rows=100: expected a power"),
    ],
)
def test_bad_arguments_are_named(call, message):
    index = SparseIndex.build(np.eye(3, 4))
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        call(index)


@pytest.mark.parametrize(
    ("indptr", "indices"),
    [([0, 1, 2], [0, 7]), ([0, 1, 2], [0, -1]), ([0, 2, 1], [0, 1]), ([1, 1, 2], [0, 1])],
)
def test_csr_with_wrong_indices_is_refused(indptr, indices):
    csr = scipy.sparse.csr_array(np.eye(2, 3, dtype=np.float32))
    for dtype in (np.int32, np.int64):
        csr.indptr = np.array(indptr, dtype)
        csr.indices = np.array(indices, dtype)
        with pytest.raises(ValueError, match="csr is not a valid CSR matrix"):
            SparseIndex.build(csr)


@pytest.mark.parametrize("kernels", available_kernels())
def test_rows_are_found_whose_small_values_were_left_out(kernels):
    """A list ends where products are small: rows that lose some there keep their places."""
    rng = np.random.default_rng(0)
    query = np.array([[0.7, 0.5, 0.4, 0.3]], np.float32)
    heavy = np.eye(4)[1 + np.arange(96) % 3]  # before them in three lists: whole chunks
    rows = np.concatenate([heavy, rng.uniform([0.4, 0, 0, 0], [0.7, 0.2, 0.2, 0.2], (40, 4))])
    index = SparseIndex.build(rows.astype(np.float32))
    index.kernels, index._way = kernels, "accumulate"
    for score in expected(rows.astype(np.float32), query, len(rows), None)[0][0]:
        want = expected(rows.astype(np.float32), query, 50, score)
        assert_same(index.search(query, 50, score), want)

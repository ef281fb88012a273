"""Bounds of cells and accumulation give the same results: those of Algorithm 1."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_embed.retrieval import Algorithm1, SparseIndex
from sparse_embed.retrieval.index import available_kernels

WAYS = ("cheapest", "cells", "accumulate")


def rows_like_trained(rng, rows, dims, nonzeros, signed=True, size=10):
    """Unit rows around shared centres; `nonzeros` of them per row or fewer."""
    centres = rng.exponential(size=(-(-rows // size), dims))
    centres *= rng.random(centres.shape) < nonzeros / dims
    if signed:
        centres *= rng.choice([-1.0, 1.0], size=centres.shape)
    x = np.repeat(centres, size, axis=0)[:rows] * rng.lognormal(0, 0.4, (rows, dims))
    x *= rng.random(x.shape) < 0.8
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    return scipy.sparse.csr_array(rng.permutation(x).astype(np.float32))


def built(csr, block_rows=2048):
    index = SparseIndex(csr.shape[1], block_rows=block_rows)
    index.add(csr)
    assert index.nbytes_by_part["cells"] > 0
    return index


def check(index, csr, queries, k, threshold=None, removed=()):
    """Every way with every instruction set, in a batch, alone and on threads."""
    want = Algorithm1(csr).search(queries, k + len(removed), threshold)
    if len(removed):
        kept = [~np.isin(ids, removed) for ids in want[1]]
        scores = np.full((len(kept), k), -np.inf, np.float32)
        ids = np.full((len(kept), k), -1)
        for q, keep in enumerate(kept):
            found = want[0][q][keep][:k], want[1][q][keep][:k]
            scores[q, : len(found[0])], ids[q, : len(found[1])] = found
        want = scores, ids
    for way in WAYS:
        index._way = way
        for kernels in available_kernels():
            index.kernels = kernels
            found = [
                index.search(queries, k, threshold),
                index.search(queries, k, threshold, num_threads=3),
                [
                    np.concatenate(parts)
                    for parts in zip(
                        *(
                            index.search(queries[[q]], k, threshold, num_threads=1 + q % 3)
                            for q in range(queries.shape[0])
                        ),
                        strict=True,
                    )
                ],
            ]
            for scores, ids in found:
                np.testing.assert_array_equal(ids, want[1], err_msg=f"{way} {kernels}")
                np.testing.assert_array_equal(scores, want[0], err_msg=f"{way} {kernels}")


@pytest.mark.parametrize(
    ("planes", "nonzeros", "cell_rows"), [(128, 16, 2), (256, 16, 4), (512, 13, 8)]
)
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("k", "threshold"), [(1, None), (10, None), (10, 0.4), (300, 0.1)])
def test_every_way_gives_the_results_of_algorithm_1(
    planes, nonzeros, cell_rows, signed, k, threshold
):
    """One block of 8,192 rows with cells, and one of 808 rows without."""
    rng = np.random.default_rng([planes, signed, k])
    csr = rows_like_trained(rng, 9000, planes // (1 + signed), nonzeros, signed)
    index = built(csr, 8192)
    codes = planes * 8192 / cell_rows / 2
    assert 1.125 * codes < index.nbytes_by_part["cells"] < 1.4 * codes
    check(index, csr, csr[rng.choice(csr.shape[0], 12, replace=False)], k, threshold)


def test_results_that_no_positive_score_fills():
    rng = np.random.default_rng(0)
    csr = rows_like_trained(rng, 4096, 64, 16)
    check(built(csr), csr, csr[:3], 6000)
    check(built(csr), csr, csr[:3], 4000, -0.2)


def test_ties_go_to_the_lower_id():
    """Equal rows lie side by side within a block, whatever their ids."""
    rng = np.random.default_rng(1)
    few = rows_like_trained(rng, 100, 64, 16)
    csr = few[rng.integers(0, 100, 6144)]
    check(built(csr), csr, few[:8], 30)


def test_rows_that_are_added_removed_saved_and_copied(tmp_path):
    rng = np.random.default_rng(2)
    csr = rows_like_trained(rng, 7000, 64, 16)
    index = SparseIndex(64, block_rows=2048)
    for begin, end in ((0, 1000), (1000, 1001), (1001, 5000), (5000, 7000)):
        index.add(csr[begin:end])
    queries = csr[[3, 2047, 2048, 6999]]
    removed = np.r_[3:40, 2047, 4000:6100]
    index.remove(removed)
    kept = np.setdiff1d(np.arange(7000), removed)
    lengths = np.bincount(csr[kept].indices, minlength=64)
    work = [lengths[queries[[q]].indices].sum() for q in range(4)]
    np.testing.assert_array_equal(index.flops(queries), work)
    index.save(tmp_path / "a.index")
    check(index, csr, queries, 20, removed=removed)
    for mmap in (True, False):
        loaded = SparseIndex.load(tmp_path / "a.index", mmap=mmap)
        check(loaded, csr, queries, 20, removed=removed)


def test_blocks_of_different_kinds():
    """With and without negative values, of other densities and other largest values."""
    rng = np.random.default_rng(3)
    parts = [
        rows_like_trained(rng, 2048, 64, 16, signed=False),
        rows_like_trained(rng, 2048, 64, 16),
        rows_like_trained(rng, 2048, 64, 3),
        rows_like_trained(rng, 2048, 64, 40) * np.float32(3.7),
    ]
    csr = scipy.sparse.csr_array(scipy.sparse.vstack(parts, format="csr"))
    queries = csr[rng.choice(csr.shape[0], 12, replace=False)]
    check(built(csr), csr, queries, 10)
    check(built(csr), csr, -queries, 10, 0.3)


def test_queries_that_cells_cannot_answer():
    """Sums beyond 16 bits, no terms, and weights that no float can scale."""
    rng = np.random.default_rng(4)
    csr = rows_like_trained(rng, 2048, 600, 200)
    queries = np.ones((6, 600), np.float32)
    queries[1] = 0
    queries[2] *= 1e-38
    queries[3] *= 1e30
    queries[4, 1:] = 1e-20
    queries[5, 5:] = 0
    check(built(csr), csr, scipy.sparse.csr_array(queries), 5)


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e-16, 1e16, 1e37])
def test_values_at_the_ends_of_the_range(scale):
    rng = np.random.default_rng(5)
    csr = rows_like_trained(rng, 2048, 64, 16) * np.float32(scale)
    csr.data[:5] = [3e38, 1e-45, -1e-45, -3e38, 1e-40]
    check(built(csr), csr, rows_like_trained(rng, 5, 64, 16), 5)


@st.composite
def matrices(draw, rng, *rows, dims):
    """A matrix for each number of rows, with ties, zeros and odd values."""
    density = draw(st.sampled_from([0.5, 0.8, 1.0]))
    pool = draw(
        st.lists(
            st.one_of(
                st.floats(-2, 2, width=32),
                st.sampled_from([1e-30, -1e-30, 1e-42, 3e10, -2e12, 0.25, 0.5, 1.0]),
            ),
            min_size=1,
            max_size=30,
        )
    )

    values = np.array(pool, np.float32)
    return [
        scipy.sparse.csr_array(
            rng.choice(values, (count, dims)) * (rng.random((count, dims)) < density)
        )
        for count in rows
    ]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_rows_and_queries(data):
    """Few dimensions, so that cells are few and small; any k, removals."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dims = data.draw(st.integers(1, 12))
    rows = data.draw(st.integers(500, 1500))
    csr, queries = data.draw(matrices(rng, rows, 3, dims=dims))
    index = SparseIndex(dims, block_rows=1024)
    index.add(csr)
    removed = rng.choice(rows, data.draw(st.sampled_from([0, 1, 50])), replace=False)
    if len(removed):
        index.remove(removed)
    k = data.draw(st.sampled_from([1, 3, 40, 2000]))
    check(index, csr, queries, k, data.draw(st.sampled_from([None, 0.0, 0.3, -0.5])), removed)


def draw_index(data, rng, tmp_path_factory):
    """An index after all that can happen to one, its rows by rising id, their ids, and queries."""
    dims = data.draw(st.integers(1, 12))
    counts = [data.draw(st.integers(0, 1200)) for _ in range(3)]
    *parts, queries = data.draw(matrices(rng, *counts, 3, dims=dims))
    total = sum(counts)
    ids = data.draw(
        st.sampled_from(
            [np.arange(total), rng.permutation(total), rng.permutation(4 * total)[:total] * 2**30]
        )
    )
    first, second, third = np.split(ids, np.cumsum(counts)[:2])
    block_rows = data.draw(st.sampled_from([256, 1024, 2048]))
    index = SparseIndex(dims, block_rows)
    index.add(parts[0], first)
    other = SparseIndex(dims, data.draw(st.sampled_from([512, 4096])))
    other.add(parts[1], second)
    gone = np.array([], np.int64)
    if data.draw(st.booleans()):
        gone = np.concatenate([first[::3], second[: len(second) // 2]])
        index.remove(first[::3])
        other.remove(second[: len(second) // 2])
    index.merge(other, num_threads=2)
    index.add(parts[2], third)
    if len(third) and data.draw(st.booleans()):
        index.remove(third[:1])
        index.add(parts[2][:1], third[:1])  # the same id again, in another place
    after = data.draw(st.sampled_from(["nothing", "compact", "file", "mapped", "pickle"]))
    if after == "compact":
        index.compact()
    elif after == "pickle":
        index = pickle.loads(pickle.dumps(index))
    elif after != "nothing":
        path = tmp_path_factory.mktemp("index") / "a.index"
        index.save(path)
        index = SparseIndex.load(path, mmap=after == "mapped", verify=True)
    csr = scipy.sparse.csr_array(scipy.sparse.vstack(parts, format="csr"))
    order = np.argsort(ids)[~np.isin(np.sort(ids), gone)]
    return index, csr[order], ids[order], queries


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_ids_filters_removals_merges_and_ranges(tmp_path_factory, data):
    """Whatever was done to an index, and whichever rows may be found."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    index, csr, ids, queries = draw_index(data, rng, tmp_path_factory)
    chosen = rng.random(len(ids)) < data.draw(st.sampled_from([0.02, 0.5, 0.98]))
    if data.draw(st.booleans()):  # whole blocks
        chosen = np.arange(len(ids)) < data.draw(st.integers(0, len(ids)))
    how = data.draw(st.sampled_from(["all", "allowed", "forbidden"]))
    filters = {} if how == "all" else {how: rng.permutation(ids[chosen])}
    visible = {"all": np.full(len(ids), True), "allowed": chosen, "forbidden": ~chosen}[how]
    k = data.draw(st.sampled_from([1, 7, 40, 4000]))
    threshold = data.draw(st.sampled_from([None, 0.0, 0.3, 2.0, -0.5]))
    every = max(int(visible.sum()), 1)
    scores, places = Algorithm1(csr[np.flatnonzero(visible)]).search(queries, every, threshold)
    found = places >= 0
    names = np.append(ids[visible], -1)[places]
    wanted = np.full((3, k), -np.inf, np.float32), np.full((3, k), -1)
    for all_of, best in zip((scores, names), wanted, strict=True):
        best[:, :every] = all_of[:, :k]
    ranges = np.concatenate([[0], np.cumsum(found.sum(axis=1))]), scores[found], names[found]
    for way in WAYS:
        index._way = way
        for kernels in available_kernels():
            index.kernels = kernels
            threads = int(rng.integers(1, 5))
            results = index.search(queries, k, threshold, threads, **filters)
            np.testing.assert_equal(results, wanted, err_msg=f"{way} {kernels}")
            if threshold is not None:
                results = index.range_search(queries, threshold, threads, **filters)
                np.testing.assert_equal(results, ranges, err_msg=f"{way} {kernels}")


def test_cells_take_at_most_5_bytes_per_nonzero():
    rng = np.random.default_rng(6)
    for dims, nonzeros in ((64, 16), (1000, 32), (2000, 8)):
        csr = rows_like_trained(rng, 9000, dims, nonzeros, size=3)
        assert SparseIndex.build(csr).nbytes_by_part["cells"] <= 5 * csr.nnz


@pytest.mark.parametrize("kernels", available_kernels())
def test_bounds_that_are_exact_are_rounded_up(kernels):
    """Cells of equal rows with few different values: a bound is a score, but for its rounding."""
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.integers(1, 8, (64, 8)) / 8, 8, axis=0).astype(np.float32)
    queries = rng.uniform(0.1, 1, (20, 8)).astype(np.float32)
    index = built(scipy.sparse.csr_array(rows))
    index.kernels, index._way = kernels, "cells"
    algorithm1 = Algorithm1(rows)
    best = algorithm1.search(queries, len(rows))[0]
    for query, scores in zip(queries, best, strict=True):
        for k, threshold in [*((512, score) for score in scores[8:200:8]), (3, None), (20, None)]:
            want = algorithm1.search(query[None], k, threshold)
            found = index.search(query[None], k, threshold)
            np.testing.assert_array_equal(found[1], want[1])
            np.testing.assert_array_equal(found[0], want[0])

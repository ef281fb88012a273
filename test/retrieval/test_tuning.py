"""Searches with less effort: what they return is right, and `tune` measures what they miss."""

import copy
import itertools

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval import SparseIndex, algorithm1_search
from sparse_embed.retrieval.index import available_kernels
from sparse_embed.retrieval.tuning import share_found

WAYS = ("cheapest", "cells", "accumulate")


def clustered(rng, rows, dims=64, size=20, signed=False):
    """Rows around shared centres, a quarter of them non-zero."""
    centres = rng.exponential(size=(-(-rows // size), dims)) ** 2
    centres *= rng.random(centres.shape) < 0.25
    x = np.repeat(centres, size, axis=0)[:rows] * rng.lognormal(0, 0.3, (rows, dims))
    x += 0.3 * rng.exponential(size=x.shape) * (rng.random(x.shape) < 0.1)
    if signed:
        x *= rng.choice([-1.0, 1.0], dims)
    return scipy.sparse.csr_array(rng.permutation(x).astype(np.float32))


def assert_same(found, wanted):
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.fixture(params=[False, True])
def data(request):
    rng = np.random.default_rng(0)
    csr = clustered(rng, 4000, signed=request.param)
    index = SparseIndex(csr.shape[1], block_rows=2048)
    index.add(csr)
    assert index.nbytes_by_part["cells"] > 0
    return index, csr, csr[rng.choice(4000, 40, replace=False)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kernels", available_kernels())
def test_scores_are_exact_whatever_the_effort(data, way, kernels):
    index, csr, queries = data
    index._way, index.kernels = way, kernels
    products = (queries @ csr.T).toarray()
    right = algorithm1_search(csr, queries, 10)[1]
    shares = []
    for effort in (0.1, 0.4, 0.7, 0.9, 1.0):
        scores, ids = index.search(queries, 10, effort=effort)
        found = np.take_along_axis(products, ids, axis=1)
        np.testing.assert_array_equal(scores, found)
        assert (np.diff(scores) <= 0).all()
        assert all(len({*row}) == 10 for row in ids.tolist())
        shares.append(share_found(ids, right))
    assert shares[-1] == 1
    assert shares[0] < shares[2] <= 1
    np.testing.assert_array_equal(ids, right)


@pytest.mark.parametrize("way", WAYS)
def test_places_that_no_bound_fills_are_filled_exactly(way):
    """Rows that share only a light dimension with the query still have their own scores."""
    index = SparseIndex.build(np.eye(5, dtype=np.float32))
    index._way = way
    query = np.array([[4.0, 3.0, 2.0, 1.0, 0.0]])
    np.testing.assert_array_equal(index.search(query, 5, effort=0.5)[1], [[0, 1, 2, 3, 4]])
    for threshold in (None, 0.0, -1.0):  # which let rows of score 0 through
        for threads in (1, 2, 5):
            found = index.search(query, 5, threshold, threads, effort=0.5)
            np.testing.assert_array_equal(found[0], query)
    _, ids = index.search(query, 5, 0.5, effort=0.01)
    np.testing.assert_array_equal(ids, [[0, -1, -1, -1, -1]])


@pytest.mark.parametrize("way", ["cells", "accumulate"])  # "cheapest" goes by what was fast before
def test_filters_threads_and_batches_see_the_same_rows(data, way):
    index, csr, queries = data
    allowed = np.arange(0, 4000, 3)
    others = np.setdiff1d(np.arange(4000), allowed)
    mask = np.isin(np.arange(4000), allowed)
    left = copy.copy(index)
    left.remove(others)
    index._way = left._way = way
    exact = algorithm1_search(csr[allowed], queries, 5, 0.1)[0]
    products, missed = (queries @ csr.T).toarray(), 0
    for effort in (0.3, 0.5, 0.8):
        wanted = index.search(queries, 5, 0.1, allowed=allowed, effort=effort)
        missed += (wanted[0] != exact).sum()
        hows = ({"allowed": mask}, {"forbidden": others}, {"forbidden": ~mask})
        for how, threads in itertools.product(hows, (1, 3, 7)):
            assert_same(index.search(queries, 5, 0.1, threads, **how, effort=effort), wanted)
        assert_same(left.search(queries, 5, 0.1, effort=effort), wanted)
        for q in range(40):
            query, found = queries[[q]], [part[q] for part in wanted]
            alone = index.search(query, 5, 0.1, allowed=allowed, effort=effort)
            assert_same([part[0] for part in alone], found)
            # Threads that share a query may miss other rows than one that has it to itself.
            scores, ids = index.search(query, 5, 0.1, 4, allowed=allowed, effort=effort)
            assert mask[ids].all()
            np.testing.assert_array_equal(scores[0], products[q, ids[0]])
    assert missed > 0, "nothing was left out, so that all would see the same anyway"


@pytest.mark.parametrize("recall", [0.5, 0.9, 0.99, 1.0])
def test_tune_returns_what_reaches_the_recall(data, recall):
    index, csr, queries = data
    effort = index.tune(queries, k=10, recall=recall)
    right = algorithm1_search(csr, queries, 10)[1]
    assert share_found(index.search(queries, 10, effort=effort)[1], right) >= recall
    if effort > 0.02:
        less = index.search(queries, 10, effort=effort - 0.02)[1]
        assert share_found(less, right) < recall


def test_tune_wants_results():
    index = SparseIndex.build(np.eye(3))
    with pytest.raises(ValueError, match="queries have no results"):
        index.tune(np.eye(3), threshold=2.0)
    with pytest.raises(ValueError, match=r"recall=1.5: expected a finite number >= 0 <= 1"):
        index.tune(np.eye(3), recall=1.5)
    assert index.tune(np.eye(3), k=1, recall=0) == 0.02


@pytest.mark.parametrize("effort", [0, -0.5, 1.01, float("nan"), "1", True, None])
def test_effort_is_a_share(effort):
    with pytest.raises(ValueError, match="effort="):
        SparseIndex.build(np.eye(3)).search(np.eye(3), 1, effort=effort)


def test_share_found_counts_over_all_queries():
    right = np.array([[1, 2, 3], [4, -1, -1]])
    assert share_found(np.array([[3, 9, 1], [5, -1, -1]]), right) == 0.5
    assert share_found(right, right) == 1

"""SparseIndex and Algorithm 1 against plain matrix products."""

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval import SparseIndex, algorithm1_search


def random_csr(rng, rows, dims, density=0.1, signed=False, unit=True):
    """Random rows; about `density` of the entries are non-zero."""
    x = rng.exponential(size=(rows, dims)) * (rng.random((rows, dims)) < density)
    if signed:
        x *= rng.choice([-1.0, 1.0], size=x.shape)
    if unit:
        norms = np.linalg.norm(x, axis=1, keepdims=True)
        x /= np.where(norms > 0, norms, 1)
    return scipy.sparse.csr_array(x.astype(np.float32))


def expected(csr, queries, k, threshold):
    """The k best by (float32 score, lower id) from SciPy's product, which adds in that order."""
    products = np.asarray(
        (scipy.sparse.csr_array(queries) @ scipy.sparse.csr_array(csr).T).todense()
    )
    scores = np.full((products.shape[0], k), -np.inf, np.float32)
    ids = np.full((products.shape[0], k), -1, np.int64)
    for q, row in enumerate(products):
        order = np.lexsort((np.arange(len(row)), -row))
        if threshold is not None:
            order = order[row[order] >= np.float32(threshold)]
        order = order[:k]
        scores[q, : len(order)] = row[order]
        ids[q, : len(order)] = order
    return scores, ids


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("k", "threshold"), [(1, None), (10, 0.25), (500, None), (7, -0.1)])
def test_search_equals_the_product(signed, k, threshold):
    rng = np.random.default_rng(k)
    csr = random_csr(rng, 300, 40, signed=signed)
    queries = random_csr(rng, 20, 40, signed=signed)
    want = expected(csr, queries, k, threshold)
    for got in (
        SparseIndex.build(csr).search(queries, k, threshold),
        algorithm1_search(csr, queries, k, threshold),
    ):
        np.testing.assert_array_equal(got[1], want[1])
        np.testing.assert_array_equal(got[0], want[0])

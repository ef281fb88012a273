"""`keep_largest` against sorting each row by hand."""

import hypothesis
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval import SparseIndex, keep_largest


def by_hand(dense, k):
    """Python's sort is stable: among equals the lower dimension comes first."""
    wanted = np.zeros_like(dense)
    for row, values in enumerate(dense):
        best = sorted(range(len(values)), key=lambda j: -abs(float(values[j])))[:k]
        wanted[row, best] = values[best]
    return wanted


# Few different values, so that there are many ties and zeros.
MATRICES = arrays.arrays(
    np.float32,
    st.tuples(st.integers(0, 6), st.integers(0, 9)),
    elements=st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e-45, 3e38]),
)


@hypothesis.given(MATRICES, st.integers(1, 10))
def test_that_the_largest_stay(dense, k):
    found = keep_largest(scipy.sparse.csr_array(dense), k)
    np.testing.assert_array_equal(found.toarray(), by_hand(dense, k))
    assert found.has_canonical_format
    assert (found.data != 0).all()
    assert found.shape == dense.shape


def test_many_rows_of_many_lengths():
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(500, 300)).astype(np.float32)
    dense[rng.random(dense.shape) < rng.random((500, 1))] = 0
    csr = scipy.sparse.csr_array(dense)
    for k in (1, 7, 64, 300, 10**9):
        np.testing.assert_array_equal(keep_largest(csr, k).toarray(), by_hand(dense, k))
    np.testing.assert_array_equal(csr.toarray(), dense)


def test_norms_are_restored_on_request():
    dense = np.array([[3, 4, 0.5, 0], [0, 0, 0, 0], [-5, 0, 0, 0], [1e-30, -1e-30, 0, 0]], "f4")
    found = keep_largest(dense, 2, unit_norm=True).toarray()
    root = 0.5**0.5
    wanted = [[0.6, 0.8, 0, 0], [0, 0, 0, 0], [-1, 0, 0, 0], [root, -root, 0, 0]]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_stored_zeros_and_duplicates_are_not_values():
    csr = scipy.sparse.csr_array(
        (np.array([0.0, 2.0, 1.0, 1.5], "f4"), [0, 1, 3, 3], [0, 4]), shape=(1, 4)
    )
    np.testing.assert_array_equal(keep_largest(csr, 1).toarray(), [[0, 0, 0, 2.5]])
    np.testing.assert_array_equal(keep_largest(csr, 4).toarray(), [[0, 2, 0, 2.5]])
    assert keep_largest(csr, 4).nnz == 2


def test_rows_and_queries_may_be_cut_apart():
    """The multiply-adds of the index are those of p_j of queries times p_j of rows."""
    rng = np.random.default_rng(1)
    rows = scipy.sparse.random_array((200, 64), density=0.3, format="csr", dtype="f4", rng=rng)
    queries = scipy.sparse.random_array((50, 64), density=0.3, format="csr", dtype="f4", rng=rng)
    rows, queries = keep_largest(rows, 10), keep_largest(queries, 4)
    flops = SparseIndex.build(rows).flops(queries).mean() / 200
    p = [(matrix.toarray() != 0).mean(axis=0) for matrix in (queries, rows)]
    assert flops == pytest.approx(p[0] @ p[1])


@pytest.mark.parametrize("k", [0, -1, 2.5, True, None])
def test_bad_lengths_are_refused_by_name(k):
    with pytest.raises(ValueError, match=r"k=.*expected an integer >= 1"):
        keep_largest(np.eye(3), k)

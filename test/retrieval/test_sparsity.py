"""Activation probabilities, FLOPs per row and the sub-optimality ratio, by hand and by counting."""

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval import (
    SparseIndex,
    activation_probability,
    flops_per_row,
    suboptimality_ratio,
)


def forms(x):
    """The same matrix dense, sparse, with stored zeros, and unsorted with duplicates."""
    csr = scipy.sparse.csr_matrix(x)
    i, j = np.indices(x.shape).reshape(2, -1)
    with_zeros = scipy.sparse.csr_array((x.ravel(), j, np.arange(0, x.size + 1, x.shape[1])))
    halves = scipy.sparse.coo_array((np.tile(x.ravel() / 2, 2), (np.tile(i, 2), np.tile(j, 2))))
    # In CSR itself, where nothing is summed on the way: every entry twice, half of it each.
    twice = scipy.sparse.csr_array(
        (np.repeat(csr.data / 2, 2), np.repeat(csr.indices, 2), 2 * csr.indptr), shape=x.shape
    )
    return [x, csr, csr.tocsc(), with_zeros, halves, twice]


def test_figures_by_hand():
    """p = (3/4, 1/4, 0): sum p^2 = 10/16; mean p = 1/3, so the ratio is (10/16) / (3/9) = 1.875."""
    x = np.array([[1.0, 0, 0], [-2.0, 0, 0], [0.5, 3.0, 0], [0, 0, 0]])
    for form in forms(x):
        np.testing.assert_allclose(activation_probability(form), [0.75, 0.25, 0])
        assert flops_per_row(form) == pytest.approx(10 / 16)
        assert suboptimality_ratio(form) == pytest.approx(1.875)


def test_even_activations_have_ratio_one():
    assert suboptimality_ratio(np.eye(7)) == pytest.approx(1.0)
    assert np.isnan(suboptimality_ratio(np.zeros((2, 3))))


def test_flops_per_row_is_the_mean_of_index_flops_over_the_rows_as_queries():
    """Both meanings of FLOPs: sum p_j^2 is the mean number of multiply-adds per row and query."""
    rng = np.random.default_rng(0)
    x = scipy.sparse.random_array((200, 30), density=0.1, rng=rng, format="csr")
    index = SparseIndex.build(x)
    counted = [(x[[i]].toarray() * x.toarray() != 0).sum() for i in range(200)]
    np.testing.assert_array_equal(index.flops(x), counted)
    assert flops_per_row(x) == pytest.approx(np.mean(counted) / 200)


@pytest.mark.parametrize("x", [np.zeros((0, 3)), np.zeros(3), scipy.sparse.csr_array((0, 3))])
def test_shapes_without_rows_are_refused(x):
    with pytest.raises(ValueError, match="x has shape"):
        activation_probability(x)

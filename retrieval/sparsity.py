"""Metrics of sparsity: activation probabilities, expected FLOPs per row, sub-optimality ratio."""

import numpy as np
import scipy.sparse

from sparse_embed.retrieval.inputs import Matrix


def activation_probability(x: Matrix) -> np.ndarray:
    """Fraction of rows in which each dimension is non-zero: p_j = mean over i of [x_ij != 0].

    Args:
        x: embeddings (rows, d), dense or SciPy sparse. Stored zeros do not count; duplicate
            entries count by their sum.

    Returns:
        float64 array of d probabilities.
    """
    if x.ndim != 2 or x.shape[0] == 0:
        raise ValueError(f"x has shape {x.shape}: expected (rows, dimensions) with rows >= 1")
    if scipy.sparse.issparse(x):
        csr = scipy.sparse.csr_array(x)
        if not csr.has_canonical_format:
            csr = csr.copy()
            csr.sum_duplicates()
        counts = np.bincount(csr.indices[csr.data != 0], minlength=x.shape[1])
    else:
        counts = np.count_nonzero(x, axis=0)
    shares: np.ndarray = counts / x.shape[0]
    return shares


def flops_per_row(x: Matrix) -> float:
    """Expected multiply-adds per database row for a query of the same distribution: sum p_j^2.

    This is F(f, D) of the paper's section "Our Approach" (the empirical form of its equation for
    expected FLOPs). The multiply-adds of a given query are `SparseIndex.flops`.
    """
    return float(np.sum(activation_probability(x) ** 2))


def suboptimality_ratio(x: Matrix) -> float:
    """R_sub = flops_per_row / (d * mean(p)^2), at least 1, and 1 when all p_j are equal.

    Without any non-zero the ratio is undefined and NaN is returned.
    """
    p = activation_probability(x)
    even = p.size * p.mean() ** 2
    return float(np.sum(p**2) / even) if even > 0 else float("nan")


def sparsity_metrics(x: Matrix) -> dict[str, float]:
    """The metrics of sparsity under their names in records.

    Returns:
        `flops_per_row`, `activation_probability` (the mean over all dimensions) and
        `suboptimality_ratio`.
    """
    return {
        "flops_per_row": flops_per_row(x),
        "activation_probability": float(activation_probability(x).mean()),
        "suboptimality_ratio": suboptimality_ratio(x),
    }

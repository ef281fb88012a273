"""Keeps only the largest values of each row, so that one encoder serves every budget of search."""

import numpy as np
import scipy.sparse.linalg

from sparse_embed.common.checks import check_number
from sparse_embed.retrieval.inputs import Matrix, canonical_csr


def keep_largest(csr: Matrix, k: int, unit_norm: bool = False) -> scipy.sparse.csr_array:
    """Keeps the k values of largest magnitude in each row, and drops the others.

    Among values of equal magnitude, that of the lower dimension stays. Rows and queries may be cut
    to different lengths: a search costs the sum over j of p_j of the queries times p_j of the rows
    in multiply-adds per row.

    Args:
        csr: embeddings (rows, d), as `SparseIndex.build` takes them; not modified.
        k: number of values that a row keeps at most.
        unit_norm: whether to scale what is left of each row to norm 1. A row of zeros stays one.

    Returns:
        A float32 CSR matrix of the same shape, with sorted columns and no stored zeros.
    """
    check_number("k", k, integer=True, minimum=1)
    found = canonical_csr("csr", csr)
    kept = found.largest(min(k, found.shape[1]))
    starts, columns, values = (np.asarray(array) for array in found.arrays)
    ends = np.concatenate([[0], np.cumsum(kept)])
    rows = scipy.sparse.csr_array(
        (values[: len(kept)][kept], columns[: len(kept)][kept], ends[starts]), shape=found.shape
    )
    if unit_norm:
        norms = scipy.sparse.linalg.norm(rows.astype(np.float64), axis=1)
        scales = np.divide(1.0, norms, where=norms > 0, out=np.zeros_like(norms))
        rows.data = (rows.data * np.repeat(scales, np.diff(rows.indptr))).astype(np.float32)
    return rows

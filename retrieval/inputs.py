"""Turning what callers pass into the canonical CSR form that the compiled code relies on."""

import numpy as np
import scipy.sparse

from sparse_embed.retrieval import _index

Matrix = np.ndarray | scipy.sparse.spmatrix | scipy.sparse.sparray


def canonical_csr(name: str, x: Matrix, dims: int | None = None) -> _index.Csr:
    """Checks a matrix and returns it as float32 CSR with sorted, unique columns.

    Duplicate entries are summed, which is what they mean in SciPy. The caller's arrays are shared
    where they already have the right form and are never modified.

    Args:
        name: how the caller knows the argument, for error messages.
        x: a SciPy sparse matrix or array of any format, or a 2-D array.
        dims: the number of columns it must have, if that is known.

    Raises:
        ValueError: if `x` is not 2-D, has the wrong number of columns, indices outside its shape,
            or a value that is not a finite float32.
    """
    if not scipy.sparse.issparse(x):
        x = np.asarray(x)
    if x.ndim != 2:
        raise ValueError(f"{name} has {x.ndim} dimension(s): expected a matrix, one row per item")
    if dims is not None and x.shape[1] != dims:
        raise ValueError(f"{name} has {x.shape[1]} columns: expected {dims}, as in the index")
    if x.dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {x.dtype}: expected real numbers")
    if not max(x.shape) < 2**31:
        raise ValueError(f"{name} has shape {x.shape}: expected fewer than 2^31 rows and columns")
    csr = scipy.sparse.csr_array(x)  # shares the arrays of a CSR matrix
    try:
        csr.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{name} is not a valid CSR matrix: {error}") from error
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(csr.data, np.float32)
    if not np.isfinite(values).all():
        raise ValueError(f"{name} holds a value that is NaN, infinite or beyond float32")
    return _index.Csr(
        csr.shape,
        np.ascontiguousarray(csr.indptr, np.int64),
        np.ascontiguousarray(csr.indices, np.int32),
        values,
    )

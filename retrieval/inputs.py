"""Turns what callers give into what the compiled code relies on: matrices, ids, scores."""

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse

from sparse_embed.common.checks import check_number
from sparse_embed.retrieval import _index

MAX_ID = 2**63 - 1

Matrix: TypeAlias = np.ndarray | scipy.sparse.spmatrix | scipy.sparse.sparray


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
    if x.dtype == np.float16 or not x.dtype.isnative:  # which SciPy does not convert by itself
        x = x.astype(np.float32)
    rows: Any = x if getattr(x, "format", None) == "csr" else scipy.sparse.csr_array(x)
    csr = _view(name, rows)
    found = csr.check()
    if found == _index.INVALID:
        raise ValueError(f"{name} is not a valid CSR matrix: indices outside its shape")
    if found == _index.UNSORTED:
        # A fresh object, because SciPy remembers on the old one whether it was sorted.
        arrays = rows.data, rows.indices, rows.indptr
        rows = scipy.sparse.csr_array(arrays, shape=rows.shape, copy=True)
        rows.sum_duplicates()
        csr = _view(name, rows)
    if not np.isfinite(csr.arrays[2]).all():
        raise ValueError(f"{name} holds a value that is NaN, infinite or beyond float32")
    return csr


def _view(name: str, csr: scipy.sparse.csr_array) -> _index.Csr:
    """The arrays of a CSR matrix in the types of the compiled code, copied only if they differ."""
    if csr.indices.dtype.itemsize > 4 and csr.indices.size:
        low, high = csr.indices.min(), csr.indices.max()
        if low < 0 or high >= csr.shape[1]:
            raise ValueError(f"{name} is not a valid CSR matrix: indices outside its shape")
    size = csr.indptr[-1]
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(csr.data[:size], np.float32)
    return _index.Csr(
        csr.shape,
        np.ascontiguousarray(csr.indptr, np.int64),
        np.ascontiguousarray(csr.indices[:size], np.int32),
        values,
    )


def score_floor(threshold: float | None) -> float:
    """The float32 that scores are compared with: `threshold`, or -inf for None."""
    if threshold is None:
        return -np.inf
    return float(np.float32(check_number("threshold", threshold)))


def id_array(name: str, ids: Any) -> np.ndarray:
    """Returns ids as int64, in one dimension; a single id is one, too.

    Raises:
        ValueError: they are no integers, or larger than an id can be.
    """
    found = np.atleast_1d(np.asarray(ids))
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise ValueError(
            f"{name} has dtype {found.dtype} and shape {found.shape}: expected integers, in one "
            "dimension"
        )
    large = found[found > MAX_ID]
    if large.size:
        raise ValueError(f"{name} holds {large[0]}: expected ids <= {MAX_ID}")
    return np.ascontiguousarray(found, np.int64)


def new_ids(ids: Any, rows: int) -> np.ndarray | None:
    """Returns the ids for rows to add; None lets the index choose.

    Raises:
        ValueError: there is not one id per row, or one is no integer, or negative.
    """
    if ids is None:
        return None
    if np.shape(ids) != (rows,):
        raise ValueError(f"ids has shape {np.shape(ids)}: expected ({rows},), one id per row")
    found = id_array("ids", ids)
    negative = found[found < 0]
    if negative.size:
        raise ValueError(f"ids holds {negative[0]}: expected ids >= 0")
    return found


def selection(allowed: Any, forbidden: Any) -> _index.Selection | None:
    """Returns what the arguments of a search say about rows; None if they say nothing.

    Raises:
        ValueError: both are given, or one is neither ids nor a mask.
    """
    if allowed is not None and forbidden is not None:
        raise ValueError("allowed and forbidden are both given: expected at most one of them")
    name, given = ("allowed", allowed) if forbidden is None else ("forbidden", forbidden)
    if given is None:
        return None
    array = np.asarray(given)
    if array.ndim == 1 and array.dtype == np.bool_:
        array = np.ascontiguousarray(array)
    else:
        array = id_array(name, array)
    return _index.Selection(array, forbidden is not None)

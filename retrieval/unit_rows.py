"""The check that dense embeddings are rows of unit norm, as the baselines need."""

import numpy as np

from sparse_embed.retrieval.metrics import check_unit_norm


def unit_rows(name: str, x: np.ndarray, dims: int | None = None) -> np.ndarray:
    """Returns `x` as contiguous float32 rows if all of them have norm 1, or 0 (blank images).

    Args:
        name: how the caller knows the argument, for error messages.
        x: (rows, dims) float array; a contiguous float32 one, memory-mapped or not, is not copied.
        dims: the dimension it must have; None for a database, which may have any but needs a row.

    Raises:
        ValueError: the shape is wrong, or a row, which is named, is not normalised.
    """
    x = np.asanyarray(x)
    if x.ndim != 2 or x.dtype.kind != "f" or (dims is not None and x.shape[1] != dims):
        expected = f"({'rows' if dims is None else 'n'}, {dims or 'dims'})"
        raise ValueError(f"{name} of shape {x.shape}, {x.dtype}: expected floats, {expected}")
    if dims is None and 0 in x.shape:
        raise ValueError(f"{name} of shape {x.shape}: expected at least one row and dimension")
    x = np.ascontiguousarray(x, np.float32)
    check_unit_norm(name, x)
    return x

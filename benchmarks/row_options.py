"""Options of rows that are made up: see `workload`."""

from typing import Any

from sparse_embed.common.options import option


def rows() -> Any:
    """Rows in all."""
    return option(999_000, "Rows of the database.", lower=1)


def batch_rows() -> Any:
    """Rows at a time."""
    return option(100_000, "Rows per batch.", lower=1)


def dims() -> Any:
    """Their dimensions."""
    return option(1024, "Dimensions of the sparse rows.", lower=1)


def nnz() -> Any:
    """Their non-zeros."""
    return option(32, "Mean non-zeros per row, roughly.", lower=1)

"""The interface of every search: `SparseIndex`, the baselines, and your own."""

from typing import Any, Protocol

import numpy as np

from sparse_embed.retrieval.inputs import Matrix


class Search(Protocol):
    """A database that answers queries.

    A search may have more: attributes that can be set between searches (`nprobe`, `ef_search`),
    `flops_per_row` (multiply-adds per row and query), or `candidates` if all rows that share
    something with a query should be re-ranked.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, dimensions) of the database."""

    @property
    def nbytes(self) -> int:
        """Bytes of the database in memory."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings to keep in a record of this search."""

    def search(
        self,
        queries: Any,
        k: int = ...,
        threshold: float | None = ...,
        num_threads: int = ...,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns `(scores, ids)`, arrays (queries, k): best first, unused places -inf / -1."""


def shortlist(
    index: Any,
    queries: Matrix,
    k: int | None,
    threshold: float | None,
    num_threads: int,
    **filters: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the `k` best rows of each query, or all candidates if `k` is None.

    `filters` are arguments of `SparseIndex.search`.

    Raises:
        ValueError: `k` is None, and the index has no `candidates`.
    """
    found: tuple[np.ndarray, np.ndarray]
    if k is not None:
        found = index.search(queries, k, threshold, num_threads, **filters)
        return found
    if not hasattr(index, "candidates"):
        raise ValueError(
            f"shortlist=None: {type(index).__name__} has no `candidates`, expected an integer"
        )
    found = index.candidates(queries, threshold, num_threads)
    return found

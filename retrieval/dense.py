"""Exhaustive search over dense embeddings: the baseline that sparse search is measured against."""

import numpy as np

from sparse_embed.retrieval.threads import blas_threads

_BLOCK_BYTES = 64 << 20  # of scores held at once


class DenseSearch:
    """Scores every row of the database by its dot product with the query.

    Args:
        database: (rows, dim) float array; memory-mapped ones are fine.
    """

    def __init__(self, database: np.ndarray):
        if database.ndim != 2:
            raise ValueError(f"database of shape {database.shape}: expected (rows, dim)")
        self._database = database

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, dim) of the database."""
        return self._database.shape

    @property
    def nbytes(self) -> int:
        """Bytes of the database."""
        return self._database.nbytes

    @property
    def settings(self) -> dict[str, int]:
        """The settings to keep in a record of this search."""
        return {"dims": self.shape[1]}

    @property
    def flops_per_row(self) -> int:
        """Multiply-adds per row of the scan."""
        return self.shape[1]

    def search(
        self,
        queries: np.ndarray,
        k: int = 1000,
        threshold: float | None = None,
        num_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the `k` best rows for each query, as `SparseIndex.search` does.

        Args:
            queries: (n, dim) float array.
            k: how many rows to return at most.
            threshold: rows scoring less are left out; None leaves out none.
            num_threads: threads of the matrix products (see `blas_threads`).

        Returns:
            float32 scores and int64 ids, both (n, k): best first, ties by lower id, unused places
            -inf and -1.
        """
        rows, dim = self.shape
        if queries.ndim != 2 or queries.shape[1] != dim:
            raise ValueError(f"queries of shape {queries.shape}: expected (n, {dim})")
        if k < 1:
            raise ValueError(f"k={k}: expected an integer >= 1")
        found_scores = np.full((len(queries), k), -np.inf, np.float32)
        found_ids = np.full((len(queries), k), -1, np.int64)
        block = max(1, _BLOCK_BYTES // max(1, 4 * rows))
        for start in range(0, len(queries), block):
            with blas_threads(num_threads):
                scores = queries[start : start + block] @ self._database.T
            for row, row_scores in enumerate(scores, start):
                lowest = -np.inf if threshold is None else threshold
                if k < rows:
                    lowest = max(lowest, np.partition(row_scores, rows - k)[rows - k])
                ids = np.flatnonzero(row_scores >= lowest)
                ids = ids[np.argsort(-row_scores[ids], kind="stable")][:k]
                found_ids[row, : len(ids)] = ids
                found_scores[row, : len(ids)] = row_scores[ids]
        return found_scores, found_ids

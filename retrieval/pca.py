"""Exhaustive search after PCA: a baseline of the paper (section 6, "Baselines")."""

import numpy as np

from sparse_embed.common.checks import check_number
from sparse_embed.retrieval.dense import DenseSearch
from sparse_embed.retrieval.threads import blas_threads
from sparse_embed.retrieval.unit_rows import unit_rows

_BLOCK = 65_536  # rows


class PCASearch:
    """Scores every row by its dot product with the query, both projected on principal directions.

    The directions are the eigenvectors V (d, dims) of the database's covariance with the largest
    eigenvalues. The score of query q and row x is <V^T q, V^T x>: the mean is not subtracted before
    projecting, so that scores approximate <q, x>, thresholds keep their meaning, and dims = d gives
    the scores of exhaustive search. The paper's dims: 48 to 256 of 512.

    Args:
        dense: (rows, d) unit-norm embeddings; memory-mapped ones are read block by block.
        dims: how many directions to keep.
        num_threads: threads of building.
    """

    def __init__(self, dense: np.ndarray, dims: int, num_threads: int = 1):
        dense = unit_rows("dense", dense)
        check_number("dims", dims, integer=True, minimum=1, maximum=dense.shape[1])
        with blas_threads(num_threads):
            self._directions = _principal_directions(dense, dims)
            projected = np.empty((len(dense), dims), np.float32)
            for start in range(0, len(dense), _BLOCK):
                block = slice(start, start + _BLOCK)
                np.matmul(dense[block], self._directions, out=projected[block])
        self._search = DenseSearch(projected)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, d) of the database; queries have d dimensions."""
        return self._search.shape[0], len(self._directions)

    @property
    def nbytes(self) -> int:
        """Bytes of the projected database and of the projection."""
        return self._search.nbytes + self._directions.nbytes

    @property
    def settings(self) -> dict[str, int]:
        """The settings to keep in a record of this search."""
        return {"dims": self.flops_per_row}

    @property
    def flops_per_row(self) -> int:
        """Multiply-adds per row of the scan: the dimensions kept."""
        kept: int = self._directions.shape[1]
        return kept

    def search(
        self,
        queries: np.ndarray,
        k: int = 1000,
        threshold: float | None = None,
        num_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the `k` best rows for each query (n, d), as `DenseSearch.search` does."""
        queries = unit_rows("queries", queries, self.shape[1])
        with blas_threads(num_threads):
            projected = queries @ self._directions
        return self._search.search(projected, k, threshold, num_threads)


def _principal_directions(x: np.ndarray, dims: int) -> np.ndarray:
    """The `dims` first eigenvectors of the covariance of the rows of `x`, as columns."""
    mean = x.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((x.shape[1], x.shape[1]))
    for start in range(0, len(x), _BLOCK):
        centred = (x[start : start + _BLOCK] - mean).astype(np.float32)
        covariance += centred.T @ centred
    _, vectors = np.linalg.eigh(covariance)  # eigenvalues rise
    return np.ascontiguousarray(vectors[:, ::-1][:, :dims], np.float32)

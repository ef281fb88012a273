"""The paper's Algorithm 1, the yardstick of every exact search."""

import numpy as np

from sparse_embed.common.checks import check_number
from sparse_embed.retrieval import _index
from sparse_embed.retrieval.inputs import Matrix, canonical_csr, score_floor


def algorithm1_search(
    csr: Matrix, queries: Matrix, k: int = 1000, threshold: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The paper's Algorithm 1 as written: posting lists, a score vector, threshold, nth_element.

    Scores are float32 sums of products in order of increasing dimension.

    Args:
        csr: the database, one row per item.
        queries: one query per row.
        k: how many results per query.
        threshold: smallest score that is returned; None returns the k best whatever their score.

    Returns:
        `(scores, ids)`, arrays (queries, k), best first, ties by lower id, unused places -inf / -1.
    """
    return Algorithm1(csr).search(queries, k, threshold)


class Algorithm1:
    """Algorithm 1 that keeps its posting lists, so that building and searching are timed apart."""

    def __init__(self, csr: Matrix):
        rows = canonical_csr("csr", csr)
        self._index = _index.Algorithm1(rows)
        self._shape = rows.shape

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, dimensions)."""
        return self._shape

    @property
    def nbytes(self) -> int:
        """Bytes of the posting lists."""
        return self._index.nbytes

    @property
    def settings(self) -> dict[str, int]:
        """The settings to keep in a record of this search: it has none."""
        return {}

    def search(
        self,
        queries: Matrix,
        k: int = 1000,
        threshold: float | None = None,
        num_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `algorithm1_search`; uses one thread, whatever `num_threads` is."""
        del num_threads
        k = check_number("k", k, integer=True, minimum=1)
        csr = canonical_csr("queries", queries, self.shape[1])
        return self._index.search(csr, k, score_floor(threshold))

"""Exact maximum inner product search over sparse rows."""

import numpy as np

from sparse_embed.common.checks import check_number
from sparse_embed.retrieval import _index
from sparse_embed.retrieval.inputs import Matrix, canonical_csr


def algorithm1_search(
    csr: Matrix, queries: Matrix, k: int = 1000, threshold: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The paper's Algorithm 1 as written: posting lists, a score vector, threshold, nth_element.

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
    """Algorithm 1 with its posting lists kept, so that building and searching are timed apart."""

    def __init__(self, csr: Matrix):
        self._dims = csr.shape[1]
        self._index = _index.Algorithm1(canonical_csr("csr", csr))

    @property
    def nbytes(self) -> int:
        """Bytes of the posting lists."""
        return self._index.nbytes

    def search(
        self, queries: Matrix, k: int = 1000, threshold: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `algorithm1_search`."""
        k = check_number("k", k, integer=True, minimum=1)
        return self._index.search(
            canonical_csr("queries", queries, self._dims), k, score_floor(threshold)
        )


def score_floor(threshold: float | None) -> float:
    """The float32 that scores are compared with: `threshold`, or -inf for None."""
    if threshold is None:
        return -np.inf
    return float(np.float32(check_number("threshold", threshold)))


class SparseIndex:
    """An exact inverted index over sparse rows."""

    def __init__(self, lists: Algorithm1, shape: tuple[int, int], list_lengths: np.ndarray):
        self._lists = lists
        self._shape = shape
        self._list_lengths = list_lengths

    @classmethod
    def build(cls, csr: Matrix) -> "SparseIndex":
        """Indexes the rows of `csr`; row i gets id i."""
        from sparse_embed.retrieval.sparsity import activation_probability

        lengths = (
            np.rint(activation_probability(csr) * csr.shape[0]).astype(np.int64)
            if csr.shape[0]
            else np.zeros(csr.shape[1], np.int64)
        )
        return cls(Algorithm1(csr), csr.shape, lengths)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, dimensions)."""
        return self._shape

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        return self._lists.nbytes

    def search(
        self,
        queries: Matrix,
        k: int = 1000,
        threshold: float | None = None,
        num_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the k rows of largest inner product with each query; see `algorithm1_search`."""
        check_number("num_threads", num_threads, integer=True, minimum=1)
        return self._lists.search(queries, k, threshold)

    def flops(self, queries: Matrix) -> np.ndarray:
        """Multiply-adds that each query needs: the summed lengths of its posting lists."""
        csr = canonical_csr("queries", queries, self._shape[1])
        indptr, indices, values = (np.asarray(array) for array in csr.arrays)
        work = np.where(values != 0, self._list_lengths[indices], 0)
        return (
            np.concatenate([[0], np.cumsum(work)])[indptr[1:]]
            - np.concatenate([[0], np.cumsum(work)])[indptr[:-1]]
        )

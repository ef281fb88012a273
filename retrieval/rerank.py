"""Dense re-ranking of a sparse shortlist (the paper's "Sparse retrieval and re-ranking")."""

import numpy as np

from sparse_embed.common.checks import check_number
from sparse_embed.retrieval.index import SparseIndex
from sparse_embed.retrieval.inputs import Matrix


class Reranker:
    """Scores shortlisted rows by the inner product of their dense embeddings with the query's.

    Args:
        dense: (rows, d) float32 or float16, in memory or memory-mapped; kept, not copied.
    """

    def __init__(self, dense: np.ndarray):
        if getattr(dense, "ndim", None) != 2 or dense.dtype not in (np.float32, np.float16):
            raise ValueError("dense: expected a 2-D float32 or float16 array")
        self._dense = dense

    def rerank(
        self, dense_queries: np.ndarray, ids: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Orders each query's shortlist by dense score and returns the k best.

        Args:
            dense_queries: (queries, d).
            ids: (queries, shortlist) row ids; -1 marks an unused place.
            k: how many to return.

        Returns:
            `(scores, ids)` of shape (queries, k), best first, ties by lower id, -inf / -1 unused.
        """
        k = check_number("k", k, integer=True, minimum=1)
        scores = np.full((len(ids), k), -np.inf, np.float32)
        found = np.full((len(ids), k), -1, np.int64)
        for i, shortlist in enumerate(ids):
            rows = shortlist[shortlist >= 0]
            products = self._dense[rows].astype(np.float32) @ np.asarray(
                dense_queries[i], np.float32
            )
            order = np.lexsort((rows, -products))[:k]
            scores[i, : len(order)] = products[order]
            found[i, : len(order)] = rows[order]
        return scores, found


class TwoStage:
    """A sparse index that shortlists and a dense re-ranker that orders the shortlist."""

    def __init__(self, index: SparseIndex, reranker: Reranker):
        self._index = index
        self._reranker = reranker

    def search(
        self,
        queries: Matrix,
        dense_queries: np.ndarray,
        k: int = 10,
        shortlist: int = 1000,
        threshold: float | None = None,
        num_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best rows by dense score among the `shortlist` best by sparse score."""
        _, ids = self._index.search(queries, shortlist, threshold, num_threads)
        return self._reranker.rerank(dense_queries, ids, k)

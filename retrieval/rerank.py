"""Dense re-ranking of a sparse shortlist (the paper's "Sparse retrieval and re-ranking")."""

import inspect

import numpy as np

from sparse_embed.common.checks import check_choice, check_number
from sparse_embed.retrieval import _index, protocol
from sparse_embed.retrieval.index import SparseIndex, available_kernels
from sparse_embed.retrieval.inputs import Matrix, new_ids


class Reranker:
    """Scores shortlisted rows by the inner product of their dense embeddings with the query's.

    Args:
        dense: (rows, d) float32 or float16, in memory or memory-mapped (`np.load(path,
            mmap_mode="r")`); kept where it is, not copied, if its rows are contiguous.
        kernels: instruction set of the inner loops, or None for the best on this machine.
        ids: the id of each row, as the index has it; by default row i has id i.
    """

    def __init__(
        self, dense: np.ndarray, kernels: str | None = None, ids: np.ndarray | None = None
    ):
        dense = np.asanyarray(dense)
        if dense.ndim != 2 or dense.dtype not in (np.float32, np.float16):
            raise ValueError(
                f"dense has dtype {dense.dtype} and shape {dense.shape}: expected a float32 or "
                "float16 matrix, one row per item"
            )
        if len(dense) >= 2**32:
            raise ValueError(f"dense has {len(dense)} rows: expected fewer than 2^32")
        dense = np.ascontiguousarray(dense)
        self._rows = dense.view(np.uint16) if dense.dtype == np.float16 else dense
        self._kernels = check_choice("kernels", kernels or _index.KERNELS[0], available_kernels())
        # As in the index, ids are compared by their ranks: `_order` has the row of each.
        self._ids = self._order = None
        own = new_ids(ids, len(dense))
        if own is not None:
            self._order = np.argsort(own)
            self._ids = own[self._order]
            again = self._ids[1:][np.diff(self._ids) == 0]
            if again.size:
                raise ValueError(f"ids holds {again[0]} twice: expected each id once")

    @property
    def ids(self) -> np.ndarray | None:
        """The ids of the rows, rising, or None if row i has id i."""
        return self._ids

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, dimensions)."""
        return self._rows.shape

    @property
    def nbytes(self) -> int:
        """Bytes of the dense rows."""
        return self._rows.nbytes

    def rerank(
        self, dense_queries: np.ndarray, ids: np.ndarray, k: int, num_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Orders each query's shortlist by dense score and returns the k best.

        Args:
            dense_queries: (queries, d).
            ids: (queries, shortlist) ids of rows; negative ones mark unused places.
            k: how many to return.
            num_threads: threads to use, over queries.

        Returns:
            `(scores, ids)` of shape (queries, k), best first, ties by lower id, -inf / -1 unused.
        """
        k = check_number("k", k, integer=True, minimum=1)
        check_number("num_threads", num_threads, integer=True, minimum=1)
        queries = np.ascontiguousarray(dense_queries, np.float32)
        ids = np.ascontiguousarray(ids, np.int64)
        if queries.ndim != 2 or queries.shape[1] != self.shape[1]:
            raise ValueError(
                f"dense_queries has shape {queries.shape}: expected (queries, {self.shape[1]})"
            )
        if not np.isfinite(queries).all():
            raise ValueError("dense_queries holds a value that is NaN, infinite or beyond float32")
        if ids.ndim != 2 or len(ids) != len(queries):
            raise ValueError(f"ids has shape {ids.shape}: expected ({len(queries)}, shortlist)")
        if self._ids is not None:
            ids = _ranks(self._ids, ids)
        elif ids.size and ids.max() >= self.shape[0]:
            raise ValueError(f"ids holds {ids.max()}: expected ids < {self.shape[0]}")
        scores, found = _index.rerank_rows(
            self._rows, self._order, queries, ids, k, num_threads, self._kernels
        )
        return scores, found if self._ids is None else np.append(self._ids, -1)[found]


def _ranks(known: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The places of ids among the known ones, which rise; -1 for unused places."""
    ranks = np.searchsorted(known, ids)
    wrong = ids[(np.append(known, -1)[ranks] != ids) & (ids >= 0)]
    if wrong.size:
        raise ValueError(f"ids holds {wrong[0]}: expected ids of the reranker's rows")
    return np.where(ids >= 0, ranks, -1)


class TwoStage:
    """An index (sparse, or a baseline) that shortlists and a dense re-ranker that orders.

    Both have the same items under the same ids. A re-ranker with ids of its own may have more than
    the index.
    """

    def __init__(self, index: protocol.Search, reranker: Reranker):
        if reranker.ids is not None and isinstance(index, SparseIndex):
            missing = np.setdiff1d(index.ids, reranker.ids)
            if missing.size:
                raise ValueError(
                    f"the index has the id {missing[0]}: expected ids of the reranker's rows"
                )
        elif reranker.ids is None and index.shape[0] != reranker.shape[0]:
            raise ValueError(
                f"the index has {index.shape[0]} rows and the reranker {reranker.shape[0]}: "
                "expected the same items in the same order"
            )
        self._index = index
        self._reranker = reranker

    def search(
        self,
        queries: Matrix,
        dense_queries: np.ndarray,
        k: int = 10,
        shortlist: int | None = 1000,
        threshold: float | None = None,
        num_threads: int = 1,
        allowed: np.ndarray | None = None,
        forbidden: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best rows by dense score among the `shortlist` best of the index.

        Args:
            queries: queries of the index, one per row.
            dense_queries: the same queries, dense.
            k: how many results per query.
            shortlist: how many rows the index may pass on per query; None for all `candidates` of
                an index that has them, such as `SDHSearch`.
            threshold: smallest score that the index passes on, or None.
            num_threads: threads to use.
            allowed: the rows that may be found, as for `SparseIndex.search`, whose filter it is.
            forbidden: the rows that may not be found, instead of `allowed`.

        Returns:
            `(scores, ids)` of shape (queries, k) with dense scores, best first, ties by lower id,
            -inf / -1 unused.
        """
        if shortlist is not None:
            check_number("shortlist", shortlist, integer=True, minimum=1)
        given = {"allowed": allowed, "forbidden": forbidden}
        filters = {name: rows for name, rows in given.items() if rows is not None}
        if filters and "allowed" not in inspect.signature(self._index.search).parameters:
            raise ValueError(
                f"{next(iter(filters))} is given: {type(self._index).__name__} has no filters, "
                "expected a SparseIndex or a ShardedIndex"
            )
        _, ids = protocol.shortlist(
            self._index, queries, shortlist, threshold, num_threads, **filters
        )
        return self._reranker.rerank(dense_queries, ids, k, num_threads)

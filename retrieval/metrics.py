"""How good a list of results is."""

from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.retrieval.inputs import Matrix

_TOLERANCE = 5e-3  # how far float16 may change a norm of 1
_BLOCK = 65_536  # rows


def drop_self(scores: np.ndarray, ids: np.ndarray, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Removes from row i of search results the database row first + i; rows get shorter by one.

    For leave-one-out evaluation, where the queries are the database itself: ask for k + 1 results,
    then drop each query's own row. If it is not among the results, the last one is dropped.

    Args:
        scores: (n, k + 1) scores of a search.
        ids: (n, k + 1) ids of the same search.
        first: row of the first query in the database.

    Returns:
        scores and ids, both (n, k).
    """
    count, width = ids.shape
    keep = ids != np.arange(first, first + count)[:, None]
    keep[keep.all(axis=1), -1] = False
    return scores[keep].reshape(count, width - 1), ids[keep].reshape(count, width - 1)


def has_mate(query_labels: np.ndarray, database_labels: np.ndarray | None = None) -> np.ndarray:
    """Returns whether the database has a row of each query's class, so that recall is possible.

    Args:
        query_labels: (n,) class of each query.
        database_labels: class of each row; None if the queries are the database, where a query's
            own row does not count.
    """
    if database_labels is not None:
        return np.isin(query_labels, database_labels)
    _, inverse, counts = np.unique(query_labels, return_inverse=True, return_counts=True)
    return counts[inverse] > 1


def recall_at_k(
    ids: np.ndarray, query_labels: np.ndarray, database_labels: np.ndarray, k: int = 1
) -> float:
    """Fraction of queries with a row of their own class among their first `k` results.

    Args:
        ids: (n, >= k) ids of a search, best first, -1 where there is no result.
        query_labels: (n,) class of each query.
        database_labels: class of each row of the database.
        k: how many results count.
    """
    return float(_hits(ids, query_labels, database_labels, k).any(axis=1).mean())


def _hits(
    ids: np.ndarray, query_labels: np.ndarray, database_labels: np.ndarray, k: int
) -> np.ndarray:
    """Returns whether each of the first `k` results is of the query's class, (n, k)."""
    ids, query_labels, database_labels = map(np.asarray, (ids, query_labels, database_labels))
    if ids.ndim != 2 or not ids.size:
        raise ValueError(f"ids of shape {ids.shape}: expected (queries, results), both at least 1")
    if ids.shape[0] != len(query_labels):
        raise ValueError(
            f"ids has {ids.shape[0]} rows: expected one per {len(query_labels)} labels"
        )
    if not 1 <= k <= ids.shape[1]:
        raise ValueError(f"k={k}: expected 1 to {ids.shape[1]}, the results per query")
    if ids.max() >= len(database_labels):
        raise ValueError(
            f"ids holds {ids.max()}: expected less than {len(database_labels)}, the number of "
            "database_labels"
        )
    first = ids[:, :k]
    hits: np.ndarray = (database_labels[first] == query_labels[:, None]) & (first >= 0)
    return hits


def precision_at_k(
    ids: np.ndarray, query_labels: np.ndarray, database_labels: np.ndarray, k: int = 4
) -> float:
    """Mean fraction of the first `k` results that are of the query's own class.

    The paper's CIFAR-100 table uses k = 4 and 16, for test images searched among the training
    images and among the other test images (for those, ask for k + 1 results and `drop_self`).

    Args:
        ids: (n, >= k) ids of a search, best first; -1, where there is no result, counts as wrong.
        query_labels: (n,) class of each query.
        database_labels: class of each row of the database.
        k: how many results count.
    """
    return float(_hits(ids, query_labels, database_labels, k).mean())


def check_labels(name: str, labels: np.ndarray, rows: int, of: str) -> np.ndarray:
    """Returns `labels` as an array if it has one label for each of the `rows` rows of `of`."""
    labels = np.asarray(labels)
    if labels.shape != (rows,):
        raise ValueError(f"{name} of shape {labels.shape}: expected one per row of {of}, ({rows},)")
    return labels


def check_unit_norm(name: str, x: Matrix, zero_rows: bool = True) -> None:
    """Raises ValueError, naming the first row that is not of norm 1 (nor 0, if `zero_rows`)."""
    for start in range(0, x.shape[0], _BLOCK):
        block: Any = x[start : start + _BLOCK]
        if scipy.sparse.issparse(block):
            squares = np.asarray(block.multiply(block).sum(axis=1)).ravel()
        else:
            block = np.asarray(block, np.float32)
            squares = np.einsum("ij,ij->i", block, block)
        norms = np.sqrt(squares)
        # A comparison with NaN is false: such rows are refused with the others.
        wrong = ~((np.abs(norms - 1) <= _TOLERANCE) | ((norms == 0) & zero_rows))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"{name}: row {start + row} has norm {norms[row]:.6g}: expected embeddings of unit "
                "norm"
            )

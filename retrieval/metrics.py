"""How good a list of results is."""

import numpy as np


def drop_self(scores: np.ndarray, ids: np.ndarray, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Removes from row i of search results the database row first + i; rows get shorter by one.

    For leave-one-out evaluation, where the queries are the database itself: ask for k + 1 results,
    then drop each query's own row. Where it is not among the results the last one goes.

    Args:
        scores: (n, k + 1) scores of a search.
        ids: (n, k + 1) ids of the same search.
        first: which row of the database the first query is.

    Returns:
        scores and ids, both (n, k).
    """
    count, width = ids.shape
    keep = ids != np.arange(first, first + count)[:, None]
    keep[keep.all(axis=1), -1] = False
    return scores[keep].reshape(count, width - 1), ids[keep].reshape(count, width - 1)


def has_mate(query_labels: np.ndarray, database_labels: np.ndarray | None = None) -> np.ndarray:
    """Tells of each query whether the database has a row of its class, so that recall is possible.

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
    if ids.shape[0] != len(query_labels):
        raise ValueError(
            f"ids has {ids.shape[0]} rows: expected one per {len(query_labels)} labels"
        )
    if not 1 <= k <= ids.shape[1]:
        raise ValueError(f"k={k}: expected 1 to {ids.shape[1]}, the results per query")
    first = ids[:, :k]
    hits = (database_labels[first] == query_labels[:, None]) & (first >= 0)
    return float(hits.any(axis=1).mean())

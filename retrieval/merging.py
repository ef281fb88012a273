"""One list of results from those of several searches."""

from collections.abc import Sequence

import numpy as np


def merge_results(
    found: Sequence[tuple[np.ndarray, np.ndarray]], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k best of several results of the same queries, exactly.

    Args:
        found: `(scores, ids)` of each search, best first, ties by lower id, unused places -inf /
            -1; no id is in two of them. They may have different numbers of places.
        k: places of the result, or as many as they have together if that is less.

    Returns:
        `(scores, ids)` in the same form.
    """
    scores = np.concatenate([pair[0] for pair in found], axis=1)
    # Unused places, -1, come after all ids: a score may be -inf too.
    ids = np.concatenate([pair[1] for pair in found], axis=1).view(np.uint64)
    # A stable sort merges runs that are sorted already, which is quick, but it leaves ties in the
    # order of the searches. Few queries have ties that matter: these are sorted by both keys.
    order = np.argsort(-scores, axis=1, kind="stable")
    scores, ids = np.take_along_axis(scores, order, 1), np.take_along_axis(ids, order, 1)
    wrong = (scores[:, 1:] == scores[:, :-1]) & (ids[:, 1:] < ids[:, :-1])
    for row in np.flatnonzero(wrong.any(axis=1)):
        both = np.lexsort((ids[row], -scores[row]))
        scores[row], ids[row] = scores[row, both], ids[row, both]
    return np.ascontiguousarray(scores[:, :k]), np.ascontiguousarray(ids[:, :k]).view(np.int64)

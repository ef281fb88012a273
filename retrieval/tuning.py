"""How little effort a search can do with."""

from typing import TYPE_CHECKING

import numpy as np

from sparse_embed.common.checks import check_number
from sparse_embed.retrieval.inputs import Matrix

if TYPE_CHECKING:
    from sparse_embed.retrieval.index import SparseIndex

_STEPS = 50  # efforts that are told apart: 0.02, 0.04, ... 1


def least_effort(
    index: "SparseIndex",
    queries: Matrix,
    k: int,
    recall: float,
    threshold: float | None,
    num_threads: int,
) -> float:
    """Returns the least `effort`, in steps of 0.02, that reaches a recall on these queries.

    The recall is the share of the exact results that are found, over all queries together. It rises
    with the effort, but for chance, so the least effort is found by halving. What is returned was
    measured to reach the recall, or is 1.

    Args:
        index: what is searched.
        queries: one query per row: a sample of those to come.
        k: as in `SparseIndex.search`.
        recall: the share to be reached, from 0 to 1.
        threshold: as in `SparseIndex.search`.
        num_threads: as in `SparseIndex.search`.
    """
    check_number("recall", recall, minimum=0, maximum=1)
    _, right = index.search(queries, k, threshold, num_threads)
    if not (right >= 0).any():
        raise ValueError("queries have no results: expected some that have, to measure recall")

    def reached(step: int) -> bool:
        effort = step / _STEPS
        _, found = index.search(queries, k, threshold, num_threads, effort=effort)
        return share_found(found, right) >= recall

    below, enough = 0, _STEPS
    while enough - below > 1:
        middle = (below + enough) // 2
        below, enough = (below, middle) if reached(middle) else (middle, enough)
    return enough / _STEPS


def share_found(found: np.ndarray, right: np.ndarray) -> float:
    """The share of the ids in `right`, row by row, that are in `found`; -1 stands for none."""
    hits = sum(
        int(np.isin(wanted[wanted >= 0], ids).sum())
        for ids, wanted in zip(found, right, strict=True)
    )
    return hits / max(1, int((right >= 0).sum()))

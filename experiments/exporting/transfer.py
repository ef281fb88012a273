"""Moves rows into a database, so that a run that was killed can go on, and compares the results.

A database keeps a note beside the rows: how many dimensions they have, and what they come from. A
second run with the same source asks for the ids of each batch which of them are there, and writes
the others. Rows of an id that is there are replaced, so that nothing comes twice.
"""

import dataclasses
from typing import Any, Protocol

import numpy as np
import scipy.sparse

from sparse_embed.common.failures import Failure, UsageError
from sparse_embed.common.progress import progress_bar
from sparse_embed.experiments.exporting.rows import Payload, Rows
from sparse_embed.retrieval import SparseIndex

VECTOR = "embedding"  # name of the column, or of the vector
Note = dict[str, Any]
Results = tuple[np.ndarray, np.ndarray]
_POSITIVE = 1e-6  # scores from here on are compared, see `compare`
_ROUNDING = 1e-5


class Target(Protocol):
    """A collection or table that rows are written to.

    Attributes:
        errors: what the database raises when it refuses something.
    """

    errors: tuple[type[Exception], ...]

    def note(self) -> Note | None:
        """The note of the collection; empty if it was not made here, None if there is none yet."""

    def create(self, note: Note) -> None:
        """Makes the collection, with a note."""

    def set_note(self, note: Note) -> None:
        """Replaces the note."""

    def present(self, ids: np.ndarray) -> np.ndarray:
        """Returns which of the ids have a row, as a mask."""

    def write(self, ids: np.ndarray, rows: scipy.sparse.csr_array, payloads: list[Payload]) -> None:
        """Writes rows, in place of those that have one of the ids; they are safe on return."""

    def finish(self) -> None:
        """Called after the last row."""

    def count(self) -> int:
        """The number of rows."""

    def search(self, query: scipy.sparse.csr_array, k: int) -> Results:
        """Returns scores and ids of the k best rows for one query, best first."""

    def close(self) -> None:
        """Ends the connection."""


def transfer(
    rows: Rows, target: Target, batch_rows: int = 1000, upsert: bool = False
) -> tuple[int, int]:
    """Writes all rows that a target lacks.

    Args:
        rows: what to write.
        target: where; it is made if it is not there.
        batch_rows: rows per request.
        upsert: whether to write into a collection of another origin; all rows are written then, in
            place of those of the same id.

    Returns:
        How many rows were written, and how many had been there.

    Raises:
        UsageError: the collection holds something else.
    """
    dims = rows.index.shape[1]
    note = {"dims": dims, "source": rows.mark}
    held = target.note()
    if held is None:
        target.create(note)
    elif "dims" not in held:
        raise UsageError(
            "--collection: it is there, and was not made by `export_index`: name another one"
        )
    elif held["dims"] != dims:
        raise UsageError(
            f"--collection: it has rows of {held['dims']} dimensions: expected {dims}, as in "
            "--source"
        )
    elif upsert:
        target.set_note({**note, "source": None})  # of several from here on
    elif held != note:
        raise UsageError(
            "--collection: it is there, and holds something else: name another one, or write these "
            "rows over those of the same id with --upsert"
        )
    resumed = held is not None and not upsert
    ids = rows.index.ids
    written = 0
    with progress_bar(total=len(ids), desc="exporting", unit="rows", unit_scale=True) as bar:
        for begin in range(0, len(ids), batch_rows):
            batch = ids[begin : begin + batch_rows]
            wanted = batch[~target.present(batch)] if resumed else batch
            if len(wanted):
                target.write(wanted, rows.index.reconstruct(wanted), rows.payloads_of(wanted))
                written += len(wanted)
            bar.update(len(batch))
    target.finish()
    return written, len(ids) - written


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How the results of a target and of the index compare.

    Attributes:
        queries: how many were asked.
        same: of how many the ids are the same, in the same order; those of others differ only where
            scores are the same up to rounding.
        largest_difference: of a score.
    """

    queries: int
    same: int
    largest_difference: float


def compare(
    index: SparseIndex, target: Target, queries: scipy.sparse.csr_array, k: int
) -> Comparison:
    """Compares the k best rows of each query.

    Only scores above 0 count: to an inverted index that keeps no rows, as Qdrant's, a row that
    shares no dimension with the query, and so scores 0, does not exist. Scores may differ by
    rounding, since engines add up in another order, and rows whose scores are the same up to that
    may come in another order, or at the end one in place of the other. So the scores must be the
    same place by place, and each row must have the score that the target says.

    Raises:
        Failure: the results differ.
    """
    wanted, wanted_ids = index.search(queries, k, threshold=_POSITIVE)
    same, largest = 0, 0.0
    for number in range(queries.shape[0]):
        query = queries[[number]]
        scores, ids = target.search(query, k)
        right, right_ids = (x[number][wanted_ids[number] >= 0] for x in (wanted, wanted_ids))
        scores, ids = scores[: len(right)], ids[: len(right)]
        unlike = np.inf
        if len(scores) == len(right) and len(np.unique(ids)) == len(ids):
            true = (index.reconstruct(ids) @ query.T).toarray()[:, 0]
            unlike = max((abs(scores - x).max(initial=0.0) for x in (right, true)), default=0.0)
        if not unlike <= _ROUNDING * max(1.0, abs(right).max(initial=0.0)):
            raise Failure(
                f"query {number}: the database finds {ids.tolist()} with scores {scores.tolist()}, "
                f"SparseIndex {right_ids.tolist()} with {right.tolist()}"
            )
        same += np.array_equal(ids, right_ids)
        largest = max(largest, float(unlike))
    return Comparison(queries.shape[0], same, largest)

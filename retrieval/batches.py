"""Rows that come in batches, in pieces that fill whole blocks of an index.

An index builds its last block anew when rows are added to one that is not full. Pieces of whole
blocks spare it that, whatever the batches are.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from sparse_embed.retrieval import _index
from sparse_embed.retrieval.inputs import canonical_csr, new_ids

_MOST_ROWS = 1 << 18  # of a piece: whole blocks, however large they are


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows, and their ids unless the index is to choose them."""

    rows: _index.Csr
    ids: np.ndarray | None

    def __len__(self) -> int:
        return self.rows.shape[0]

    def part(self, begin: int, end: int) -> "Batch":
        """Some of the rows; shares the memory of all."""
        indptr, indices, values = (np.asarray(array) for array in self.rows.arrays)
        first, last = indptr[begin], indptr[end]
        rows = _index.Csr(
            (end - begin, self.rows.shape[1]),
            indptr[begin : end + 1] - first,
            indices[first:last],
            values[first:last],
        )
        return Batch(rows, None if self.ids is None else self.ids[begin:end])


def joined(batches: list[Batch]) -> Batch:
    """The rows of several batches, in memory of their own; all have ids or none has."""
    arrays = [[np.asarray(array) for array in batch.rows.arrays] for batch in batches]
    counts = np.concatenate([np.diff(indptr) for indptr, _, _ in arrays])
    rows = _index.Csr(
        (len(counts), batches[0].rows.shape[1]),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate([indices[: indptr[-1]] for indptr, indices, _ in arrays]),
        np.concatenate([values[: indptr[-1]] for indptr, _, values in arrays]),
    )
    ids = [batch.ids for batch in batches if batch.ids is not None]
    return Batch(rows, np.concatenate(ids) if ids else None)


def is_stream(x: Any) -> bool:
    """Whether `x` is an iterator, or a list of matrices, rather than a matrix."""
    if isinstance(x, list | tuple):
        return bool(x) and getattr(matrix(x[0]), "ndim", 0) == 2
    return isinstance(x, Iterator)


def read(stream: Iterable[Any]) -> Iterator[Batch]:
    """Yields the batches of a stream of matrices, or of pairs (matrix, ids).

    Raises:
        ValueError: a batch has other dimensions than the first, or only some have ids; as for
            `canonical_csr` and `new_ids`.
    """
    dims, with_ids, number = None, None, 0
    for given in stream:
        name = f"batch {number} of csr"
        pair = isinstance(given, tuple) and len(given) == 2
        if with_ids not in (None, pair):
            raise ValueError(f"{name} comes {'with' if pair else 'without'} ids, unlike the first")
        rows = canonical_csr(name, matrix(given), dims)
        dims, with_ids, number = rows.shape[1], pair, number + 1
        try:
            ids = new_ids(given[1], rows.shape[0]) if pair else None
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        yield Batch(rows, ids)
        del given, rows, ids  # before the next batch is made; `enumerate` would keep the last one


def whole_blocks(batches: Iterable[Batch], block_rows: int) -> Iterator[Batch]:
    """Yields the rows of all batches in pieces of some blocks; the last piece is what is left.

    Keeps less than a block beside the batch that it reads.
    """
    kept: list[Batch] = []
    missing = block_rows  # rows to the end of the block that `kept` begins
    for batch in batches:
        begin = 0
        if kept and len(batch) >= missing:
            begin = missing
            yield joined([*kept, batch.part(0, begin)])
            kept, missing = [], block_rows
        end = begin + (0 if kept else (len(batch) - begin) // block_rows * block_rows)
        for start in range(begin, end, _MOST_ROWS):
            yield batch.part(start, min(start + _MOST_ROWS, end))
        if end < len(batch):
            kept.append(joined([batch.part(end, len(batch))]))
            missing -= len(batch) - end
        del batch  # before the next one is made
    if kept:
        yield joined(kept)


def matrix(given: Any) -> Any:
    """The matrix of a batch, which is that alone or a pair (matrix, ids)."""
    return given[0] if isinstance(given, tuple) and len(given) == 2 else given


def block_rows(rows: _index.Csr) -> int:
    """How many rows of this kind a block should hold."""
    count, dims = rows.shape
    size = 8192
    mean_list = len(rows.arrays[2]) / max(count, 1) / max(dims, 1) * size
    while size < 32768 and mean_list < 128:  # short lists cost more than far accumulators
        size, mean_list = 2 * size, 2 * mean_list
    return size

"""Exact maximum inner product search over sparse rows."""

import itertools
import numbers
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.checks import check_choice, check_number
from sparse_embed.common.progress import progress_bar
from sparse_embed.retrieval import _index, batches, index_file, tuning
from sparse_embed.retrieval.batches import Batch
from sparse_embed.retrieval.index_file import MAX_DIMS, MAX_ROWS
from sparse_embed.retrieval.inputs import (
    MAX_ID,
    Matrix,
    canonical_csr,
    id_array,
    new_ids,
    score_floor,
    selection,
)

_MOST_THREADS = 1024


class SparseIndex:
    """An exact inverted index over sparse rows, with the results of Algorithm 1 in less time.

    Rows get the ids 0, 1, 2, ... in the order in which they are added, or ids of your own. Ids are
    stable: no other row's removal changes them, and by default the id of a removed row is not given
    out again. Any thread may search, save and change the index at any time: a search or a save sees
    the index as it was when it began, and a call that raises leaves it as it was. An index survives
    `os.fork`, and can be copied and pickled, which is done through the file format.

    Example:
        >>> index = SparseIndex.build(np.eye(3))
        >>> index.search(np.array([[0.0, 1.0, 0.5]]), k=2)
        (array([[1. , 0.5]], dtype=float32), array([[1, 2]]))

    Args:
        dims: the number of dimensions (columns) of rows and queries.
        block_rows: rows per block, a power of two from 64 to 32,768. A block's accumulators should
            fit the first-level cache (4 bytes each) and its lists not be short; `build` chooses.
    """

    def __init__(self, dims: int, block_rows: int = 8192):
        check_number("dims", dims, integer=True, minimum=0, maximum=MAX_DIMS)
        check_number("block_rows", block_rows, integer=True)
        if block_rows not in [2**shift for shift in range(6, 16)]:
            raise ValueError(f"block_rows={block_rows!r}: expected a power of two, 64 to 32768")
        self._open(_index.SparseIndex(dims, int(block_rows).bit_length() - 1))

    def _open(self, index: _index.SparseIndex) -> None:
        self._index = index
        self._kernels = _index.KERNELS[0]
        self._way = "cheapest"  # or "cells", "accumulate": what tests compare

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are the bytes of a file."""
        content = b"".join(index_file.parts(self._index.snapshot()))
        return _from_bytes, (type(self), content, self._kernels)

    @classmethod
    def build(
        cls,
        csr: Matrix | Iterable[Matrix | tuple[Matrix, np.ndarray]],
        ids: np.ndarray | None = None,
        num_threads: int = 1,
        progress: bool = False,
    ) -> "SparseIndex":
        """Indexes the rows of a matrix, or of matrices that come one after the other.

        Args:
            csr: one row per item; or an iterator (or a list) of such matrices, of which one at a
                time is needed in memory, or of pairs `(matrix, ids)`.
            ids: an id for each row of the matrix, see `add`; by default row i gets id i.
            num_threads: threads to use.
            progress: whether to draw a progress bar.
        """
        if not batches.is_stream(csr):
            rows = canonical_csr("csr", csr)
            stream, total = iter([Batch(rows, new_ids(ids, rows.shape[0]))]), rows.shape[0]
        elif ids is not None:
            raise ValueError("ids is given, but csr yields batches: expected pairs (matrix, ids)")
        else:
            stream, total = batches.read(csr), None
        first = next(stream, None)
        if first is None:
            raise ValueError("csr yields nothing: expected a matrix, which tells the dimensions")
        block_rows = batches.block_rows(first.rows)
        index = cls(first.rows.shape[1], block_rows)
        if total is not None and not progress:
            index._add(first, num_threads)
            return index
        stream = itertools.chain([first], stream)
        del first  # the chain lets go of it when it has been read
        with progress_bar(total=total, unit="rows", disable=not progress) as bar:
            for piece in batches.whole_blocks(stream, block_rows):
                index._add(piece, num_threads)
                bar.update(len(piece))
                del piece  # before the next one is made
        return index

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, dimensions); rows that were removed count until `compact`, see `len`."""
        return self._index.shape

    def __len__(self) -> int:
        """Number of rows that can be found: those added and not removed."""
        state = self._index.snapshot()
        return state.rows - state.num_removed

    def __contains__(self, id: object) -> bool:
        """Whether a row has this id, and was not removed."""
        if not isinstance(id, numbers.Integral) or isinstance(id, bool):
            return False
        return 0 <= int(id) <= MAX_ID and self._index.snapshot().has(int(id))

    @property
    def ids(self) -> np.ndarray:
        """The ids of all rows that can be found, rising."""
        return np.sort(self._index.snapshot().living_ids())

    @property
    def next_id(self) -> int:
        """The id that the next row gets by default: one more than the largest ever given."""
        return self._index.snapshot().next_id

    @property
    def nbytes(self) -> int:
        """Bytes of everything in the index; see `nbytes_by_part`."""
        return sum(self.nbytes_by_part.values())

    @property
    def nbytes_by_part(self) -> dict[str, int]:
        """Bytes of `postings` (accumulation), `rows` (exact scores), `cells` (bounds), `other`."""
        return self._index.snapshot().nbytes

    @property
    def settings(self) -> dict[str, int]:
        """The settings to keep in a record of this search: none affects its results."""
        return {}

    @property
    def kernels(self) -> str:
        """Instruction set of the inner loops; set it to one of `available_kernels()`."""
        return self._kernels

    @kernels.setter
    def kernels(self, name: str) -> None:
        self._kernels = check_choice("kernels", name, available_kernels())

    def add(self, csr: Matrix, ids: np.ndarray | None = None, num_threads: int = 1) -> np.ndarray:
        """Appends rows and returns their ids.

        The last block is built anew if it was not full, so few large calls are faster than many
        small ones.

        Args:
            csr: one row per item.
            ids: an id for each row: integers >= 0 that no other row has. The id of a removed row
                may be given again. By default the ids go on after the largest so far.
            num_threads: threads to use.
        """
        rows = canonical_csr("csr", csr, self.shape[1])
        return self._add(Batch(rows, new_ids(ids, rows.shape[0])), num_threads)

    def _add(self, batch: Batch, num_threads: int) -> np.ndarray:
        _check_threads(num_threads)
        self._check_room("csr", len(batch))
        begin = self._index.add(batch.rows, batch.ids, MAX_ROWS, num_threads)
        return np.arange(begin, begin + len(batch)) if batch.ids is None else batch.ids.copy()

    def remove(self, ids: np.ndarray) -> int:
        """Removes rows: they are no longer found. `compact` frees their memory.

        Args:
            ids: ids of rows; those removed before are ignored.

        Returns:
            How many rows were removed by this call.

        Raises:
            ValueError: no row ever had one of the ids; nothing is removed then.
        """
        return self._index.remove(id_array("ids", ids))

    def compact(self, num_threads: int = 1) -> None:
        """Frees the memory of removed rows; results and ids stay as they are.

        The blocks are built anew in memory, also those of a mapped file. The ids of removed rows
        are forgotten: to `remove` they are unknown then. New rows still get higher ids by default.
        """
        _check_threads(num_threads)
        self._index.compact(num_threads)

    def merge(self, other: "SparseIndex", num_threads: int = 1) -> None:
        """Adds the rows of another index, with their ids; `other` stays as it is.

        Raises:
            ValueError: both have an id, or they have different dimensions.
        """
        _check_threads(num_threads)
        if not isinstance(other, SparseIndex):
            raise ValueError(f"other={other!r}: expected a SparseIndex")
        if other.shape[1] != self.shape[1]:
            raise ValueError(f"other has {other.shape[1]} dimensions: expected {self.shape[1]}")
        state = other._index.snapshot()
        self._check_room("other", state.rows - state.num_removed)
        self._index.merge(state, MAX_ROWS, num_threads)

    def reconstruct(self, ids: np.ndarray) -> scipy.sparse.csr_array:
        """The rows that have these ids, in this order, with exactly the values that were added.

        Columns are sorted, and zeros are not stored, however the rows were given.

        Raises:
            ValueError: no row has one of the ids.
        """
        wanted = id_array("ids", ids)
        indptr, columns, values = self._index.snapshot().reconstruct(wanted)
        return scipy.sparse.csr_array((values, columns, indptr), shape=(len(wanted), self.shape[1]))

    def search(
        self,
        queries: Matrix,
        k: int = 1000,
        threshold: float | None = None,
        num_threads: int = 1,
        allowed: np.ndarray | None = None,
        forbidden: np.ndarray | None = None,
        effort: float = 1.0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the k rows of largest inner product with each query.

        Args:
            queries: one query per row, dense or sparse.
            k: how many results per query.
            threshold: smallest score that is returned; None returns the k best whatever their
                score, including rows that share no dimension with the query (score 0).
            num_threads: threads to use, over queries or, for few queries, over the rows.
            allowed: the rows that may be found, as if the index had no others: their ids, or a
                boolean mask in which id i has place i. Ids that no row has are ignored. A mask has
                a place for every id so far, or more; removed rows count.
            forbidden: the rows that may not be found, instead of `allowed`.
            effort: the share of a query's weight, sum_j |q_j|, that decides which rows are scored.
                Below 1 the lightest of its dimensions have no say in that, which is faster, and
                rows may be missed; scores are exact all the same. `tune` measures how many. Which
                ones depends on `num_threads` and on what was fast before, too.

        Returns:
            `(scores, ids)`, arrays (queries, k), best first, ties by lower id, unused places
            -inf / -1. The same, bit for bit, as `algorithm1_search`, unless `effort` is below 1.
        """
        check_number("k", k, integer=True, minimum=1, maximum=MAX_ROWS)
        check_number("effort", effort, above=0, maximum=1)
        rows = max(self.shape[0], 1)
        # No more places than there are rows: what is beyond them is filled up here.
        found = self._index.search(
            *self._checked(queries, threshold, num_threads, allowed, forbidden),
            min(k, rows),
            effort,
        )
        return found if k <= rows else widened(*found, k)

    def tune(
        self,
        queries: Matrix,
        k: int = 10,
        recall: float = 0.99,
        threshold: float | None = None,
        num_threads: int = 1,
    ) -> float:
        """Returns the least `effort` at which `search` finds the share `recall` of these results.

        It is measured on these queries, against the exact results of this index; it promises
        nothing about other queries. See `tuning.least_effort`.
        """
        return tuning.least_effort(self, queries, k, recall, threshold, num_threads)

    def range_search(
        self,
        queries: Matrix,
        threshold: float,
        num_threads: int = 1,
        allowed: np.ndarray | None = None,
        forbidden: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Finds all rows whose inner product with a query is at least `threshold`.

        Args:
            queries: one query per row, dense or sparse.
            threshold: smallest score that is returned. If it is not above 0, rows that share no
                dimension with the query belong to its results.
            num_threads: threads to use, over queries or, for few queries, over the rows.
            allowed: the rows that may be found, as for `search`.
            forbidden: the rows that may not be found, instead of `allowed`.

        Returns:
            `(offsets, scores, ids)`: the results of query i are those from `offsets[i]` up to
            `offsets[i + 1]`, best first, ties by lower id. The memory that it takes grows with
            their number.
        """
        check_number("threshold", threshold)
        return self._index.range_search(
            *self._checked(queries, threshold, num_threads, allowed, forbidden)
        )

    def _checked(
        self,
        queries: Matrix,
        threshold: float | None,
        num_threads: int,
        allowed: np.ndarray | None,
        forbidden: np.ndarray | None,
    ) -> tuple[_index.Csr, float, _index.Selection | None, int, str, str]:
        """Returns the first arguments of a compiled search."""
        _check_threads(num_threads)
        csr = canonical_csr("queries", queries, self.shape[1])
        chosen = selection(allowed, forbidden)
        return csr, score_floor(threshold), chosen, num_threads, self._kernels, self._way

    def _check_room(self, name: str, rows: int) -> None:
        room = MAX_ROWS - self.shape[0]
        if rows > room:
            raise ValueError(
                f"{name} has {rows} rows: expected at most {room} more, an index holds {MAX_ROWS}"
            )

    def flops(self, queries: Matrix) -> np.ndarray:
        """Multiply-adds of Algorithm 1 for each query: the summed lengths of its posting lists."""
        csr = canonical_csr("queries", queries, self.shape[1])
        indptr, indices, values = (np.asarray(array) for array in csr.arrays)
        lengths = self._index.snapshot().list_lengths
        work = np.where(values != 0, lengths[indices], 0).astype(np.int64)
        return np.diff(np.concatenate([[0], np.cumsum(work)])[indptr])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the index to a file, replacing it only when the new one is complete."""
        index_file.save(self._index, path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], mmap: bool = True, verify: bool | None = None
    ) -> "SparseIndex":
        """Opens an index file.

        Args:
            path: a file written by `save`.
            mmap: whether to use the file where it lies, which takes milliseconds and shares memory
                between processes, rather than to read it. A mapped file should not be changed in
                place (`cp` over it, or truncating it): calls that read it raise IndexFileError from
                then on, also those under way, and change nothing. To rename another file to its
                place, as `save` does, is safe. With `mmap=False` nothing that happens to the file
                matters.
            verify: whether to compute the checksums of all data; None does so unless `mmap`. The
                structure of the file is always checked, so that damaged data can give wrong results
                but never reach outside the file.

        Raises:
            IndexFileError: (a ValueError) if the file is not a whole, undamaged index file.
        """
        index = cls.__new__(cls)
        index._open(index_file.load(path, mmap, not mmap if verify is None else verify))
        return index


def widened(scores: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Fills results up to k places with -inf and -1."""
    try:
        wide_scores = np.full((len(scores), k), -np.inf, np.float32)
        wide_ids = np.full((len(ids), k), -1, np.int64)
    except MemoryError as error:
        raise MemoryError(f"k={k}: {len(ids)} x {k} results do not fit into memory") from error
    wide_scores[:, : scores.shape[1]], wide_ids[:, : ids.shape[1]] = scores, ids
    return wide_scores, wide_ids


def _from_bytes(cls: type[SparseIndex], content: bytes, kernels: str) -> SparseIndex:
    """Returns the index that was pickled, perhaps on a machine with other instruction sets."""
    index = cls.__new__(cls)
    index._open(index_file.open_content(memoryview(content), verify=True))
    if kernels in available_kernels():
        index._kernels = kernels
    return index


def available_kernels() -> tuple[str, ...]:
    """Instruction sets that this machine has code for, fastest first."""
    return _index.KERNELS


def _check_threads(num_threads: int) -> None:
    check_number("num_threads", num_threads, integer=True, minimum=1, maximum=_MOST_THREADS)

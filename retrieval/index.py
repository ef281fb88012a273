"""Exact maximum inner product search over sparse rows."""

import os
import weakref
from typing import Any

import numpy as np

from sparse_embed.common.checks import check_choice, check_number
from sparse_embed.retrieval import _index, index_file
from sparse_embed.retrieval.index_file import MAX_DIMS, MAX_ROWS, MappedFile
from sparse_embed.retrieval.inputs import Matrix, canonical_csr

_MOST_THREADS = 1024


def algorithm1_search(
    csr: Matrix, queries: Matrix, k: int = 1000, threshold: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The paper's Algorithm 1 as written: posting lists, a score vector, threshold, nth_element.

    Scores are float32 sums of products in order of increasing dimension.

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
    """Algorithm 1 that keeps its posting lists, so that building and searching are timed apart."""

    def __init__(self, csr: Matrix):
        rows = canonical_csr("csr", csr)
        self._index = _index.Algorithm1(rows)
        self._shape = rows.shape

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, dimensions)."""
        return self._shape

    @property
    def nbytes(self) -> int:
        """Bytes of the posting lists."""
        return self._index.nbytes

    @property
    def settings(self) -> dict[str, int]:
        """The settings to keep in a record of this search: it has none."""
        return {}

    def search(
        self,
        queries: Matrix,
        k: int = 1000,
        threshold: float | None = None,
        num_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `algorithm1_search`; uses one thread, whatever `num_threads` is."""
        del num_threads
        k = check_number("k", k, integer=True, minimum=1)
        csr = canonical_csr("queries", queries, self.shape[1])
        return self._index.search(csr, k, _score_floor(threshold))


class SparseIndex:
    """An exact inverted index over sparse rows, with the results of Algorithm 1 in less time.

    Rows get the ids 0, 1, 2, ... in the order in which they are added. Ids are stable: removing
    rows neither shifts nor frees ids. Any thread may search, save, add and remove at any time: a
    search or a save sees the index as it was when it began. An index survives `os.fork`, and can be
    copied and pickled, which is done through the file format.

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

    def _open(self, index: _index.SparseIndex, mapped: MappedFile | None = None) -> None:
        self._index, self._mapped = index, mapped
        self._kernels = _index.KERNELS[0]
        self._way = "cheapest"  # or "cells", "accumulate": what tests compare
        _living.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are the bytes of a file."""
        content = b"".join(index_file.parts(self._index.snapshot()))
        return _from_bytes, (type(self), content, self._kernels)

    @classmethod
    def build(cls, csr: Matrix, num_threads: int = 1) -> "SparseIndex":
        """Indexes the rows of `csr`; row i gets id i."""
        rows = canonical_csr("csr", csr)
        count, dims = rows.shape
        block_rows = 8192
        mean_list = len(rows.arrays[2]) / max(count, 1) / max(dims, 1) * block_rows
        while block_rows < 32768 and mean_list < 128:  # short lists cost more than far accumulators
            block_rows, mean_list = 2 * block_rows, 2 * mean_list
        index = cls(dims, block_rows)
        index._add(rows, num_threads)
        return index

    @property
    def shape(self) -> tuple[int, int]:
        """(ids given out so far, dimensions); removed rows count, see `len`."""
        return self._index.shape

    def __len__(self) -> int:
        """Number of rows that can be found: those added and not removed."""
        state = self._index.snapshot()
        return state.rows - state.num_removed

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

    def add(self, csr: Matrix, num_threads: int = 1) -> np.ndarray:
        """Appends rows and returns their ids.

        The last block is built anew if it was not full, so few large calls are faster than many
        small ones.
        """
        return self._add(canonical_csr("csr", csr, self.shape[1]), num_threads)

    def _add(self, rows: _index.Csr, num_threads: int) -> np.ndarray:
        check_number("num_threads", num_threads, integer=True, minimum=1, maximum=_MOST_THREADS)
        count = rows.shape[0]
        if self.shape[0] + count > MAX_ROWS:
            raise ValueError(
                f"csr has {count} rows: expected at most {MAX_ROWS - self.shape[0]} more, an index "
                f"holds {MAX_ROWS}"
            )
        begin = self._index.add(rows, MAX_ROWS, num_threads)
        return np.arange(begin, begin + count)

    def remove(self, ids: np.ndarray) -> int:
        """Removes rows: they are no longer found. Their memory is not freed.

        Args:
            ids: ids of rows; those removed before are ignored.

        Returns:
            How many rows were removed by this call.
        """
        ids = np.atleast_1d(np.asarray(ids))
        if ids.size and (ids.ndim != 1 or ids.dtype.kind not in "iu"):
            raise ValueError(f"ids has dtype {ids.dtype} and shape {ids.shape}: expected integers")
        wrong = ids[(ids < 0) | (ids >= self.shape[0])]
        if wrong.size:
            raise ValueError(f"ids holds {wrong[0]}: expected 0 <= id < {self.shape[0]}")
        return self._index.remove(np.ascontiguousarray(ids, np.int64))

    def search(
        self,
        queries: Matrix,
        k: int = 1000,
        threshold: float | None = None,
        num_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the k rows of largest inner product with each query.

        Args:
            queries: one query per row, dense or sparse.
            k: how many results per query.
            threshold: smallest score that is returned; None returns the k best whatever their
                score, including rows that share no dimension with the query (score 0).
            num_threads: threads to use, over queries or, for few queries, over the rows.

        Returns:
            `(scores, ids)`, arrays (queries, k), best first, ties by lower id, unused places
            -inf / -1. The same, bit for bit, as `algorithm1_search`.
        """
        check_number("k", k, integer=True, minimum=1, maximum=MAX_ROWS)
        check_number("num_threads", num_threads, integer=True, minimum=1, maximum=_MOST_THREADS)
        rows, dims = self.shape
        csr = canonical_csr("queries", queries, dims)
        if self._mapped is not None:
            self._mapped.check()
        # No more places than there are rows: what is beyond them is filled up here.
        found = self._index.search(
            csr,
            min(k, max(rows, 1)),
            _score_floor(threshold),
            num_threads,
            self._kernels,
            self._way,
        )
        return (found[0], found[1]) if k <= max(rows, 1) else _widened(*found, k)

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
                between processes, rather than to read it. A mapped file must not be changed in
                place (`cp` over it, or truncating it): a search that finds it changed raises
                IndexFileError, but a change in the middle of a search can end the process. To
                rename another file to its place, as `save` does, is safe. With `mmap=False`
                nothing that happens to the file matters.
            verify: whether to compute the checksums of all data; None does so unless `mmap`. The
                structure of the file is always checked, so that damaged data can give wrong results
                but never reach outside the file.

        Raises:
            IndexFileError: (a ValueError) if the file is not a whole, undamaged index file.
        """
        index = cls.__new__(cls)
        index._open(*index_file.load(path, mmap, not mmap if verify is None else verify))
        return index


def _widened(scores: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
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


# A fork copies the locks of all indexes: nobody may be within one at that moment.
_living: "weakref.WeakSet[SparseIndex]" = weakref.WeakSet()
_forking: list[_index.SparseIndex] = []


def _before_fork() -> None:
    _forking.extend(index._index for index in list(_living))
    for index in _forking:
        index.before_fork()


def _after_fork(in_child: bool) -> None:
    while _forking:
        _forking.pop().after_fork(in_child)


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(False),
    after_in_child=lambda: _after_fork(True),
)


def available_kernels() -> tuple[str, ...]:
    """Instruction sets that this machine has code for, fastest first."""
    return _index.KERNELS


def _score_floor(threshold: float | None) -> float:
    """The float32 that scores are compared with: `threshold`, or -inf for None."""
    if threshold is None:
        return -np.inf
    return float(np.float32(check_number("threshold", threshold)))

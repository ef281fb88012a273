"""What answers for one shard. Ray runs it in a process of its own; it does not need Ray itself."""

import os
import pathlib
import socket
import threading
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from sparse_embed.common.failures import DataError
from sparse_embed.retrieval.index import SparseIndex
from sparse_embed.retrieval.shard_folder import Shard, open_shard

_KEPT = 2  # states of the shard: searches that began before a removal end on the one before it


class Request(NamedTuple):
    """A search, checked; the fields are the arguments of `SparseIndex.search`."""

    shape: tuple[int, int]
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray]  # of the queries: indptr, columns, values
    k: int
    options: dict[str, Any]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = [*self.arrays, *self.options.values()]
        return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


class ShardServer:
    """Opens the files of a shard by memory mapping, and searches it.

    Nothing is opened before the first call, so that a file that cannot be opened is an error of
    the call and not the end of the process.

    Args:
        folder: of the sharded index.
        dims: dimensions of its rows.
    """

    def __init__(self, folder: pathlib.Path, dims: int):
        self._folder, self._dims = folder, dims
        self._lock = threading.Lock()
        self._states: dict[Shard, SparseIndex] = {}

    def search(self, shard: Shard, request: Request) -> tuple[np.ndarray, np.ndarray]:
        """Returns what `SparseIndex.search` finds in the shard, in no more places than its rows."""
        index = self._state(shard)
        indptr, columns, values = request.arrays
        queries = scipy.sparse.csr_array((values, columns, indptr), shape=request.shape)
        k = min(request.k, max(len(index), 1))
        try:
            return index.search(queries, k, **request.options)
        except DataError:  # the file was changed in place: if it is put back, it is opened anew
            with self._lock:
                self._states.pop(shard, None)
            raise

    def health(self, shard: Shard, request: None = None) -> dict[str, Any]:
        """Returns where this process runs, after it has opened the shard."""
        self._state(shard)
        return {"host": socket.gethostname(), "pid": os.getpid()}

    def _state(self, shard: Shard) -> SparseIndex:
        with self._lock:
            if shard not in self._states:
                index = open_shard(self._folder, shard, self._dims)
                while len(self._states) >= _KEPT:
                    del self._states[next(iter(self._states))]
                self._states[shard] = index
            return self._states[shard]

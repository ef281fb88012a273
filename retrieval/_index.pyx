# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Thin bindings of the C++ headers beside this file; the callers check the arguments."""

import numpy as np

from cpython.buffer cimport PyBuffer_FillInfo

from sparse_embed.common.failures import DataError

include "headers.pxi"


class IndexFileError(DataError):
    """A file that is not a whole, undamaged index file of a known version."""


set_file_changed_error(IndexFileError)


KERNELS = tuple(name.decode() for name in available_kernels())
"""Names of the instruction sets that this machine can run, fastest first."""

INVALID, UNSORTED, CANONICAL = 0, 1, 2
"""The results of `Csr.check`."""


cdef class Csr:
    """A CSR matrix whose arrays this object keeps alive (see `inputs.canonical_csr`)."""

    cdef CsrView view
    cdef readonly object arrays
    cdef readonly tuple shape

    def __init__(self, tuple shape, const int64_t[::1] indptr not None,
                 const int32_t[::1] indices not None, const float[::1] values not None):
        if indptr.shape[0] != shape[0] + 1 or indices.shape[0] != values.shape[0] or (
                indptr[indptr.shape[0] - 1] > values.shape[0]):
            raise ValueError("the arrays of a CSR matrix have inconsistent lengths")
        self.arrays = (indptr, indices, values)
        self.shape = shape
        self.view.rows = shape[0]
        self.view.dims = shape[1]
        self.view.indptr = &indptr[0]
        self.view.indices = &indices[0] if indices.shape[0] else NULL
        self.view.values = &values[0] if values.shape[0] else NULL

    def check(self):
        """INVALID (indices outside the shape), UNSORTED (or duplicate columns) or CANONICAL."""
        cdef int found
        with nogil:
            found = check_csr(self.view)
        return found

    def largest(self, int64_t k):
        """Whether each value is among the k largest of its row, and not zero."""
        kept = np.empty(self.view.indptr[self.view.rows], np.uint8)
        cdef uint8_t[::1] view = kept
        cdef uint8_t* out = &view[0] if view.shape[0] else NULL
        with nogil:
            mark_largest(self.view, k, out)
        return kept.view(np.bool_)


cdef class Algorithm1:
    """See `algorithm1.h`."""

    cdef unique_ptr[CppAlgorithm1] index

    def __init__(self, Csr matrix not None):
        cdef CppAlgorithm1* made
        with nogil:
            made = new CppAlgorithm1(matrix.view)
        self.index.reset(made)

    @property
    def nbytes(self):
        return self.index.get().nbytes()

    def search(self, Csr queries not None, size_t k, float threshold):
        scores = np.empty((queries.view.rows, k), np.float32)
        ids = np.empty((queries.view.rows, k), np.int64)
        cdef float[:, ::1] scores_view = scores
        cdef int64_t[:, ::1] ids_view = ids
        if queries.view.rows:
            with nogil:
                self.index.get().search(queries.view, k, threshold, &scores_view[0, 0],
                                        &ids_view[0, 0])
        return scores, ids


cdef class Selection:
    """Rows that may be found, or may not: their ids, or a mask in which id i has place i."""

    cdef SelectionView view
    cdef object array

    def __init__(self, array not None, bint forbidden):
        cdef const int64_t[::1] ids
        cdef const uint8_t[::1] mask
        self.array = array
        self.view.forbidden = forbidden
        self.view.masked = array.dtype == np.bool_
        self.view.count = array.size
        if self.view.masked:
            mask = array.view(np.uint8)
            self.view.mask = &mask[0] if mask.shape[0] else NULL
        else:
            ids = array
            self.view.ids = &ids[0] if ids.shape[0] else NULL


cdef class Mapping:
    """The bytes of a file that is used where it lies, as a buffer; see `mapping.h`."""

    cdef MappingPointer mapping

    def __cinit__(self, int file, bytes changed not None):
        """Maps an open file; `changed` is what to say when it has been changed in place."""
        self.mapping = map_file(file, changed)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        cdef const void* begin = self.mapping.get().data()
        if begin == NULL:
            begin = b""
        PyBuffer_FillInfo(buffer, self, <void*>begin, self.mapping.get().size(), 1, flags)


cdef class SnapshotBytes:
    """Memory of a snapshot as a buffer, which keeps it for as long as anybody looks at it."""

    cdef object owner
    cdef const void* begin
    cdef Py_ssize_t count

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*>self.begin, self.count, 1, flags)


cdef class Snapshot:
    """What an index was at one moment; changes of the index do not change it."""

    cdef StatePointer state
    cdef readonly uint64_t dims

    cdef view(self, const void* begin, uint64_t count):
        cdef SnapshotBytes made = SnapshotBytes.__new__(SnapshotBytes)
        made.owner = self
        made.begin = begin if begin != NULL else <const char*>b""
        made.count = count if begin != NULL else 0
        return memoryview(made)

    @property
    def rows(self):
        return self.state.get().rows()

    @property
    def num_removed(self):
        return self.state.get().num_removed

    @property
    def shift(self):
        return self.state.get().blocks.shift

    @property
    def list_lengths(self):
        return np.array(self.state.get().list_lengths, np.uint64)

    @property
    def removed(self):
        return np.array(self.state.get().removed, np.uint64)

    @property
    def next_id(self):
        return self.state.get().ids.next()

    @property
    def id_arrays(self):
        """Bytes of the ids by rank, the rows by rank and the ranks by row; empty if not needed."""
        cdef const Ids* ids = &self.state.get().ids
        return [
            self.view(ids.sorted(), 8 * ids.size()),
            self.view(ids.rows(), 4 * ids.size()),
            self.view(ids.ranks(), 4 * ids.size()),
        ]

    @property
    def blocks(self):
        """The blocks' bytes."""
        cdef const State* state = self.state.get()
        return [
            self.view(state.blocks.views[b].buffer, state.blocks.views[b].header.bytes)
            for b in range(state.blocks.views.size())
        ]

    @property
    def nbytes(self):
        cdef uint64_t postings, rows, cells, other
        CppSparseIndex.nbytes(self.state.get()[0], &postings, &rows, &cells, &other)
        return {"postings": postings, "rows": rows, "cells": cells, "other": other}

    def require_intact(self):
        """To be called after `blocks` were read: raises IndexFileError if they may be wrong."""
        self.state.get().require_intact()

    def living_ids(self):
        """The ids of the rows that were not removed, in no particular order."""
        cdef vector[int64_t] ids
        with nogil:
            ids = living_ids(self.state.get()[0])
        cdef Py_ssize_t count = ids.size()
        return np.array(<int64_t[:count]>ids.data()) if count else np.empty(0, np.int64)

    def has(self, int64_t id):
        """Whether a row has this id, and was not removed."""
        cdef int64_t row = self.state.get().ids.find(id)
        return row >= 0 and self.state.get().living(<uint32_t>row)

    def reconstruct(self, const int64_t[::1] ids not None):
        """The rows of these ids, as the arrays of a CSR matrix: indptr, indices, values."""
        cdef unique_ptr[Reconstruction] found
        cdef const int64_t* wanted = &ids[0] if ids.shape[0] else NULL
        cdef int64_t[::1] indptr = np.empty(ids.shape[0] + 1, np.int64)
        with nogil:
            found.reset(new Reconstruction(self.state.get()[0], wanted, ids.shape[0]))
            found.get().write_indptr(&indptr[0])
        cdef int32_t[::1] indices = np.empty(indptr[ids.shape[0]], np.int32)
        cdef float[::1] values = np.empty(indptr[ids.shape[0]], np.float32)
        if values.shape[0]:
            with nogil:
                found.get().write(values.shape[0], &indices[0], &values[0])
        return np.asarray(indptr), np.asarray(indices), np.asarray(values)


cdef class SparseIndex:
    """See `sparse_index.h`. Any thread may call anything at any time."""

    cdef unique_ptr[CppSparseIndex] index

    def __init__(self, uint64_t dims, uint32_t shift):
        self.index.reset(new CppSparseIndex(dims, shift))

    @property
    def shape(self):
        return self.snapshot().rows, self.index.get().dims()

    def snapshot(self):
        cdef Snapshot made = Snapshot.__new__(Snapshot)
        made.state = self.index.get().snapshot()
        made.dims = self.index.get().dims()
        return made

    def add(self, Csr matrix not None, const int64_t[::1] ids, uint64_t max_rows,
            size_t num_threads):
        """Appends rows; returns the id of the first if `ids` is None."""
        cdef uint64_t first
        cdef const int64_t* wanted = &ids[0] if ids is not None and ids.shape[0] else NULL
        if ids is not None and ids.shape[0] != matrix.view.rows:
            raise ValueError("not as many ids as rows")
        with nogil:
            first = self.index.get().add(matrix.view, wanted, max_rows, num_threads)
        return first

    def merge(self, Snapshot other not None, uint64_t max_rows, size_t num_threads):
        if other.dims != self.index.get().dims():
            raise ValueError("not as many dimensions")
        with nogil:
            self.index.get().merge(other.state.get()[0], max_rows, num_threads)

    def compact(self, size_t num_threads):
        """Leaves removed rows out of the blocks."""
        with nogil:
            self.index.get().compact(num_threads)

    def attach(self, const uint8_t[::1] block not None, uint64_t rows):
        """Appends a block of an index file; `block` is kept alive."""
        cdef uint64_t bytes = block.shape[0]
        if not bytes:
            raise ValueError("a block is empty")
        self.index.get().attach(&block[0], bytes, rows, python_owner(block.base))

    def restore(self, const uint64_t[::1] list_lengths not None,
                const uint64_t[::1] removed not None, uint64_t next_id,
                const int64_t[::1] sorted_ids not None, const uint32_t[::1] rows not None,
                const uint32_t[::1] ranks not None, Mapping file):
        """Takes over what a file says of all rows; the ids' arrays are kept alive."""
        cdef vector[uint64_t] lengths, bits
        cdef MappingPointer mapping
        if file is not None:
            mapping = file.mapping
        cdef Py_ssize_t i
        for i in range(list_lengths.shape[0]):
            lengths.push_back(list_lengths[i])
        for i in range(removed.shape[0]):
            bits.push_back(removed[i])
        self.index.get().restore(
            lengths, bits, next_id,
            &sorted_ids[0] if sorted_ids.shape[0] else NULL,
            &rows[0] if rows.shape[0] else NULL,
            &ranks[0] if ranks.shape[0] else NULL,
            python_owner((sorted_ids.base, rows.base, ranks.base)), mapping,
        )

    def remove(self, const int64_t[::1] ids not None):
        cdef uint64_t fresh
        if not ids.shape[0]:
            return 0
        with nogil:
            fresh = self.index.get().remove(&ids[0], ids.shape[0])
        return fresh

    def search(self, Csr queries not None, float threshold, Selection selection,
               size_t num_threads, str kernels not None, str way not None, size_t k,
               double effort):
        scores = np.empty((queries.view.rows, k), np.float32)
        ids = np.empty((queries.view.rows, k), np.int64)
        cdef float[:, ::1] scores_view = scores
        cdef int64_t[:, ::1] ids_view = ids
        cdef Request request = make_request(queries, k, threshold, selection, num_threads, kernels,
                                            way, effort)
        if queries.view.rows:
            with nogil:
                self.index.get().search(request, &scores_view[0, 0], &ids_view[0, 0])
        return scores, ids

    def range_search(self, Csr queries not None, float threshold, Selection selection,
                     size_t num_threads, str kernels not None, str way not None):
        """All rows that reach the threshold: where those of each query begin, scores, ids."""
        cdef int64_t[::1] offsets = np.zeros(queries.view.rows + 1, np.int64)
        cdef Request request = make_request(queries, 1, threshold, selection, num_threads, kernels,
                                            way, 1.0)
        cdef RangeResults found
        cdef uint64_t count
        with nogil:
            found = self.index.get().range_search(request)
            count = found.write_offsets(&offsets[0])
        cdef float[::1] scores = np.empty(count, np.float32)
        cdef int64_t[::1] ids = np.empty(count, np.int64)
        if count:
            with nogil:
                found.write(&scores[0], &ids[0])
        return np.asarray(offsets), np.asarray(scores), np.asarray(ids)


cdef Request make_request(Csr queries, size_t k, float threshold, Selection selection,
                          size_t num_threads, str kernels, str way, double effort):
    """Points into `queries` and `selection`."""
    cdef Request request
    request.queries = queries.view
    request.k = k
    request.threshold = threshold
    request.selection = NULL
    if selection is not None:
        request.selection = &selection.view
    request.threads = num_threads
    request.kernels = &kernels_named(kernels.encode())
    request.way = way_named(way.encode())
    request.effort = effort
    return request


ctypedef fused Stored:
    float
    uint16_t  # the bits of a float16


def rerank_rows(const Stored[:, ::1] dense not None, const int64_t[::1] order,
                const float[:, ::1] queries not None, const int64_t[:, ::1] ids not None,
                size_t k, size_t num_threads, str kernels not None):
    """See `rerank.h`."""
    scores = np.empty((queries.shape[0], k), np.float32)
    found = np.empty((queries.shape[0], k), np.int64)
    cdef float[:, ::1] scores_view = scores
    cdef int64_t[:, ::1] found_view = found
    cdef const Kernels* chosen = &kernels_named(kernels.encode())
    cdef const Stored* rows = &dense[0, 0] if dense.shape[0] and dense.shape[1] else NULL
    cdef const int64_t* row_of = &order[0] if order is not None and order.shape[0] else NULL
    cdef const int64_t* shortlist = &ids[0, 0] if ids.shape[0] and ids.shape[1] else NULL
    if queries.shape[0]:
        with nogil:
            rerank(rows, dense.shape[1], row_of, &queries[0, 0], shortlist, queries.shape[0],
                   ids.shape[1], k, num_threads, chosen[0], &scores_view[0, 0],
                   &found_view[0, 0])
    return scores, found

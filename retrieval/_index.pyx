# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Thin bindings of the C++ headers beside this file; the callers check the arguments."""

import numpy as np

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector


cdef extern from "csr.h" namespace "sparse_embed" nogil:
    cdef cppclass CsrView "sparse_embed::Csr":
        int64_t rows
        int64_t dims
        const int64_t* indptr
        const int32_t* indices
        const float* values

    int check_csr(const CsrView&)


cdef extern from "largest.h" namespace "sparse_embed" nogil:
    void mark_largest(const CsrView&, int64_t, uint8_t*) except +


cdef extern from "algorithm1.h" namespace "sparse_embed" nogil:
    cdef cppclass CppAlgorithm1 "sparse_embed::Algorithm1":
        CppAlgorithm1(const CsrView&) except +
        size_t nbytes()
        void search(const CsrView&, size_t, float, float*, int64_t*) except +


cdef extern from "kernels.h" namespace "sparse_embed" nogil:
    cdef cppclass Kernels:
        pass

    vector[string] available_kernels() except +
    const Kernels& kernels_named(const string&) except +


cdef extern from "sparse_index.h" namespace "sparse_embed" nogil:
    cdef cppclass BlockHeader:
        uint64_t bytes

    cdef cppclass BlockView:
        const BlockHeader* header

    cdef cppclass Blocks:
        vector[BlockView] views
        uint32_t shift

    cdef cppclass State:
        Blocks blocks
        vector[uint64_t] list_lengths
        vector[uint64_t] removed
        uint64_t num_removed
        uint64_t rows()

    cdef cppclass Way:
        pass

    Way way_named(const string&) except +

    ctypedef shared_ptr[const State] StatePointer "sparse_embed::SparseIndex::Snapshot"

    cdef cppclass CppSparseIndex "sparse_embed::SparseIndex":
        CppSparseIndex(uint64_t, uint32_t) except +
        uint64_t dims()
        StatePointer snapshot()
        @staticmethod
        void nbytes(const State&, uint64_t*, uint64_t*, uint64_t*, uint64_t*)
        uint64_t add(const CsrView&, uint64_t, size_t) except +
        void attach(const uint8_t*, uint64_t, uint64_t, shared_ptr[uint8_t]) except +
        void restore(vector[uint64_t], vector[uint64_t]) except +
        uint64_t remove(const int64_t*, size_t) except +
        void search(const CsrView&, size_t, float, size_t, const Kernels&, float*,
                    int64_t*, Way) except +
        void before_fork()
        void after_fork(bint) except +


cdef extern from "rerank.h" namespace "sparse_embed" nogil:
    void rerank[T](const T*, int64_t, const float*, const int64_t*, int64_t, int64_t, size_t,
                   size_t, const Kernels&, float*, int64_t*) except +


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


cdef class Snapshot:
    """What an index was at one moment; adding and removing rows does not change it."""

    cdef StatePointer state
    cdef object index  # keeps what attached blocks lie in
    cdef readonly uint64_t dims

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
    def blocks(self):
        """The blocks' bytes, as views that are valid while this object is."""
        cdef const State* state = self.state.get()
        return [
            PyMemoryView_FromMemory(
                <char*>state.blocks.views[b].header, state.blocks.views[b].header.bytes, PyBUF_READ
            )
            for b in range(state.blocks.views.size())
        ]

    @property
    def nbytes(self):
        cdef uint64_t postings, rows, cells, other
        CppSparseIndex.nbytes(self.state.get()[0], &postings, &rows, &cells, &other)
        return {"postings": postings, "rows": rows, "cells": cells, "other": other}


cdef class SparseIndex:
    """See `sparse_index.h`. Any thread may call anything at any time."""

    cdef unique_ptr[CppSparseIndex] index
    cdef list buffers  # the memory of attached blocks

    def __init__(self, uint64_t dims, uint32_t shift):
        self.index.reset(new CppSparseIndex(dims, shift))
        self.buffers = []

    @property
    def shape(self):
        return self.snapshot().rows, self.index.get().dims()

    def snapshot(self):
        cdef Snapshot made = Snapshot.__new__(Snapshot)
        # Not with the interpreter's lock: a thread that forks waits for it with our locks in hand.
        with nogil:
            made.state = self.index.get().snapshot()
        made.index = self
        made.dims = self.index.get().dims()
        return made

    def before_fork(self):
        with nogil:
            self.index.get().before_fork()

    def after_fork(self, bint in_child):
        self.index.get().after_fork(in_child)

    def add(self, Csr matrix not None, uint64_t max_rows, size_t num_threads):
        """Appends rows and returns the id of the first."""
        cdef uint64_t first
        with nogil:
            first = self.index.get().add(matrix.view, max_rows, num_threads)
        return first

    def attach(self, const uint8_t[::1] block not None, uint64_t rows):
        """Appends a block of an index file; `block` is kept alive."""
        cdef uint64_t bytes = block.shape[0]
        if not bytes:
            raise ValueError("a block is empty")
        self.index.get().attach(&block[0], bytes, rows, shared_ptr[uint8_t]())
        self.buffers.append(block)

    def restore(self, const uint64_t[::1] list_lengths not None,
                const uint64_t[::1] removed not None):
        cdef vector[uint64_t] lengths, bits
        cdef Py_ssize_t i
        for i in range(list_lengths.shape[0]):
            lengths.push_back(list_lengths[i])
        for i in range(removed.shape[0]):
            bits.push_back(removed[i])
        self.index.get().restore(lengths, bits)

    def remove(self, const int64_t[::1] ids not None):
        cdef uint64_t fresh
        if not ids.shape[0]:
            return 0
        with nogil:
            fresh = self.index.get().remove(&ids[0], ids.shape[0])
        return fresh

    def search(self, Csr queries not None, size_t k, float threshold, size_t num_threads,
               str kernels not None, str way not None):
        scores = np.empty((queries.view.rows, k), np.float32)
        ids = np.empty((queries.view.rows, k), np.int64)
        cdef float[:, ::1] scores_view = scores
        cdef int64_t[:, ::1] ids_view = ids
        cdef const Kernels* chosen = &kernels_named(kernels.encode())
        cdef Way chosen_way = way_named(way.encode())
        if queries.view.rows:
            with nogil:
                self.index.get().search(queries.view, k, threshold, num_threads, chosen[0],
                                        &scores_view[0, 0], &ids_view[0, 0], chosen_way)
        return scores, ids


ctypedef fused Stored:
    float
    uint16_t  # the bits of a float16


def rerank_rows(const Stored[:, ::1] dense not None, const float[:, ::1] queries not None,
                const int64_t[:, ::1] ids not None, size_t k, size_t num_threads,
                str kernels not None):
    """See `rerank.h`."""
    scores = np.empty((queries.shape[0], k), np.float32)
    found = np.empty((queries.shape[0], k), np.int64)
    cdef float[:, ::1] scores_view = scores
    cdef int64_t[:, ::1] found_view = found
    cdef const Kernels* chosen = &kernels_named(kernels.encode())
    cdef const Stored* rows = &dense[0, 0] if dense.shape[0] and dense.shape[1] else NULL
    cdef const int64_t* shortlist = &ids[0, 0] if ids.shape[0] and ids.shape[1] else NULL
    if queries.shape[0]:
        with nogil:
            rerank(rows, dense.shape[1], &queries[0, 0], shortlist, queries.shape[0],
                   ids.shape[1], k, num_threads, chosen[0], &scores_view[0, 0],
                   &found_view[0, 0])
    return scores, found

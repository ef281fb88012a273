# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Thin bindings of the C++ headers beside this file; arguments are checked by the callers."""

import numpy as np

from libc.stdint cimport int32_t, int64_t
from libcpp.memory cimport unique_ptr


cdef extern from "csr.h" namespace "sparse_embed" nogil:
    cdef cppclass CsrView "sparse_embed::Csr":
        int64_t rows
        int64_t dims
        const int64_t* indptr
        const int32_t* indices
        const float* values


cdef extern from "algorithm1.h" namespace "sparse_embed" nogil:
    cdef cppclass CppAlgorithm1 "sparse_embed::Algorithm1":
        CppAlgorithm1(const CsrView&) except +
        size_t nbytes()
        void search(const CsrView&, size_t, float, float*, int64_t*) except +


cdef class Csr:
    """A canonical CSR matrix (see `inputs.canonical_csr`) whose arrays this object keeps alive."""

    cdef CsrView view
    cdef readonly object arrays

    def __init__(self, tuple shape, const int64_t[::1] indptr, const int32_t[::1] indices,
                 const float[::1] values):
        self.arrays = (indptr, indices, values)
        self.view.rows = shape[0]
        self.view.dims = shape[1]
        self.view.indptr = &indptr[0]
        self.view.indices = &indices[0] if indices.shape[0] else NULL
        self.view.values = &values[0] if values.shape[0] else NULL


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

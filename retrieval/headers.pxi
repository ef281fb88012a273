"""What the C++ headers beside this file offer to `_index.pyx`."""

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


cdef extern from "python_owner.h" namespace "sparse_embed":
    shared_ptr[uint8_t] python_owner(object) except +


cdef extern from "python_errors.h" namespace "sparse_embed":
    void set_file_changed_error(object)
    void raise_python()


cdef extern from "mapping.h" namespace "sparse_embed":
    cdef cppclass CppMapping "sparse_embed::Mapping":
        const uint8_t* data()
        uint64_t size()

    ctypedef shared_ptr[const CppMapping] MappingPointer "sparse_embed::Mapping::Pointer"

    MappingPointer map_file(int, const char*) except +raise_python


cdef extern from "sparse_index.h" namespace "sparse_embed" nogil:
    cdef cppclass BlockHeader:
        uint64_t bytes

    cdef cppclass BlockView:
        const uint8_t* buffer
        const BlockHeader* header

    cdef cppclass Blocks:
        vector[BlockView] views
        uint32_t shift

    cdef cppclass Ids:
        uint64_t size()
        uint64_t next()
        const int64_t* sorted()
        const uint32_t* rows()
        const uint32_t* ranks()
        int64_t find(int64_t)

    cdef cppclass State:
        Blocks blocks
        vector[uint64_t] list_lengths
        vector[uint64_t] removed
        uint64_t num_removed
        Ids ids
        uint64_t rows()
        bint living(uint32_t)
        void require_intact() except +raise_python

    vector[int64_t] living_ids(const State&) except +

    cdef cppclass Reconstruction:
        Reconstruction(const State&, const int64_t*, size_t) except +
        void write_indptr(int64_t*)
        void write(int64_t, int32_t*, float*) except +raise_python

    cdef cppclass SelectionView "sparse_embed::Selection":
        const int64_t* ids
        const uint8_t* mask
        bint masked
        uint64_t count
        bint forbidden

    cdef cppclass Way:
        pass

    Way way_named(const string&) except +

    cdef cppclass Request:
        CsrView queries
        size_t k
        float threshold
        const SelectionView* selection
        size_t threads
        const Kernels* kernels
        Way way
        double effort

    cdef cppclass RangeResults:
        uint64_t write_offsets(int64_t*)
        void write(float*, int64_t*)

    ctypedef shared_ptr[const State] StatePointer "sparse_embed::SparseIndex::Snapshot"

    cdef cppclass CppSparseIndex "sparse_embed::SparseIndex":
        CppSparseIndex(uint64_t, uint32_t) except +
        uint64_t dims()
        StatePointer snapshot()
        @staticmethod
        void nbytes(const State&, uint64_t*, uint64_t*, uint64_t*, uint64_t*)
        uint64_t add(const CsrView&, const int64_t*, uint64_t, size_t) except +raise_python
        void merge(const State&, uint64_t, size_t) except +raise_python
        void compact(size_t) except +raise_python
        void attach(const uint8_t*, uint64_t, uint64_t, shared_ptr[uint8_t]) except +raise_python
        void restore(vector[uint64_t], vector[uint64_t], uint64_t, const int64_t*,
                     const uint32_t*, const uint32_t*, shared_ptr[uint8_t],
                     MappingPointer) except +raise_python
        uint64_t remove(const int64_t*, size_t) except +raise_python
        void search(const Request&, float*, int64_t*) except +raise_python
        RangeResults range_search(const Request&) except +raise_python


cdef extern from "rerank.h" namespace "sparse_embed" nogil:
    void rerank[T](const T*, int64_t, const int64_t*, const float*, const int64_t*, int64_t,
                   int64_t, size_t, size_t, const Kernels&, float*, int64_t*) except +

// A view of a CSR matrix. Everything but `check_csr` expects it to be canonical: columns strictly
// increasing within each row, and finite values.
#pragma once

#include <cstdint>

namespace sparse_embed {

struct Csr {
  int64_t rows;
  int64_t dims;
  const int64_t* indptr;    // rows + 1
  const int32_t* indices;   // indptr[rows]
  const float* values;      // indptr[rows]
};

// Whether offsets or columns lie outside the matrix (0), columns are not strictly increasing (1), or
// the matrix is canonical (2). Values are not checked.
inline int check_csr(const Csr& m) {
  if (m.indptr[0] != 0) return 0;
  bool sorted = true;
  for (int64_t i = 0; i < m.rows; ++i) {
    if (m.indptr[i] > m.indptr[i + 1]) return 0;
  }
  for (int64_t i = 0; i < m.rows; ++i) {
    int64_t last = -1;
    for (int64_t p = m.indptr[i]; p < m.indptr[i + 1]; ++p) {
      const int64_t column = m.indices[p];
      if (column < 0 || column >= m.dims) return 0;
      sorted &= column > last;
      last = column;
    }
  }
  return sorted ? 2 : 1;
}

}  // namespace sparse_embed

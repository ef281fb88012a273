// A view of a canonical CSR matrix: columns strictly increasing within each row, no NaN or infinity.
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

}  // namespace sparse_embed

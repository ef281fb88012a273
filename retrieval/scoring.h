// Exact scores: the float32 sum of products in order of increasing dimension.
//
// This is the order in which Algorithm 1 adds to a row's score (and in which SciPy multiplies), so
// the result has the same bits. Adding the zero products of dimensions that the query lacks changes
// no bit: a sum that began at +0 never becomes -0. The build must not fuse multiplications and
// additions (-ffp-contract=off).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "block.h"
#include "prefetch.h"

namespace sparse_embed {

// A query spread out over all dimensions, zero elsewhere, for looking up.
class DenseQuery {
 public:
  // At least 65,536 places, so that no 16-bit dimension can reach outside.
  explicit DenseQuery(uint64_t dims) : values_(std::max<uint64_t>(dims, 65536), 0.0f) {}

  void set(const int32_t* dims, const float* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) values_[dims[i]] = values[i];
  }
  void clear(const int32_t* dims, int64_t count) {
    for (int64_t i = 0; i < count; ++i) values_[dims[i]] = 0.0f;
  }

  float score(const BlockView& block, uint32_t row) const {
    const uint32_t begin = block.row_starts[row];
    const uint64_t words = block.row_starts[row + 1] - begin;
    const uint64_t count = row_count(words, block.wide());
    const auto* values = reinterpret_cast<const float*>(block.row_data + begin);
    const uint32_t* after = block.row_data + begin + count;
    float sum = 0.0f;
    if (block.wide()) {
      for (uint64_t i = 0; i < count; ++i) {
        if (after[i] < values_.size()) sum += values[i] * values_[after[i]];
      }
    } else {
      const auto* dims = reinterpret_cast<const uint16_t*>(after);
      for (uint64_t i = 0; i < count; ++i) sum += values[i] * values_[dims[i]];
    }
    return sum;
  }

  // Two calls before `score`: first for the row's offsets, later for its data.
  static void prefetch_offsets(const BlockView& block, uint32_t row) {
    prefetch<3>(block.row_starts + row);
  }
  static void prefetch_data(const BlockView& block, uint32_t row) {
    prefetch_range<3>(block.row_data + block.row_starts[row],
                      block.row_data + block.row_starts[row + 1]);
  }

 private:
  std::vector<float> values_;
};

}  // namespace sparse_embed

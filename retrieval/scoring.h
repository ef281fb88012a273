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

// A query spread out over all dimensions, zero elsewhere, for lookups.
class DenseQuery {
 public:
  // Enough places that no 16-bit dimension can reach outside.
  explicit DenseQuery(uint64_t dims) : values_(std::max<uint64_t>(dims, kNarrowDims), 0.0f) {}

  void set(const int32_t* dims, const float* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) values_[dims[i]] = values[i];
  }
  void clear(const int32_t* dims, int64_t count) {
    for (int64_t i = 0; i < count; ++i) values_[dims[i]] = 0.0f;
  }

  float score(const BlockView& block, uint32_t row) const {
    const RowView view(block, row);
    return block.wide() ? finish(view, view.wide_dims(), 0, 0.0f)
                        : finish(view, view.dims(), 0, 0.0f);
  }

  // The scores of four rows. Each sum has its own chain of additions, so that none waits for another:
  // a third faster than one row after the other. Not inlined, it costs searches one percent.
  [[gnu::always_inline]] void score_four(const BlockView* const* blocks, const uint32_t* rows,
                                         float* scores) const {
    if (blocks[0]->wide()) {
      for (int r = 0; r < 4; ++r) scores[r] = score(*blocks[r], rows[r]);
      return;
    }
    const RowView views[4] = {{*blocks[0], rows[0]}, {*blocks[1], rows[1]},
                              {*blocks[2], rows[2]}, {*blocks[3], rows[3]}};
    const uint64_t shortest =
        std::min({views[0].count, views[1].count, views[2].count, views[3].count});
    float sums[4] = {};
    for (uint64_t i = 0; i < shortest; ++i) {
      for (int r = 0; r < 4; ++r) sums[r] += views[r].values[i] * values_[views[r].dims()[i]];
    }
    for (int r = 0; r < 4; ++r) scores[r] = finish(views[r], views[r].dims(), shortest, sums[r]);
  }

  // Two calls before a score: first for the row's offsets and what tells its id, later for its data.
  static void prefetch_offsets(const BlockView& block, uint32_t row) {
    prefetch<3>(block.row_starts + row);
    if (block.has_cells()) prefetch<2>(block.order + row);
  }
  static void prefetch_data(const BlockView& block, uint32_t row) {
    prefetch_range<3>(block.row_data + block.row_starts[row],
                      block.row_data + block.row_starts[row + 1]);
  }

 private:
  // A row's values, and its dimensions behind them.
  struct RowView {
    uint64_t count;
    const float* values;

    RowView(const BlockView& block, uint32_t row) {
      const uint32_t begin = block.row_starts[row];
      count = row_count(block.row_starts[row + 1] - begin, block.wide());
      values = reinterpret_cast<const float*>(block.row_data + begin);
    }
    const uint16_t* dims() const { return reinterpret_cast<const uint16_t*>(values + count); }
    const uint32_t* wide_dims() const { return reinterpret_cast<const uint32_t*>(values + count); }
  };

  // `sum` plus the products from place `begin` on.
  template <class Dim>
  float finish(const RowView& row, const Dim* dims, uint64_t begin, float sum) const {
    for (uint64_t i = begin; i < row.count; ++i) {
      // Every 16-bit dimension has a place; a 32-bit one in a damaged file may have none.
      if (sizeof(Dim) == 4 && dims[i] >= values_.size()) continue;
      sum += row.values[i] * values_[dims[i]];
    }
    return sum;
  }

  std::vector<float> values_;
};

}  // namespace sparse_embed

// Upper bounds of the scores in all cells of a range of blocks, for one query.
//
// A row's score is at most the sum of its products of like signs, and each of these is at most
// weight * level, with the level that the code of the row's cell stands for (cells.h). Weights are
// scaled so that a product fits a byte, products are rounded up to whole numbers, and a shuffle of
// bytes looks up 64 of them at a time. So a cell's sum, divided by the scale, is an upper bound of
// the scores of its rows: rows are scored only in cells whose sum reaches `least(tau)`.
//
// The heaviest terms of the query are looked up in the planes of cells, the others in those of
// coarse cells, which are eight times shorter.
//
// Rounding: a product is computed in float32 from a rounded weight, and 1 is added to it before it
// is truncated. Each of the three roundings takes off at most 2^-24 of at most 256, so a whole
// number is at least the scaled product minus kLookUpRounding. Exact scores differ from real-valued
// ones by no more than `slack`, as in search.h.
//
// Measured on a million trained embeddings (512 dimensions, 32 or 64 non-zeros of both signs):
// - Cells of 4 rows are left with 1,200 rows to score for k = 10, of 8 rows 7,800, of 2 rows 170;
//   the planes of a query take 4 MB, 2 MB and 8 MB.
// - Eight bits instead of four halve the rows at twice the bytes; half the rows per cell is better.
// - Ordering all rows, or clusters of them, instead of the rows of a block saves a tenth of the rows.
// - Bounds of hundreds of rows exclude nothing: nearly all dimensions occur among them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "block.h"
#include "kernels.h"
#include "prefetch.h"
#include "query.h"

namespace sparse_embed {

constexpr float kLargestProduct = 254.0f;
constexpr uint32_t kLargestSum = 65535;
constexpr double kLookUpRounding = 1e-4;
static_assert(3.0 * 0x1p-24 * 256.0 < kLookUpRounding, "a sum could be below its products");
static_assert(kLargestProduct + 1.0f < 256.0f, "a product must fit a byte");

// A range of weights and levels whose products neither overflow nor vanish.
constexpr float kSmallestFactor = 1e-15f, kLargestFactor = 1e15f;

// The share of the weights that is looked up in cells; the rest is in coarse cells. The fewer results,
// the fewer rows are scored, and the less does it matter if there are more of them. Measured.
inline double fine_share(size_t k) { return k <= 32 ? 0.92 : k <= 320 ? 0.96 : 1.0; }

// A cell whose rows may matter.
struct Cell {
  uint32_t block;
  uint16_t number;
  uint16_t sum;
};

class CellBounds {
 public:
  // Prepares for the k best of a query. No level of the blocks exceeds `max_level`. False if sums
  // could overflow: then there are no bounds.
  bool start(const Query& query, size_t k, float max_level) {
    const std::vector<Term>& terms = query.terms;
    terms_.clear();
    sums_.clear();
    largest_.clear();
    if (terms.empty()) return false;
    const double heaviest = std::abs(double(terms[0].weight));
    for (double factor : {heaviest, double(max_level)}) {
      if (!(factor >= kSmallestFactor && factor <= kLargestFactor)) return false;
    }
    scale_ = double(kLargestProduct) / (heaviest * max_level);
    double total = 0.0, largest_sum = 0.0;
    for (const Term& term : terms) {
      const double weight = std::abs(double(term.weight));
      terms_.push_back({term.dim, float(weight * scale_), term.weight < 0.0f});
      total += weight;
      largest_sum += weight * scale_ * max_level + 1.0 + kLookUpRounding;
    }
    // Where light terms were left out, the others are too heavy for coarse cells. Measured.
    const double fine = query.complete ? fine_share(k) : 1.0;
    double share = 0.0;
    for (fine_ = 0; fine_ < terms.size() && share < fine * total; ++fine_) {
      share += std::abs(double(terms[fine_].weight));
    }
    return largest_sum <= double(kLargestSum);
  }

  // Bounds the cells of the next block; `next` will follow it, if it is not null.
  void add(const BlockView& block, const BlockView* next, const Kernels& kernels) {
    const CellLayout cells = block.cells();
    const uint32_t fine = choose_planes(*block.header);
    const auto count = uint32_t(planes_.size());
    products_.resize(count * kLevels);
    kernels.look_up(weights_.data(), fine, block.levels, products_.data());
    kernels.look_up(weights_.data() + fine, count - fine, block.levels + kLevels,
                    products_.data() + fine * kLevels);
    // Only planes that lie in the same places can be fetched ahead.
    const bool alike = next && next->header->nonnegative == block.header->nonnegative &&
                       next->header->cell_rows == block.header->cell_rows &&
                       next->header->rows == block.header->rows;
    const uint32_t coarse_groups = cells.coarse / kCellGroup, groups = coarse_groups * kCoarse;
    coarse_sums_.resize(cells.coarse);
    coarse_largest_.resize(coarse_groups);
    const PlaneSums coarse_planes{block.coarse_planes, cells.coarse_plane_bytes(),
                                  planes_.data() + fine, products_.data() + fine * kLevels,
                                  count - fine, nullptr, 0,
                                  alike ? next->coarse_planes : nullptr};
    kernels.bound_cells(coarse_planes, coarse_groups, coarse_sums_.data(), coarse_largest_.data());
    const size_t first = largest_.size();
    sums_.resize((first + groups) * kCellGroup);
    largest_.resize(first + groups);
    const PlaneSums planes{block.planes, cells.plane_bytes(), planes_.data(), products_.data(),
                           fine, coarse_sums_.data(), coarse_groups,
                           alike ? next->planes : nullptr};
    kernels.bound_cells(planes, groups, sums_.data() + first * kCellGroup, largest_.data() + first);
  }

  // The sum that a cell with a row of this score cannot be below: at least 1.
  uint32_t least(double score) const {
    const double sum = score * scale_ - double(terms_.size()) * kLookUpRounding;
    if (!(sum >= 1.0)) return 1;  // also where a damaged file has norms that are no numbers
    return uint32_t(std::min(sum, double(kLargestSum)));
  }

  // A sum that is reached by `count` cells or more, if there are so many.
  uint32_t reached_by(size_t count) {
    counts_.assign(kBuckets, 0);
    for (uint16_t largest : largest_) ++counts_[largest >> kBucketShift];
    size_t found = 0;
    uint32_t bucket = kBuckets;
    while (bucket > 0 && found < count) found += counts_[--bucket];
    return std::max(bucket << kBucketShift, uint32_t(1));
  }

  // Finds the cells with sums from `least` to `most`; `blocks` are those that were added.
  void collect(const std::vector<uint32_t>& blocks, const std::vector<BlockView>& views,
               uint32_t least, uint32_t most, const Kernels& kernels,
               std::vector<Cell>& cells) const {
    cells.clear();
    uint32_t found[kCellGroup];
    size_t first = 0;
    for (uint32_t b : blocks) {
      const uint32_t groups = views[b].cells().cells() / kCellGroup;
      for (uint32_t g = 0; g < groups; ++g) {
        if (largest_[first + g] < least) continue;
        const uint16_t* sums = sums_.data() + (first + g) * kCellGroup;
        const uint32_t count = kernels.scan_cells(sums, uint16_t(least), uint16_t(most), found);
        for (uint32_t i = 0; i < count; ++i) {
          cells.push_back({b, uint16_t(g * kCellGroup + found[i]), sums[found[i]]});
        }
      }
      first += groups;
    }
  }

 private:
  static constexpr uint32_t kBuckets = 4096, kBucketShift = 4;
  static_assert(kBuckets << kBucketShift == kLargestSum + 1, "every sum must have a bucket");

  struct ScaledTerm {
    uint32_t dim;
    float weight;  // its magnitude, scaled
    bool negative;
  };

  // Finds the planes of the terms in a block, and the weights that go with them; returns how many of
  // them, the first, are looked up in cells. A block without negative values has no planes for
  // negative weights, whose products can only lower a score.
  uint32_t choose_planes(const BlockHeader& header) {
    planes_.clear();
    weights_.clear();
    uint32_t fine = 0;
    for (size_t t = 0; t < terms_.size(); ++t) {
      const ScaledTerm& term = terms_[t];
      if (term.negative && header.nonnegative) continue;
      planes_.push_back(term.negative ? header.dims + term.dim : term.dim);
      weights_.push_back(term.weight);
      if (t < fine_) ++fine;
    }
    return fine;
  }

  double scale_ = 1.0;
  std::vector<ScaledTerm> terms_;
  size_t fine_ = 0;  // terms that are looked up in cells
  std::vector<uint32_t> planes_;
  std::vector<float> weights_;
  std::vector<uint8_t> products_;
  std::vector<uint16_t> sums_, largest_;  // of the cells and their groups, block after block
  std::vector<uint16_t> coarse_sums_, coarse_largest_;
  std::vector<uint32_t> counts_;
};

}  // namespace sparse_embed

// Search of one query in the cells of blocks.
//
// Bounds of all cells are computed first (bounds.h), then the rows of the most promising cells are
// scored, in rounds that grow, until no other cell reaches tau. This takes less time than accumulating
// if few rows are to be scored, that is for few results; what it takes is estimated from the number
// of cells that reach tau. If accumulation is estimated to take less, it goes on with the tau that was
// found.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "best_rows.h"
#include "bounds.h"
#include "kernels.h"
#include "workspaces.h"

namespace sparse_embed {

class CellSearch {
 public:
  // For blocks that have cells, at least one. `every` says that all rows that reach the threshold
  // are wanted, and `forced` that costs do not matter.
  CellSearch(const Blocks& all, const std::vector<uint32_t>& blocks, bool every, bool forced)
      : all_(all), blocks_(blocks), every_(every), forced_(forced) {
    for (uint32_t b : blocks) {
      plane_bytes_ += all.views[b].cells().plane_bytes();
      row_bytes_ += all.views[b].header->words * sizeof(uint32_t);
      rows_ += all.views[b].rows();
    }
  }

  // Whether to bound cells at all: not if that alone would take about as long as accumulating.
  // `list_lengths` are those of all blocks.
  bool worth_trying(const BestRows& best, const std::vector<uint64_t>& list_lengths) {
    uint64_t postings = 0;
    for (const Term& term : best.query().terms) postings += list_lengths[term.dim];
    postings_ = double(postings) * double(blocks_.size()) / double(all_.views.size());
    return forced_ || bounding_ns(best) < 0.5 * accumulation_ns(best);
  }

  enum class Outcome { kUnbounded, kGaveUp, kSlow, kDone };

  // Takes the best rows of all blocks, the most promising cells first, until no other cell can hold a
  // row that matters. kUnbounded and kGaveUp: `best` has no rows, and in the latter case, where
  // accumulating takes less time, a better tau. kSlow: done, but accumulating would have been faster.
  Outcome run(BestRows& best, const Kernels& kernels, Workspace& work) const {
    CellBounds& bounds = work.cell_bounds;
    if (!bounds.start(best.query(), best.k(), all_.max_level)) return Outcome::kUnbounded;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const BlockView* next = b + 1 < blocks_.size() ? &all_.views[blocks_[b + 1]] : nullptr;
      bounds.add(all_.views[blocks_[b]], next, kernels);
    }
    const uint32_t cell_rows = all_.views[blocks_[0]].header->cell_rows;
    const double slack = score_slack(best.query());
    double spent = 0.0;
    bool fast = false;
    uint32_t most = kLargestSum;
    for (size_t wanted = std::max<size_t>(16, best.k() / cell_rows);; wanted *= 4) {
      const uint32_t needed = bounds.least(best.tau() - slack);
      const uint32_t least = std::max(needed, bounds.reached_by(wanted));
      if (least <= most) {
        bounds.collect(blocks_, all_.views, least, most, kernels, work.cells);
        spent += double(work.cells.size()) * cell_rows * row_ns();
        const double other = accumulation_ns(best);
        fast = bounding_ns(best) + spent < 0.9 * guessing(best) * other;
        if (!forced_ && spent > other) {
          best.clear();
          return Outcome::kGaveUp;
        }
        score_cells(bounds, slack, best, work);
      }
      if (least <= needed) return fast ? Outcome::kDone : Outcome::kSlow;
      most = least - 1;
    }
  }

 private:
  // What cells cost. Measured.
  static constexpr double kNsPerPlaneByte = 0.04, kNsPerRow = 15.0, kNsPerByte = 0.17;
  static constexpr uint64_t kCacheBytes = uint64_t(1) << 24;

  // Scores the rows of work.cells that still matter when their turn comes.
  void score_cells(const CellBounds& bounds, double slack, BestRows& best, Workspace& work) const {
    const size_t chunk = std::max<size_t>(256, std::min<size_t>(best.k() / 2, kMostAtOnce));
    for (size_t i = 0; i < work.cells.size();) {
      const uint32_t least = bounds.least(best.tau() - slack);
      work.places.clear();
      for (; i < work.cells.size() && work.places.size() < chunk; ++i) {
        const Cell& cell = work.cells[i];
        if (cell.sum < least) continue;
        const BlockView& block = all_.views[cell.block];
        const CellLayout layout = block.cells();
        const uint32_t first = layout.first_place(cell.number);
        const uint32_t end = std::min(first + layout.cell_rows, block.rows());
        for (uint32_t inside = first; inside < end; ++inside) {
          const uint32_t place = (cell.block << all_.shift) + inside;
          if (!all_.is_hidden_at(place)) work.places.push_back(place);
        }
      }
      best.score(work.places.size(), work.dense, [&work](size_t p) { return work.places[p]; });
      best.keep();
    }
  }

  // No computed score exceeds the real-valued one by more than this.
  double score_slack(const Query& query) const {
    double slack = 0.0;
    for (uint32_t b : blocks_) slack = std::max(slack, query.score_slack(*all_.views[b].header));
    return slack;
  }

  // About how long it takes to bound cells.
  double bounding_ns(const BestRows& best) const {
    return double(best.query().terms.size()) * double(plane_bytes_) * kNsPerPlaneByte;
  }

  // About how long it takes to score a row: half as long if the cache holds all rows.
  double row_ns() const {
    const double near = row_bytes_ < kCacheBytes ? 0.5 : 1.0;
    return near * (kNsPerRow + kNsPerByte * double(row_bytes_) / double(rows_));
  }

  // About how long it takes to accumulate: the higher tau is, the more postings are left out.
  double accumulation_ns(const BestRows& best) const {
    const double largest = best.query().norm * all_.views[blocks_[0]].header->max_norm;
    const double cosine = best.tau() / std::max(largest, 1e-300);
    const double results = every_ ? 0.0 : double(best.k());
    return postings_ * std::min(std::max(0.6 - 0.6 * cosine, 0.15), 0.6) + 0.08 * double(rows_) +
           500.0 * double(blocks_.size()) + 0.5 * (results + 300.0) * row_ns();
  }

  // How much longer accumulation takes if it must guess tau.
  double guessing(const BestRows& best) const {
    return best.threshold() > 0.0f ? 1.0 : 1.0 + 0.3 * std::min(1.0, double(best.k()) / 1000.0);
  }

  static constexpr size_t kMostAtOnce = size_t(1) << 16;

  const Blocks& all_;
  const std::vector<uint32_t>& blocks_;
  const bool every_, forced_;
  uint64_t plane_bytes_ = 0;  // of each of the query's planes
  uint64_t row_bytes_ = 0, rows_ = 0;
  double postings_ = 0.0;  // in the query's lists
};

}  // namespace sparse_embed

// What an index is at one moment, and how rows are put behind those that it has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "block.h"
#include "block_builder.h"
#include "csr.h"
#include "ids.h"
#include "mapping.h"
#include "parallel.h"

namespace sparse_embed {

// Zeroed memory, in huge pages where the system has them: lists lie all over it.
inline std::shared_ptr<uint8_t> allocate_blocks(size_t bytes) {
  constexpr size_t kHugePage = size_t(1) << 21;
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, std::max(rounded, alignment)) != 0) throw std::bad_alloc();
#if defined(__linux__)
  if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  std::memset(memory, 0, bytes);
  return std::shared_ptr<uint8_t>(static_cast<uint8_t*>(memory), std::free);
}

// The rows of an index as a search sees them: blocks of equal size (but for the last one).
//
// A row has a number, in the order in which rows were added, and a place, where it is stored. A block
// holds consecutive numbers in an order of its own: number and place differ in the lower bits.
struct Blocks {
  std::vector<BlockView> views;
  uint32_t shift = 0;                             // a block holds 2^shift rows
  float max_level = 0.0f;                         // no level of cells exceeds it
  const std::vector<uint64_t>* hidden = nullptr;  // one bit per row not to be found, or empty
  const Ids* ids = nullptr;

  void push(const BlockView& view) {
    views.push_back(view);
    if (!view.has_cells()) return;
    max_level = std::max({max_level, view.levels[kLevels - 1], view.levels[2 * kLevels - 1]});
  }

  uint64_t rows() const {
    return views.empty() ? 0 : (uint64_t(views.size() - 1) << shift) + views.back().rows();
  }
  const BlockView& view_of(uint32_t row_or_place) const { return views[row_or_place >> shift]; }
  uint32_t local(uint32_t row_or_place) const {
    return row_or_place & ((uint32_t(1) << shift) - 1);
  }
  uint32_t row_at(uint32_t place) const {
    const uint32_t inside = local(place);
    return place - inside + view_of(place).row_at(inside);
  }
  uint32_t place_of(uint32_t row) const {
    const uint32_t inside = local(row);
    return row - inside + view_of(row).place_of(inside);
  }

  bool is_hidden(uint32_t row) const {
    return !hidden->empty() && ((*hidden)[row / 64] >> (row % 64) & 1);
  }
  bool is_hidden_at(uint32_t place) const { return !hidden->empty() && is_hidden(row_at(place)); }

  // Whether no row of block `b` is to be found.
  bool all_hidden(uint32_t b) const {
    if (hidden->empty()) return false;
    const uint64_t end = (uint64_t(b) << shift) + views[b].rows();
    for (uint64_t row = uint64_t(b) << shift, count; row < end; row += count) {
      count = std::min<uint64_t>(64 - row % 64, end - row);
      const uint64_t visible = ~(*hidden)[row / 64] >> (row % 64);
      if (visible << (64 - count)) return false;
    }
    return true;
  }
};

// All that a search reads. A state never changes once it is published: who adds or removes rows
// makes another one, so that searches and saves under way keep theirs.
struct State {
  Blocks blocks;
  std::vector<std::shared_ptr<uint8_t>> owners;  // of the blocks' memory
  std::vector<uint64_t> list_lengths;            // non-zeros per dimension, removed rows excluded
  std::vector<uint64_t> removed;                 // one bit per row, or empty if none was removed
  uint64_t num_removed = 0;
  Ids ids;
  Mapping::Pointer file;  // in which blocks lie, or null

  State(uint64_t dims, uint32_t shift) : list_lengths(dims, 0) {
    blocks.shift = shift;
    see_own_rows();
  }
  State(const State& other)
      : blocks(other.blocks), owners(other.owners), list_lengths(other.list_lengths),
        removed(other.removed), num_removed(other.num_removed), ids(other.ids),
        file(other.file) {
    see_own_rows();
  }
  State& operator=(const State&) = delete;

  uint64_t rows() const { return blocks.rows(); }
  uint64_t dims() const { return list_lengths.size(); }
  bool living(uint32_t row) const { return !blocks.is_hidden(row); }

  // Throws FileChanged if what has been read from a mapped file may be wrong.
  void require_intact() const {
    if (file) file->require_intact();
  }

  // Calls visit(dimension, value) for the non-zeros of a row. A damaged file may have dimensions
  // that the index does not: they are left out.
  template <class Visit>
  void visit(uint32_t row, Visit visit) const {
    visit_row(blocks.view_of(row), blocks.local(row), [&](uint32_t dim, float value) {
      if (dim < dims()) visit(dim, value);
    });
  }

  // The last row that got an id, removed or not; throws if there is none.
  uint32_t row_of(int64_t id) const {
    const int64_t row = ids.find(id);
    if (row >= 0) return uint32_t(row);
    throw std::invalid_argument(
        "ids holds " + std::to_string(id) +
        (ids.sorted() ? ", which no row has: expected ids of rows in the index"
                      : ": expected 0 <= id < " + std::to_string(rows())));
  }

  // The row that has an id; throws if there is none.
  uint32_t living_row_of(int64_t id) const {
    const uint32_t row = row_of(id);
    if (living(row)) return row;
    throw std::invalid_argument("ids holds " + std::to_string(id) +
                                ", whose row was removed: expected ids of rows in the index");
  }

 private:
  void see_own_rows() {
    blocks.hidden = &removed;
    blocks.ids = &ids;
  }
};

// Rows that were taken out of blocks or put together from several places.
class RowBuffer {
 public:
  uint64_t rows() const { return indptr_.size() - 1; }
  void clear() {
    indptr_.resize(1);
    indices_.clear();
    values_.clear();
  }
  void push(const State& state, uint32_t row) {
    state.visit(row, [this](uint32_t dim, float value) { push(int32_t(dim), value); });
    end_row();
  }
  void push(const Csr& matrix, int64_t row) {
    for (int64_t p = matrix.indptr[row]; p < matrix.indptr[row + 1]; ++p) {
      push(matrix.indices[p], matrix.values[p]);
    }
    end_row();
  }
  Csr csr(uint64_t dims) const {
    return {int64_t(rows()), int64_t(dims), indptr_.data(), indices_.data(), values_.data()};
  }

 private:
  void push(int32_t dim, float value) {
    indices_.push_back(dim);
    values_.push_back(value);
  }
  void end_row() { indptr_.push_back(int64_t(indices_.size())); }

  std::vector<int64_t> indptr_{0};
  std::vector<int32_t> indices_;
  std::vector<float> values_;
};

// Appends the blocks of rows to a state that is not published, but not their ids. A last block that
// is not full is built anew. If this throws, the state is as it was or is to be thrown away.
inline void append_rows(State& state, const Csr& matrix, size_t threads) {
  const uint64_t rows = state.rows();
  const int64_t size = int64_t(1) << state.blocks.shift;
  const int64_t partial = int64_t(rows) % size;
  const int64_t topped = partial ? std::min<int64_t>(size - partial, matrix.rows) : 0;
  RowBuffer last;
  std::vector<std::unique_ptr<BlockBuilder>> builders;
  if (topped > 0) {
    for (uint64_t row = rows - uint64_t(partial); row < rows; ++row) last.push(state, uint32_t(row));
    for (int64_t i = 0; i < topped; ++i) last.push(matrix, i);
    builders.push_back(
        std::make_unique<BlockBuilder>(last.csr(state.dims()), 0, partial + topped));
  }
  const size_t first = builders.size();
  builders.resize(first + size_t((matrix.rows - topped + size - 1) / size));
  parallel(builders.size() - first, threads, [&](size_t i) {
    const int64_t begin = topped + int64_t(i) * size;
    builders[first + i] =
        std::make_unique<BlockBuilder>(matrix, begin, std::min(begin + size, matrix.rows));
  });
  if (builders.empty()) return;
  std::vector<uint64_t> offsets(1, 0);
  for (const auto& builder : builders) offsets.push_back(offsets.back() + builder->bytes());
  const std::shared_ptr<uint8_t> memory = allocate_blocks(offsets.back());
  parallel(builders.size(), threads,
           [&](size_t i) { builders[i]->write(memory.get() + offsets[i]); });

  for (int64_t p = matrix.indptr[0]; p < matrix.indptr[matrix.rows]; ++p) {
    if (matrix.values[p] != 0.0f) ++state.list_lengths[matrix.indices[p]];
  }
  if (!state.removed.empty()) state.removed.resize((rows + uint64_t(matrix.rows) + 63) / 64, 0);
  if (topped > 0) {
    state.blocks.views.pop_back();
    state.owners.pop_back();
  }
  for (size_t i = 0; i < builders.size(); ++i) {
    state.blocks.push(BlockView::at(memory.get() + offsets[i]));
    state.owners.push_back(memory);
  }
}

// Appends the rows of another state that were not removed, but not their ids. They pass through
// memory some at a time; each time but the last, no block is left partly filled.
inline void append_living(State& state, const State& from, size_t threads) {
  constexpr uint64_t kAtOnce = uint64_t(1) << 18;
  static_assert(kAtOnce % kMaxBlockRows == 0, "blocks would be left partly filled");
  RowBuffer rows;
  for (uint64_t row = 0; row < from.rows(); ++row) {
    if (!from.living(uint32_t(row))) continue;
    rows.push(from, uint32_t(row));
    if ((state.rows() + rows.rows()) % kAtOnce != 0) continue;
    append_rows(state, rows.csr(state.dims()), threads);
    rows.clear();
  }
  append_rows(state, rows.csr(state.dims()), threads);
}

// The rows of these ids as the three arrays of a CSR matrix.
class Reconstruction {
 public:
  // Throws if no row has one of the ids.
  Reconstruction(const State& state, const int64_t* ids, size_t count) : state_(state) {
    rows_.reserve(count);
    for (size_t i = 0; i < count; ++i) rows_.push_back(state.living_row_of(ids[i]));
  }

  void write_indptr(int64_t* indptr) const {
    *indptr = 0;
    for (const uint32_t row : rows_) {
      indptr[1] = indptr[0];
      state_.visit(row, [&](uint32_t, float) { ++indptr[1]; });
      ++indptr;
    }
  }

  // Writes `count` of both, as many as there were; throws if that has changed.
  void write(int64_t count, int32_t* indices, float* values) const {
    const int32_t* end = indices + count;
    for (const uint32_t row : rows_) {
      state_.visit(row, [&](uint32_t dim, float value) {
        if (indices == end) return;  // the file changes
        *indices++ = int32_t(dim);
        *values++ = value;
      });
    }
    state_.require_intact();
  }

 private:
  const State& state_;
  std::vector<uint32_t> rows_;
};

// The ids of the rows that were not removed, in the order of the rows.
inline std::vector<int64_t> living_ids(const State& state) {
  std::vector<int64_t> ids;
  ids.reserve(state.rows() - state.num_removed);
  for (uint64_t row = 0; row < state.rows(); ++row) {
    if (state.living(uint32_t(row))) ids.push_back(state.ids.id(state.ids.rank(uint32_t(row))));
  }
  return ids;
}

}  // namespace sparse_embed

// A block: up to kMaxBlockRows consecutive rows, stored up to three times in one position-independent
// buffer.
//
// 1. Posting lists for fast, approximate accumulation. The postings of one dimension are sorted by
//    value, largest first, and cut into groups of kGroup rows; a group stores its rows' 16-bit local
//    ids and one upper and one lower bound of its values (bfloat16, rounded outward). So a posting
//    takes 2 + 4 / kGroup = 3 bytes, and a whole group adds the same number to its accumulators.
//    Local ids are the places where rows are stored.
//    The last group of a list is filled up with local ids that no row has.
// 2. Rows for exact scoring: float32 values, then 16-bit dimensions (32-bit where there are more
//    than 65,536 of them), contiguous per row so that a row costs few cache lines.
// 3. Cells of a few similar rows with bounds of four bits (cells.h), where they are not too large.
//    Then rows are stored in the order of cells: `order` and `places` tell which row lies where.
//
// BlockBuilder (block_builder.h) makes a buffer in memory and an index file holds the same bytes: it
// can be used where it is mapped. `open` copies, and then checks, everything that memory safety depends
// on, so that a change of the file does no harm. The rest stays where it is: local ids and the
// dimensions of rows cannot reach outside their arrays, whatever they are, since accumulators and dense
// queries have 65,536 places, and 32-bit dimensions are compared with the size of the query.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "bfloat16.h"
#include "cells.h"

namespace sparse_embed {

constexpr uint32_t kGroup = 4;
constexpr uint32_t kBoundsAhead = 8;  // bounds are read this many at a time, also at the end
constexpr uint32_t kMaxBlockShift = 15;
constexpr uint32_t kMaxBlockRows = uint32_t(1) << kMaxBlockShift;
constexpr uint32_t kAccumulators = 65536;
constexpr uint32_t kNarrowDims = 65536;  // as many dimensions as 16 bits can number
static_assert(kAccumulators == 0x10000 && kNarrowDims == 0x10000,
              "any 16-bit number must have a place, also that of a damaged file");
static_assert(kMaxBlockRows + kGroup <= kAccumulators,
              "the ids that fill up a list must have places that no row has");

// Covers the rounding of a norm to float32 (and of its sum of squares in double precision).
constexpr double kNormRounding = 1e-6;
static_assert(kNormRounding > 0x1p-24, "a row could have a larger norm than max_norm");

struct BlockHeader {
  uint64_t bytes;   // of the whole buffer
  uint64_t groups;  // of kGroup postings
  uint64_t words;   // 32-bit words of row data
  uint64_t nonzeros;
  uint32_t rows;
  uint32_t dims;
  float max_norm;        // no row has a larger Euclidean norm
  float max_value;       // no bound of a posting has a larger magnitude
  uint32_t max_count;    // no row has more non-zeros
  uint32_t nonnegative;  // whether all values are
  float mean_value;      // mean magnitude of the non-zeros
  uint32_t cell_rows;    // rows per cell, or 0 if the block has no cells; see cells.h
};
static_assert(sizeof(BlockHeader) == 64, "the layout of the file format");

// Where the sections of a block's buffer begin.
struct BlockLayout {
  uint64_t list_starts, ids, upper, lower, row_starts, row_data;
  uint64_t order, places, levels, planes, coarse_planes, end;

  explicit BlockLayout(const BlockHeader& h)
      : BlockLayout(h.rows, h.dims, h.groups, h.words,
                    CellLayout(h.rows, h.dims, h.nonnegative, h.cell_rows)) {}

  BlockLayout(uint64_t rows, uint64_t dims, uint64_t groups, uint64_t words,
              const CellLayout& cells) {
    uint64_t at = 0;
    auto section = [&at](uint64_t bytes) {
      const uint64_t begin = at;
      at = (at + bytes + 63) / 64 * 64;
      return begin;
    };
    section(sizeof(BlockHeader));
    list_starts = section((dims + 1) * sizeof(uint32_t));
    ids = section(groups * kGroup * sizeof(uint16_t));
    upper = section((groups + kBoundsAhead) * sizeof(BFloat16));
    lower = section((groups + kBoundsAhead) * sizeof(BFloat16));
    row_starts = section((rows + 1) * sizeof(uint32_t));
    row_data = section(words * sizeof(uint32_t));
    order = section(cells.cell_rows ? rows * sizeof(uint16_t) : 0);
    places = section(cells.cell_rows ? rows * sizeof(uint16_t) : 0);
    levels = section(cells.level_bytes());
    planes = section(cells.bytes());
    coarse_planes = section(cells.coarse_bytes());
    end = at;
  }
};

inline bool wide_dimensions(uint64_t dims) { return dims > kNarrowDims; }

// 32-bit words that a row of `count` non-zeros takes, and the other way round.
inline uint64_t row_words(uint64_t count, bool wide) {
  return wide ? 2 * count : count + (count + 1) / 2;
}
inline uint64_t row_count(uint64_t words, bool wide) { return wide ? words / 2 : 2 * words / 3; }

struct BlockView {
  const uint8_t* buffer = nullptr;
  const BlockHeader* header = nullptr;
  const uint32_t* list_starts = nullptr;  // dims + 1, in groups
  const uint16_t* ids = nullptr;
  const BFloat16* upper = nullptr;
  const BFloat16* lower = nullptr;
  const uint32_t* row_starts = nullptr;  // rows + 1, in words
  const uint32_t* row_data = nullptr;
  const uint16_t* order = nullptr;   // the row at each place, if the block has cells
  const uint16_t* places = nullptr;  // the place of each row
  const float* levels = nullptr;     // what codes mean: of cells, then of coarse cells
  const uint8_t* planes = nullptr;
  const uint8_t* coarse_planes = nullptr;

  uint32_t rows() const { return header->rows; }
  bool wide() const { return wide_dimensions(header->dims); }
  bool has_cells() const { return header->cell_rows != 0; }
  // The row that is stored at a place, and the other way round.
  uint32_t row_at(uint32_t place) const { return has_cells() ? order[place] : place; }
  uint32_t place_of(uint32_t row) const { return has_cells() ? places[row] : row; }
  CellLayout cells() const {
    return {header->rows, header->dims, header->nonnegative != 0, header->cell_rows};
  }

  // The view of a buffer that BlockBuilder wrote.
  static BlockView at(const uint8_t* buffer) {
    return {buffer, *reinterpret_cast<const BlockHeader*>(buffer)};
  }

  // The view of a buffer of unknown origin, which `owner` keeps, and which may change at any time;
  // throws std::invalid_argument if it cannot be a block of `rows` rows and `dims` dimensions. `owner`
  // keeps the view's own memory, too, afterwards.
  static BlockView open(const uint8_t* buffer, uint64_t bytes, uint64_t rows, uint64_t dims,
                        std::shared_ptr<uint8_t>& owner) {
    auto require = [](bool condition, const char* message) {
      if (!condition) throw std::invalid_argument(message);
    };
    require(bytes >= sizeof(BlockHeader), "a block is shorter than its header");
    BlockHeader h;
    std::memcpy(&h, buffer, sizeof h);
    require(h.bytes == bytes && h.rows == rows && h.dims == dims, "a block has the wrong size");
    require(h.groups <= bytes && h.words <= bytes, "a block's counts exceed its size");
    require(h.cell_rows <= kMaxBlockRows && (h.cell_rows == 0 || dims <= kMostCellDims),
            "a block's cells are too large");
    require(BlockLayout(h).end == bytes, "a block's counts do not match its size");
    BlockView view(buffer, h);
    owner = view.copy_bounds(h, std::move(owner));
    require(view.list_starts[0] == 0 && view.list_starts[dims] == h.groups &&
                std::is_sorted(view.list_starts, view.list_starts + dims + 1),
            "a block's list offsets are damaged");
    require(view.row_starts[0] == 0 && view.row_starts[rows] == h.words &&
                std::is_sorted(view.row_starts, view.row_starts + rows + 1),
            "a block's row offsets are damaged");
    if (view.has_cells()) {
      for (uint32_t place = 0; place < rows; ++place) {
        require(view.order[place] < rows && view.places[view.order[place]] == place,
                "a block's order of rows is damaged");
      }
      for (const float* levels : {view.levels, view.levels + kLevels}) {
        const bool numbers = std::all_of(levels, levels + kLevels, [](float x) { return x >= 0.0f; });
        require(numbers && levels[0] == 0.0f && std::is_sorted(levels, levels + kLevels),
                "a block's levels are damaged");
      }
    }
    return view;
  }

  BlockView() = default;

 private:
  BlockView(const uint8_t* buffer, const BlockHeader& h) : buffer(buffer) {
    const BlockLayout layout(h);
    header = reinterpret_cast<const BlockHeader*>(buffer);
    list_starts = reinterpret_cast<const uint32_t*>(buffer + layout.list_starts);
    ids = reinterpret_cast<const uint16_t*>(buffer + layout.ids);
    upper = reinterpret_cast<const BFloat16*>(buffer + layout.upper);
    lower = reinterpret_cast<const BFloat16*>(buffer + layout.lower);
    row_starts = reinterpret_cast<const uint32_t*>(buffer + layout.row_starts);
    row_data = reinterpret_cast<const uint32_t*>(buffer + layout.row_data);
    levels = reinterpret_cast<const float*>(buffer + layout.levels);
    order = reinterpret_cast<const uint16_t*>(buffer + layout.order);
    places = reinterpret_cast<const uint16_t*>(buffer + layout.places);
    planes = buffer + layout.planes;
    coarse_planes = buffer + layout.coarse_planes;
  }

  // Copies the header and what tells where lists and rows lie; returns who keeps the copy and what
  // `owner` keeps.
  std::shared_ptr<uint8_t> copy_bounds(const BlockHeader& h, std::shared_ptr<uint8_t> owner) {
    const uint64_t lists = (uint64_t(h.dims) + 1) * sizeof(uint32_t);
    const uint64_t starts = (uint64_t(h.rows) + 1) * sizeof(uint32_t);
    const uint64_t level_bytes = h.cell_rows ? 2 * kLevels * sizeof(float) : 0;
    const uint64_t numbers = h.cell_rows ? h.rows * sizeof(uint16_t) : 0;
    const uint64_t bytes = sizeof h + lists + starts + level_bytes + 2 * numbers;
    std::shared_ptr<uint8_t> copy(new uint8_t[bytes],
                                  [owner = std::move(owner)](uint8_t* memory) { delete[] memory; });
    uint8_t* at = copy.get();
    auto take = [&at](auto*& part, const void* from, uint64_t size) {
      part = reinterpret_cast<std::decay_t<decltype(part)>>(at);
      std::memcpy(at, from, size);
      at += size;
    };
    take(header, &h, sizeof h);
    take(levels, levels, level_bytes);
    take(list_starts, list_starts, lists);
    take(row_starts, row_starts, starts);
    take(order, order, numbers);
    take(places, places, numbers);
    return copy;
  }
};

// Calls visit(dimension, value) for the non-zeros of a row, in order of increasing dimension.
template <class Visit>
void visit_row(const BlockView& block, uint32_t row, Visit visit) {
  const uint32_t place = block.place_of(row), begin = block.row_starts[place];
  const uint64_t count = row_count(block.row_starts[place + 1] - begin, block.wide());
  const auto* values = reinterpret_cast<const float*>(block.row_data + begin);
  const uint32_t* dims = block.row_data + begin + count;
  for (uint64_t i = 0; i < count; ++i) {
    visit(block.wide() ? dims[i] : reinterpret_cast<const uint16_t*>(dims)[i], values[i]);
  }
}

}  // namespace sparse_embed

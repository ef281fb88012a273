// Cells: a few similar rows of a block, and upper bounds of their values in four bits.
//
// A block's rows are ordered by the dimensions of their heaviest values, and each `cell_rows` of
// them in that order are a cell. A plane is a dimension and a sign: positive values of dimension j
// are in plane j, negative ones in plane dims + j, which only blocks with negative values have. For
// each plane and cell four bits name the smallest of 15 levels that no magnitude of the cell's
// values in that plane exceeds; 0 says that there is none. Levels are chosen per block.
//
// All cells of a plane lie side by side, so that a query reads only the planes of its own
// dimensions and signs, one after the other, and looks up 64 products at a time with a shuffle of
// bytes. What is left out, products of unlike signs, only makes scores smaller.
//
// Planes are stored twice: for cells, and for coarse cells of kCoarse cells each, which take an
// eighth of the bytes and serve the light dimensions of a query.
//
// Numbering: coarse cell c holds the cells c, c + C, c + 2 C ..., with C the number of coarse
// cells, so that bounds of both add up without moving lanes. `first_place` tells where the rows of a
// cell begin in the order of rows. The number of coarse cells is a multiple of kCellGroup. A group of
// kCellGroup cells takes kCellGroup / 2 bytes: byte 2 (n % 32) + (n / 32) % 2 holds cell n of the
// group, in the low half if n < 64, else the high one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bfloat16.h"

namespace sparse_embed {

constexpr uint32_t kLevels = 16;     // 0 and 15 others
constexpr uint32_t kCellGroup = 128;
constexpr uint32_t kCoarse = 8;      // cells of a coarse cell
constexpr uint32_t kMostCellDims = 0x7FFF;  // 16 bits number the planes

// The sizes of a block's cells. There are none if `cell_rows` is 0.
struct CellLayout {
  uint32_t cell_rows = 0;
  uint32_t coarse = 0;  // coarse cells
  uint64_t planes = 0;

  CellLayout(uint64_t rows, uint64_t dims, bool nonnegative, uint32_t cell_rows)
      : cell_rows(cell_rows) {
    if (cell_rows == 0) return;
    const uint64_t unit = uint64_t(kCellGroup) * kCoarse * cell_rows;
    coarse = uint32_t((rows + unit - 1) / unit * kCellGroup);
    planes = nonnegative ? dims : 2 * dims;
  }

  uint32_t cells() const { return coarse * kCoarse; }
  uint32_t plane_bytes() const { return cells() / 2; }
  uint32_t coarse_plane_bytes() const { return coarse / 2; }

  // Bytes of the sections: levels (of cells, then of coarse cells), planes, coarse planes.
  uint64_t level_bytes() const { return cell_rows ? 2 * kLevels * sizeof(float) : 0; }
  uint64_t bytes() const { return planes * plane_bytes(); }
  uint64_t coarse_bytes() const { return planes * coarse_plane_bytes(); }

  // The place of a cell's first row. The last cells have fewer rows than others, or none.
  uint32_t first_place(uint32_t cell) const {
    return (cell % coarse * kCoarse + cell / coarse) * cell_rows;
  }
};

// Which cells have bounds worth their memory: the fewest rows per cell for which planes take at most
// this many bytes per non-zero. Fewer rows give closer bounds. None if eight rows take more.
constexpr double kMostCellBytes = 4.6;

inline uint32_t choose_cell_rows(uint64_t rows, uint64_t dims, bool nonnegative,
                                 uint64_t nonzeros) {
  if (dims > kMostCellDims || nonzeros == 0) return 0;
  for (uint32_t cell_rows : {2, 4, 8}) {
    const CellLayout layout(rows, dims, nonnegative, cell_rows);
    if (double(layout.bytes() + layout.coarse_bytes()) <= kMostCellBytes * double(nonzeros)) {
      return cell_rows;
    }
  }
  return 0;
}

// Fills in the sections of a block's cells.
class CellBuilder {
 public:
  CellBuilder(const CellLayout& layout, uint64_t nonzeros) : layout_(layout) {
    entries_.reserve(nonzeros);
  }

  // Adds a row; `visit_values(f)` calls f(plane, magnitude) for its non-zeros.
  template <class VisitValues>
  void add_row(VisitValues visit_values) {
    const auto row = uint16_t(starts_.size() - 1);
    Entry heaviest[kHeaviest];
    uint32_t count = 0;
    visit_values([&](uint32_t plane, float magnitude) {
      const Entry entry{uint16_t(plane), bf16_round_up(magnitude)};
      entries_.push_back(entry);
      uint32_t at = count;
      for (; at > 0 && heaviest[at - 1].code < entry.code; --at) {
        if (at < kHeaviest) heaviest[at] = heaviest[at - 1];
      }
      if (at < kHeaviest) heaviest[at] = entry;
      count = std::min(count + 1, kHeaviest);
    });
    uint64_t key = 0;
    for (uint32_t i = 0; i < kHeaviest; ++i) {
      key = key << 16 | (i < count ? heaviest[i].plane : 0xFFFF);
    }
    order_.push_back({key, row});
    starts_.push_back(uint32_t(entries_.size()));
  }

  // Writes everything to zeroed memory, the rows in their order too.
  void write(float* levels, uint16_t* order, uint8_t* planes, uint8_t* coarse_planes) {
    std::sort(order_.begin(), order_.end());
    for (size_t i = 0; i < order_.size(); ++i) order[i] = order_[i].row;
    write_level(layout_.cell_rows, layout_.plane_bytes(), levels, planes, [this](uint32_t i) {
      return i % kCoarse * layout_.coarse + i / kCoarse;
    });
    write_level(layout_.cell_rows * kCoarse, layout_.coarse_plane_bytes(), levels + kLevels,
                coarse_planes, [](uint32_t i) { return i; });
  }

 private:
  static constexpr uint32_t kHeaviest = 4;
  static constexpr uint32_t kCodes = 0x8000;  // of bfloat16 numbers that are not negative

  struct Entry {
    uint16_t plane;
    BFloat16 code;  // of the magnitude, rounded up
  };
  struct Ordered {
    uint64_t key;
    uint16_t row;
    bool operator<(const Ordered& other) const {
      return key != other.key ? key < other.key : row < other.row;
    }
  };
  struct Maximum {
    uint32_t cell;
    uint16_t plane;
    BFloat16 code;  // rounded up
  };

  // Writes the bounds of runs of `run` rows in order; run i is cell `number(i)`.
  template <class Number>
  void write_level(uint32_t run, uint32_t plane_bytes, float* levels, uint8_t* planes,
                   Number number) {
    std::vector<Maximum> maxima;
    maxima.reserve(std::min<uint64_t>(entries_.size(), layout_.planes * plane_bytes * 2));
    std::vector<uint32_t> counts(kCodes, 0);
    std::vector<BFloat16> largest(layout_.planes, 0);
    std::vector<uint16_t> touched;
    for (uint32_t begin = 0, i = 0; begin < order_.size(); begin += run, ++i) {
      const uint32_t end = std::min<uint32_t>(begin + run, uint32_t(order_.size()));
      touched.clear();
      for (uint32_t place = begin; place < end; ++place) {
        const uint16_t row = order_[place].row;
        for (uint32_t e = starts_[row]; e < starts_[row + 1]; ++e) {
          const auto [plane, code] = entries_[e];
          if (largest[plane] == 0) touched.push_back(plane);
          if (largest[plane] < code) largest[plane] = code;
        }
      }
      for (uint16_t plane : touched) {
        maxima.push_back({number(i), plane, largest[plane]});
        ++counts[largest[plane]];
        largest[plane] = 0;
      }
    }
    std::vector<uint8_t> level_of(kCodes);
    choose_levels(counts, levels, level_of.data());
    for (const Maximum& maximum : maxima) {
      const uint32_t n = maximum.cell % kCellGroup;
      const uint64_t at = uint64_t(maximum.plane) * plane_bytes +
                          maximum.cell / kCellGroup * (kCellGroup / 2) + 2 * (n % 32) + n / 32 % 2;
      planes[at] |= uint8_t(level_of[maximum.code] << (n < kCellGroup / 2 ? 0 : 4));
    }
  }

  // Chooses levels for maxima of which counts[code] have a code, and the level of each code.
  //
  // With f(x) the density of maxima and levels w(x) apart, rounding up adds w / 2 to a bound, and
  // the bounds that matter hold more large values than small ones: the sum of f(x) x w(x)^2 is least
  // (for a given number of levels) where w is proportional to (f(x) x)^(-1/3). Measured: a third
  // fewer rows to score than by quantiles of the square root of f.
  static void choose_levels(const std::vector<uint32_t>& counts, float* levels,
                            uint8_t* level_of) {
    std::vector<double> share(kCodes, 0.0);
    double total = 0.0;
    for (uint32_t code = 1; code < kCodes; ++code) {
      if (counts[code] == 0) continue;
      const double x = bf16_to_float(BFloat16(code));
      const double width = x - bf16_to_float(BFloat16(code - 1));
      share[code] = std::cbrt(counts[code] / width * x) * width;
      total += share[code];
    }
    uint32_t level = 0;
    double sum = 0.0;
    levels[0] = 0.0f;
    for (uint32_t code = 1; code < kCodes; ++code) {
      if (counts[code] == 0) continue;
      // Maxima up to the present level's end are in it: begin the next one when it is full.
      const double full = total * double(level) / double(kLevels - 1);
      if (level == 0 || (sum >= full * (1.0 - 1e-12) && level < kLevels - 1)) ++level;
      sum += share[code];
      level_of[code] = uint8_t(level);
      levels[level] = bf16_to_float(BFloat16(code));
    }
    for (uint32_t rest = level + 1; rest < kLevels; ++rest) levels[rest] = levels[level];
  }

  const CellLayout layout_;
  std::vector<uint32_t> starts_{0};
  std::vector<Entry> entries_;
  std::vector<Ordered> order_;
};

}  // namespace sparse_embed

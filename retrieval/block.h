// A block: up to kMaxBlockRows consecutive rows, stored twice in one position-independent buffer.
//
// 1. Posting lists for fast, approximate accumulation. The postings of one dimension are sorted by
//    value, largest first, and cut into groups of kGroup rows; a group stores its rows' 16-bit local
//    ids and one upper and one lower bound of its values (bfloat16, rounded outward). So a posting
//    takes 2 + 4 / kGroup = 3 bytes, and a whole group adds one and the same number to its
//    accumulators. The last group of a list is filled up with local ids that no row has.
// 2. Rows for exact scoring: float32 values, then 16-bit dimensions (32-bit where there are more
//    than 65,536 of them), contiguous per row so that a row costs few cache lines.
//
// A buffer is what `build` makes in memory and what an index file holds: it can be used where it is
// mapped. `open` checks everything that memory safety depends on except the local ids and the
// dimensions of rows, which cannot reach outside their arrays: accumulators and dense queries have
// 65,536 places, and 32-bit dimensions are compared with the size of the query.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "csr.h"

namespace sparse_embed {

constexpr uint32_t kGroup = 4;
constexpr uint32_t kBoundsAhead = 8;  // bounds are read so many at a time, also at the end
constexpr uint32_t kMaxBlockShift = 15;
constexpr uint32_t kMaxBlockRows = uint32_t(1) << kMaxBlockShift;
constexpr uint32_t kAccumulators = 65536;
constexpr uint32_t kNarrowDims = 65536;  // so many dimensions fit 16 bits
static_assert(kAccumulators == 0x10000 && kNarrowDims == 0x10000,
              "any 16-bit number must have a place, also that of a damaged file");
static_assert(kMaxBlockRows + kGroup <= kAccumulators,
              "the ids that fill up a list must have places that no row has");

// Covers the rounding of a norm to float32 (and of its sum of squares in double precision).
constexpr double kNormRounding = 1e-6;
static_assert(kNormRounding > 0x1p-24, "a row could have a larger norm than max_norm");

using BFloat16 = uint16_t;

inline float bf16_to_float(BFloat16 code) {
  const uint32_t bits = uint32_t(code) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The smallest bfloat16 that is not less than `value`.
inline BFloat16 bf16_round_up(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return (bits >> 31) ? BFloat16(bits >> 16) : BFloat16((bits + 0xFFFFu) >> 16);
}

// bfloat16 codes as unsigned numbers of the same order, and back.
inline uint16_t bf16_to_ordered(BFloat16 code) { return code ^ (code >> 15 ? 0xFFFF : 0x8000); }
inline BFloat16 ordered_to_bf16(uint16_t order) { return order ^ (order >> 15 ? 0x8000 : 0xFFFF); }

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
  uint32_t reserved;
};
static_assert(sizeof(BlockHeader) == 64, "the layout of the file format");

// Where the sections of a block's buffer begin.
struct BlockLayout {
  uint64_t list_starts, ids, upper, lower, row_starts, row_data, end;

  BlockLayout(uint64_t rows, uint64_t dims, uint64_t groups, uint64_t words) {
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
  const BlockHeader* header = nullptr;
  const uint32_t* list_starts = nullptr;  // dims + 1, in groups
  const uint16_t* ids = nullptr;
  const BFloat16* upper = nullptr;
  const BFloat16* lower = nullptr;
  const uint32_t* row_starts = nullptr;  // rows + 1, in words
  const uint32_t* row_data = nullptr;

  uint32_t rows() const { return header->rows; }
  bool wide() const { return wide_dimensions(header->dims); }

  // The view of a buffer that BlockBuilder wrote.
  static BlockView at(const uint8_t* buffer) {
    BlockView view;
    view.header = reinterpret_cast<const BlockHeader*>(buffer);
    const BlockHeader& h = *view.header;
    const BlockLayout layout(h.rows, h.dims, h.groups, h.words);
    view.list_starts = reinterpret_cast<const uint32_t*>(buffer + layout.list_starts);
    view.ids = reinterpret_cast<const uint16_t*>(buffer + layout.ids);
    view.upper = reinterpret_cast<const BFloat16*>(buffer + layout.upper);
    view.lower = reinterpret_cast<const BFloat16*>(buffer + layout.lower);
    view.row_starts = reinterpret_cast<const uint32_t*>(buffer + layout.row_starts);
    view.row_data = reinterpret_cast<const uint32_t*>(buffer + layout.row_data);
    return view;
  }

  // The view of a buffer of unknown origin; throws std::invalid_argument if it cannot be a block of
  // `rows` rows and `dims` dimensions.
  static BlockView open(const uint8_t* buffer, uint64_t bytes, uint64_t rows, uint64_t dims) {
    auto require = [](bool condition, const char* message) {
      if (!condition) throw std::invalid_argument(message);
    };
    require(bytes >= sizeof(BlockHeader), "a block is shorter than its header");
    const BlockHeader& h = *reinterpret_cast<const BlockHeader*>(buffer);
    require(h.bytes == bytes && h.rows == rows && h.dims == dims, "a block has the wrong size");
    require(h.groups <= bytes && h.words <= bytes, "a block's counts exceed its size");
    require(BlockLayout(rows, dims, h.groups, h.words).end == bytes,
            "a block's counts do not match its size");
    const BlockView view = at(buffer);
    require(view.list_starts[0] == 0 && view.list_starts[dims] == h.groups &&
                std::is_sorted(view.list_starts, view.list_starts + dims + 1),
            "a block's list offsets are damaged");
    require(view.row_starts[0] == 0 && view.row_starts[rows] == h.words &&
                std::is_sorted(view.row_starts, view.row_starts + rows + 1),
            "a block's row offsets are damaged");
    return view;
  }
};

// Calls visit(dimension, value) for the non-zeros of a row, in order of increasing dimension.
template <class Visit>
void visit_row(const BlockView& block, uint32_t row, Visit visit) {
  const uint32_t begin = block.row_starts[row];
  const uint64_t count = row_count(block.row_starts[row + 1] - begin, block.wide());
  const auto* values = reinterpret_cast<const float*>(block.row_data + begin);
  const uint32_t* dims = block.row_data + begin + count;
  for (uint64_t i = 0; i < count; ++i) {
    visit(block.wide() ? dims[i] : reinterpret_cast<const uint16_t*>(dims)[i], values[i]);
  }
}

// Builds the block of rows [begin, end) of a matrix in two steps: the constructor measures, so that
// the caller can allocate many blocks together, and `write` fills a zeroed buffer of `bytes`.
class BlockBuilder {
 public:
  BlockBuilder(const Csr& matrix, int64_t begin, int64_t end)
      : m_(matrix), begin_(begin), end_(end) {
    std::vector<uint32_t> counts(m_.dims, 0);
    const bool wide = wide_dimensions(m_.dims);
    uint64_t words = 0, nonzeros = 0;
    for (int64_t i = begin_; i < end_; ++i) {
      uint64_t count = 0;
      for (int64_t p = m_.indptr[i]; p < m_.indptr[i + 1]; ++p) {
        if (m_.values[p] == 0.0f) continue;
        ++counts[m_.indices[p]];
        ++count;
      }
      words += row_words(count, wide);
      nonzeros += count;
    }
    uint64_t groups = 0;
    for (uint32_t count : counts) groups += (count + kGroup - 1) / kGroup;
    if (words >= (uint64_t(1) << 32)) throw std::length_error("a block holds too many non-zeros");
    header_ = {};
    header_.groups = groups;
    header_.words = words;
    header_.nonzeros = nonzeros;
    header_.rows = uint32_t(end - begin);
    header_.dims = uint32_t(m_.dims);
    header_.bytes = BlockLayout(header_.rows, header_.dims, groups, words).end;
  }

  uint64_t bytes() const { return header_.bytes; }

  void write(uint8_t* buffer) const {
    BlockHeader header = header_;
    const BlockLayout layout(header.rows, header.dims, header.groups, header.words);
    auto* list_starts = reinterpret_cast<uint32_t*>(buffer + layout.list_starts);
    auto* ids = reinterpret_cast<uint16_t*>(buffer + layout.ids);
    auto* upper = reinterpret_cast<BFloat16*>(buffer + layout.upper);
    auto* lower = reinterpret_cast<BFloat16*>(buffer + layout.lower);
    auto* row_starts = reinterpret_cast<uint32_t*>(buffer + layout.row_starts);
    auto* row_data = reinterpret_cast<uint32_t*>(buffer + layout.row_data);
    const bool wide = wide_dimensions(m_.dims);

    // Rows, and the number of postings of each dimension.
    std::vector<uint32_t> next(m_.dims + 1, 0);
    double max_norm2 = 0.0, sum = 0.0;
    header.nonnegative = 1;
    header.max_count = 0;
    uint32_t word = 0;
    for (int64_t i = begin_; i < end_; ++i) {
      row_starts[i - begin_] = word;
      uint32_t count = 0;
      double norm2 = 0.0;
      for (int64_t p = m_.indptr[i]; p < m_.indptr[i + 1]; ++p) {
        if (m_.values[p] == 0.0f) continue;
        std::memcpy(row_data + word + count++, m_.values + p, sizeof(float));
        ++next[m_.indices[p] + 1];
        norm2 += double(m_.values[p]) * m_.values[p];
        sum += std::abs(double(m_.values[p]));
        if (m_.values[p] < 0.0f) header.nonnegative = 0;
      }
      uint32_t at = 0;
      for (int64_t p = m_.indptr[i]; p < m_.indptr[i + 1]; ++p) {
        if (m_.values[p] == 0.0f) continue;
        if (wide) {
          row_data[word + count + at++] = uint32_t(m_.indices[p]);
        } else {
          reinterpret_cast<uint16_t*>(row_data + word + count)[at++] = uint16_t(m_.indices[p]);
        }
      }
      word += uint32_t(row_words(count, wide));
      header.max_count = std::max(header.max_count, count);
      max_norm2 = std::max(max_norm2, norm2);
    }
    row_starts[header.rows] = word;
    header.mean_value = header.nonzeros ? float(sum / double(header.nonzeros)) : 0.0f;
    header.max_norm = float(std::sqrt(max_norm2) * (1.0 + kNormRounding));

    // Postings as (order of the rounded value, local id), first by dimension, then sorted.
    for (int64_t j = 0; j < m_.dims; ++j) next[j + 1] += next[j];
    const std::vector<uint32_t> starts(next);
    std::vector<uint32_t> postings(header.nonzeros);
    for (int64_t i = begin_; i < end_; ++i) {
      for (int64_t p = m_.indptr[i]; p < m_.indptr[i + 1]; ++p) {
        if (m_.values[p] == 0.0f) continue;
        const uint32_t order = bf16_to_ordered(bf16_round_up(m_.values[p]));
        postings[next[m_.indices[p]]++] = (order << 16) | uint32_t(i - begin_);
      }
    }
    uint32_t group = 0;
    float max_value = 0.0f;
    for (int64_t j = 0; j < m_.dims; ++j) {
      list_starts[j] = group;
      uint32_t* list = postings.data() + starts[j];
      const uint32_t count = starts[j + 1] - starts[j];
      std::sort(list, list + count, std::greater<uint32_t>());
      for (uint32_t at = 0; at < count; at += kGroup, ++group) {
        const uint32_t last = std::min(at + kGroup, count) - 1;
        upper[group] = ordered_to_bf16(uint16_t(list[at] >> 16));
        // A value lies above the predecessor of its rounded-up code.
        lower[group] = ordered_to_bf16(uint16_t((list[last] >> 16) - 1));
        max_value = std::max({max_value, std::abs(bf16_to_float(upper[group])),
                              std::abs(bf16_to_float(lower[group]))});
        for (uint32_t i = 0; i < kGroup; ++i) {
          ids[uint64_t(group) * kGroup + i] =
              at + i <= last ? uint16_t(list[at + i]) : uint16_t(kMaxBlockRows + i);
        }
      }
    }
    list_starts[m_.dims] = group;
    header.max_value = max_value;
    std::memcpy(buffer, &header, sizeof header);
  }

 private:
  const Csr m_;
  int64_t begin_, end_;
  BlockHeader header_;
};

}  // namespace sparse_embed

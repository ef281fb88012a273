// A block: up to kMaxBlockRows consecutive rows, stored twice in one position-independent buffer.
//
// 1. Posting lists for fast, approximate accumulation. The postings of one dimension are sorted by
//    value, largest first, and cut into groups of kGroup rows; a group stores its rows' 16-bit local
//    ids and one upper and one lower bound of its values (bfloat16, rounded outward). So a posting
//    takes 2 + 4 / kGroup = 3 bytes, and a whole group adds the same number to its accumulators.
//    The last group of a list is filled up with local ids that no row has.
// 2. Rows for exact scoring: float32 values, then 16-bit dimensions (32-bit where there are more
//    than 65,536 of them), contiguous per row so that a row costs few cache lines.
//
// `build` makes a buffer in memory and an index file holds the same bytes: it can be used where it
// is mapped. `open` checks everything that memory safety depends on except the local ids and the
// dimensions of rows, which cannot reach outside their arrays: accumulators and dense queries have
// 65,536 places, and 32-bit dimensions are compared with the size of the query.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "csr.h"

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
      : m_(matrix), begin_(begin), end_(end), wide_(wide_dimensions(matrix.dims)),
        list_lengths_(matrix.dims, 0) {
    header_.rows = uint32_t(end - begin);
    header_.dims = uint32_t(m_.dims);
    measure();
    header_.bytes = BlockLayout(header_.rows, header_.dims, header_.groups, header_.words).end;
  }

  uint64_t bytes() const { return header_.bytes; }

  void write(uint8_t* buffer) const {
    const Sections out(buffer, header_);
    write_rows(out);
    write_lists(out);
    BlockHeader header = header_;
    header.max_value = largest_bound(out);
    std::memcpy(buffer, &header, sizeof header);
  }

 private:
  // Where to write; see BlockView.
  struct Sections {
    uint32_t* list_starts;
    uint16_t* ids;
    BFloat16 *upper, *lower;
    uint32_t *row_starts, *row_data;

    Sections(uint8_t* buffer, const BlockHeader& h) {
      const BlockLayout layout(h.rows, h.dims, h.groups, h.words);
      list_starts = reinterpret_cast<uint32_t*>(buffer + layout.list_starts);
      ids = reinterpret_cast<uint16_t*>(buffer + layout.ids);
      upper = reinterpret_cast<BFloat16*>(buffer + layout.upper);
      lower = reinterpret_cast<BFloat16*>(buffer + layout.lower);
      row_starts = reinterpret_cast<uint32_t*>(buffer + layout.row_starts);
      row_data = reinterpret_cast<uint32_t*>(buffer + layout.row_data);
    }
  };

  // A posting while lists are sorted: its rounded value above its row, so that the order of numbers
  // is that of values.
  struct Posting {
    uint32_t bits;

    Posting() = default;
    Posting(float value, uint32_t row)
        : bits(uint32_t(bf16_to_ordered(bf16_round_up(value))) << 16 | row) {}
    uint16_t row() const { return uint16_t(bits); }
    BFloat16 upper() const { return ordered_to_bf16(uint16_t(bits >> 16)); }
    // A value lies above the predecessor of its rounded-up code.
    BFloat16 lower() const { return ordered_to_bf16(uint16_t((bits >> 16) - 1)); }
    bool operator>(const Posting& other) const { return bits > other.bits; }
  };
  static_assert(kMaxBlockRows <= 0x10000, "a posting keeps its row in 16 bits");

  // The postings of all dimensions, one list after the other.
  struct Lists {
    std::vector<uint32_t> starts;  // dims + 1
    std::vector<Posting> postings;
  };

  // Calls visit(dimension, value) for the non-zeros of row `i` of the matrix.
  template <class Visit>
  void for_each(int64_t i, Visit visit) const {
    const int32_t* dims = m_.indices;  // locals, which no write of `visit` can change
    const float* values = m_.values;
    const int64_t end = m_.indptr[i + 1];
    for (int64_t p = m_.indptr[i]; p < end; ++p) {
      if (values[p] != 0.0f) visit(uint32_t(dims[p]), values[p]);
    }
  }

  // Fills in `list_lengths_` and the header's fields about rows and lists, except `max_value`.
  void measure() {
    double max_norm2 = 0.0, sum = 0.0;
    bool nonnegative = true;
    for (int64_t i = begin_; i < end_; ++i) {
      uint32_t count = 0;
      double norm2 = 0.0;
      for_each(i, [&](uint32_t dim, float value) {
        ++count;
        ++list_lengths_[dim];
        norm2 += double(value) * value;
        sum += std::abs(double(value));
        if (value < 0.0f) nonnegative = false;
      });
      header_.words += row_words(count, wide_);
      header_.nonzeros += count;
      header_.max_count = std::max(header_.max_count, count);
      max_norm2 = std::max(max_norm2, norm2);
    }
    if (header_.words >> 32) throw std::length_error("a block holds too many non-zeros");
    for (uint32_t length : list_lengths_) header_.groups += (length + kGroup - 1) / kGroup;
    header_.nonnegative = nonnegative;
    header_.mean_value = header_.nonzeros ? float(sum / double(header_.nonzeros)) : 0.0f;
    header_.max_norm = float(std::sqrt(max_norm2) * (1.0 + kNormRounding));
  }

  void write_rows(const Sections& out) const {
    uint32_t word = 0;
    for (int64_t i = begin_; i < end_; ++i) {
      out.row_starts[i - begin_] = word;
      word += write_row(i, out.row_data + word);
    }
    out.row_starts[header_.rows] = word;
  }

  // Writes the values of row `i`, then its dimensions, and returns how many words they take.
  uint32_t write_row(int64_t i, uint32_t* words) const {
    uint32_t count = 0;
    for_each(i, [&](uint32_t, float value) {
      std::memcpy(words + count++, &value, sizeof value);
    });
    uint32_t* wide = words + count;
    auto* narrow = reinterpret_cast<uint16_t*>(wide);
    for_each(i, [&](uint32_t dim, float) {
      if (wide_) {
        *wide++ = dim;
      } else {
        *narrow++ = uint16_t(dim);
      }
    });
    return uint32_t(row_words(count, wide_));
  }

  void write_lists(const Sections& out) const {
    Lists lists = unsorted_lists();
    uint32_t group = 0;
    for (int64_t j = 0; j < m_.dims; ++j) {
      out.list_starts[j] = group;
      Posting* list = lists.postings.data() + lists.starts[j];
      const uint32_t count = lists.starts[j + 1] - lists.starts[j];
      std::sort(list, list + count, std::greater<Posting>());
      for (uint32_t at = 0; at < count; at += kGroup) {
        write_group(list + at, std::min(kGroup, count - at), group++, out);
      }
    }
    out.list_starts[m_.dims] = group;
  }

  Lists unsorted_lists() const {
    Lists lists{std::vector<uint32_t>(m_.dims + 1, 0), std::vector<Posting>(header_.nonzeros)};
    std::partial_sum(list_lengths_.begin(), list_lengths_.end(), lists.starts.begin() + 1);
    std::vector<uint32_t> next(lists.starts);
    for (int64_t i = begin_; i < end_; ++i) {
      for_each(i, [&](uint32_t dim, float value) {
        lists.postings[next[dim]++] = Posting(value, uint32_t(i - begin_));
      });
    }
    return lists;
  }

  // Writes a group of `count` sorted postings, filled up with ids that no row has.
  static void write_group(const Posting* postings, uint32_t count, uint32_t group,
                          const Sections& out) {
    out.upper[group] = postings[0].upper();
    out.lower[group] = postings[count - 1].lower();
    uint16_t* ids = out.ids + uint64_t(group) * kGroup;
    for (uint32_t i = 0; i < kGroup; ++i) {
      ids[i] = i < count ? postings[i].row() : uint16_t(kMaxBlockRows + i);
    }
  }

  // The largest magnitude of a bound in the lists; without the sign, codes order as magnitudes do.
  float largest_bound(const Sections& out) const {
    BFloat16 largest = 0;
    for (uint64_t group = 0; group < header_.groups; ++group) {
      largest = std::max(largest, BFloat16(out.upper[group] & 0x7FFF));
      largest = std::max(largest, BFloat16(out.lower[group] & 0x7FFF));
    }
    return bf16_to_float(largest);
  }

  const Csr m_;
  const int64_t begin_, end_;
  const bool wide_;
  std::vector<uint32_t> list_lengths_;  // postings of each dimension
  BlockHeader header_ = {};
};

}  // namespace sparse_embed

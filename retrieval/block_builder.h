// Blocks of rows (block.h) are made here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "block.h"
#include "csr.h"

namespace sparse_embed {

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
    header_.cell_rows = choose_cell_rows(header_.rows, header_.dims, header_.nonnegative != 0,
                                         header_.nonzeros);
    header_.bytes = BlockLayout(header_).end;
  }

  uint64_t bytes() const { return header_.bytes; }

  void write(uint8_t* buffer) const {
    const Sections out(buffer, header_);
    std::vector<int64_t> rows(header_.rows);  // of the matrix, by their places
    std::iota(rows.begin(), rows.end(), begin_);
    if (header_.cell_rows != 0) {
      write_cells(out);
      for (uint32_t place = 0; place < header_.rows; ++place) {
        rows[place] = begin_ + out.order[place];
        out.places[out.order[place]] = uint16_t(place);
      }
    }
    write_rows(rows, out);
    write_lists(rows, out);
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
    uint16_t *order, *places;
    float* levels;
    uint8_t *planes, *coarse_planes;

    Sections(uint8_t* buffer, const BlockHeader& h) {
      const BlockLayout layout(h);
      list_starts = reinterpret_cast<uint32_t*>(buffer + layout.list_starts);
      ids = reinterpret_cast<uint16_t*>(buffer + layout.ids);
      upper = reinterpret_cast<BFloat16*>(buffer + layout.upper);
      lower = reinterpret_cast<BFloat16*>(buffer + layout.lower);
      row_starts = reinterpret_cast<uint32_t*>(buffer + layout.row_starts);
      row_data = reinterpret_cast<uint32_t*>(buffer + layout.row_data);
      levels = reinterpret_cast<float*>(buffer + layout.levels);
      order = reinterpret_cast<uint16_t*>(buffer + layout.order);
      places = reinterpret_cast<uint16_t*>(buffer + layout.places);
      planes = buffer + layout.planes;
      coarse_planes = buffer + layout.coarse_planes;
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

  void write_rows(const std::vector<int64_t>& rows, const Sections& out) const {
    uint32_t word = 0;
    for (size_t place = 0; place < rows.size(); ++place) {
      out.row_starts[place] = word;
      word += write_row(rows[place], out.row_data + word);
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

  void write_cells(const Sections& out) const {
    CellBuilder builder(
        CellLayout(header_.rows, header_.dims, header_.nonnegative != 0, header_.cell_rows),
        header_.nonzeros);
    for (int64_t i = begin_; i < end_; ++i) {
      builder.add_row([&](auto add) {
        for_each(i, [&](uint32_t dim, float value) {
          add(value > 0.0f ? dim : header_.dims + dim, std::abs(value));
        });
      });
    }
    builder.write(out.levels, out.order, out.planes, out.coarse_planes);
  }

  void write_lists(const std::vector<int64_t>& rows, const Sections& out) const {
    Lists lists = unsorted_lists(rows);
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

  Lists unsorted_lists(const std::vector<int64_t>& rows) const {
    Lists lists{std::vector<uint32_t>(m_.dims + 1, 0), std::vector<Posting>(header_.nonzeros)};
    std::partial_sum(list_lengths_.begin(), list_lengths_.end(), lists.starts.begin() + 1);
    std::vector<uint32_t> next(lists.starts);
    for (size_t place = 0; place < rows.size(); ++place) {
      for_each(rows[place], [&](uint32_t dim, float value) {
        lists.postings[next[dim]++] = Posting(value, uint32_t(place));
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

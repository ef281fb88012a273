// Which rows a search may find.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "state.h"

namespace sparse_embed {

// What the caller says: ids, or a mask in which id i has place i. Ids that no row has do not matter.
struct Selection {
  const int64_t* ids = nullptr;
  const uint8_t* mask = nullptr;
  bool masked = false;     // which of the two it is
  uint64_t count = 0;      // of ids, or of places in the mask
  bool forbidden = false;  // these are the rows not to be found
};

// What it means for the rows of a state. Few rows are listed; else the others are hidden.
struct Filter {
  bool listed = false;
  std::vector<uint32_t> places;  // of the rows to be found, rising
  std::vector<uint64_t> hidden;  // a bit per row, as `State::removed`

  // Lists up to `few` rows.
  Filter(const State& state, const Selection& selection, uint64_t few) {
    if (!selection.masked && !selection.forbidden && selection.count <= few) {
      list_ids(state, selection);
      return;
    }
    hide(state, selection);
    if (visible(state) <= few) list_visible(state);
  }

 private:
  void list_ids(const State& state, const Selection& selection) {
    for (uint64_t i = 0; i < selection.count; ++i) {
      const int64_t row = state.ids.find(selection.ids[i]);
      if (row < 0 || !state.living(uint32_t(row))) continue;
      places.push_back(state.blocks.place_of(uint32_t(row)));
    }
    finish_list();
  }

  void hide(const State& state, const Selection& selection) {
    hidden.assign((state.rows() + 63) / 64, 0);
    if (selection.masked) {
      mark_mask(state, selection);
    } else {
      mark_ids(state, selection);
    }
    if (!selection.forbidden) {
      for (uint64_t& bits : hidden) bits = ~bits;
      if (state.rows() % 64) hidden.back() &= bit(uint32_t(state.rows())) - 1;
    }
    for (size_t word = 0; word < state.removed.size(); ++word) hidden[word] |= state.removed[word];
  }

  void mark_ids(const State& state, const Selection& selection) {
    for (uint64_t i = 0; i < selection.count; ++i) {
      const int64_t row = state.ids.find(selection.ids[i]);
      if (row >= 0) hidden[uint64_t(row) / 64] |= bit(uint32_t(row));
    }
  }

  void mark_mask(const State& state, const Selection& selection) {
    if (selection.count < state.ids.next()) {
      throw std::invalid_argument(
          (selection.forbidden ? "forbidden has " : "allowed has ") +
          std::to_string(selection.count) + " places: expected at least " +
          std::to_string(state.ids.next()) + ", one for each id from 0 to the largest (or ids)");
    }
    if (!state.ids.sorted() && !state.ids.rows()) {  // ids are rows: much faster in order
      for (uint64_t begin = 0; begin < state.rows(); begin += 64) {
        const uint64_t count = std::min<uint64_t>(64, state.rows() - begin);
        uint64_t bits = 0;
        for (uint64_t i = 0; i < count; ++i) bits |= uint64_t(selection.mask[begin + i] != 0) << i;
        hidden[begin / 64] = bits;
      }
      return;
    }
    for (uint64_t rank = 0; rank < state.rows(); ++rank) {
      const uint32_t row = state.ids.row(uint32_t(rank));
      if (selection.mask[state.ids.id(uint32_t(rank))]) hidden[row / 64] |= bit(row);
    }
  }

  uint64_t visible(const State& state) const {
    uint64_t count = state.rows();
    for (const uint64_t bits : hidden) count -= uint64_t(__builtin_popcountll(bits));
    return count;
  }

  void list_visible(const State& state) {
    for (uint64_t word = 0; word < hidden.size(); ++word) {
      for (uint64_t bits = ~hidden[word]; bits != 0; bits &= bits - 1) {
        const uint64_t row = 64 * word + uint64_t(__builtin_ctzll(bits));
        if (row < state.rows()) places.push_back(state.blocks.place_of(uint32_t(row)));
      }
    }
    finish_list();
  }

  void finish_list() {
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    listed = true;
  }

  static uint64_t bit(uint32_t row) { return uint64_t(1) << (row % 64); }
};

}  // namespace sparse_embed

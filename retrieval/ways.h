// The choice between the two ways to search, which have the same results.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace sparse_embed {

enum class Way { kCheapest, kCells, kAccumulate };

inline Way way_named(const std::string& name) {
  if (name == "cheapest") return Way::kCheapest;
  if (name == "cells") return Way::kCells;
  if (name == "accumulate") return Way::kAccumulate;
  throw std::invalid_argument("no way to search is called " + name);
}

// Whether bounds of cells are worth a trial for a kind of search, which the past tells: after each
// failure in a row, twice as many queries do without. It changes the speed alone, so threads need
// not agree on it.
class Trials {
 public:
  // Searches for k results, among all rows or among some, of which some may be missed or none.
  struct Kind {
    size_t k;
    bool filtered, approximate;
  };

  bool due(Kind kind) {
    std::atomic<uint32_t>& left = entry(kind).left;
    const uint32_t now = left.load(std::memory_order_relaxed);
    if (now > 0) left.store(now - 1, std::memory_order_relaxed);
    return now == 0;
  }
  void note(Kind kind, bool success) {
    Entry& e = entry(kind);
    const uint32_t failures =
        success ? 0 : std::min(e.failures.load(std::memory_order_relaxed) + 1, kMostFailures);
    e.failures.store(failures, std::memory_order_relaxed);
    e.left.store((uint32_t(1) << failures) - 1, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kMostFailures = 7;
  struct Entry {
    std::atomic<uint32_t> failures{0}, left{0};
  };
  Entry& entry(Kind kind) {
    return entries_[kind.filtered][kind.approximate][63 - __builtin_clzll(uint64_t(kind.k) | 1)];
  }

  Entry entries_[2][2][64];
};

}  // namespace sparse_embed

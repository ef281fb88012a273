// Results as sortable integers, and selection of the k best of them.
//
// A result is one 64-bit key: the score's bits, made to order as an unsigned number, above the
// complement of a 32-bit id. Comparing keys compares (score, then lower id first), so every search
// in this package selects and sorts by the same total order and breaks ties in the same way. Where
// ids have more bits, keys hold ranks, which order as the ids do (ids.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace sparse_embed {

using Key = uint64_t;

inline Key make_key(float score, uint32_t id) {
  uint32_t bits;
  std::memcpy(&bits, &score, sizeof bits);
  bits ^= (bits >> 31) ? 0xFFFFFFFFu : 0x80000000u;
  return (uint64_t(bits) << 32) | uint32_t(~id);
}

inline float key_score(Key key) {
  uint32_t bits = uint32_t(key >> 32);
  bits ^= (bits >> 31) ? 0x80000000u : 0xFFFFFFFFu;
  float score;
  std::memcpy(&score, &bits, sizeof score);
  return score;
}

inline uint32_t key_id(Key key) { return ~uint32_t(key); }

// Keeps the k largest keys of `keys`, in no particular order.
inline void keep_best(std::vector<Key>& keys, size_t k) {
  if (keys.size() <= k) return;
  std::nth_element(keys.begin(), keys.begin() + k, keys.end(), std::greater<Key>());
  keys.resize(k);
}

// Writes the k best of `keys`, best first, padding unused places with (-inf, -1).
inline void write_best(std::vector<Key>& keys, size_t k, float* scores, int64_t* ids) {
  keep_best(keys, k);
  std::sort(keys.begin(), keys.end(), std::greater<Key>());
  for (size_t i = 0; i < keys.size(); ++i) {
    scores[i] = key_score(keys[i]);
    ids[i] = int64_t(key_id(keys[i]));
  }
  std::fill(scores + keys.size(), scores + k, -__builtin_inff());
  std::fill(ids + keys.size(), ids + k, int64_t(-1));
}

}  // namespace sparse_embed

// Which values of each row are its k largest by magnitude.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "csr.h"

namespace sparse_embed {

// Sets `kept` of every value to whether it is among the k largest of its row, and not zero. Among
// equals the lower column is kept. The time grows with the number of values.
inline void mark_largest(const Csr& m, int64_t k, uint8_t* kept) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < m.rows; ++i) {
    const int64_t begin = m.indptr[i], end = m.indptr[i + 1];
    order.resize(end - begin);
    std::iota(order.begin(), order.end(), begin);
    if (end - begin > k) {
      std::nth_element(order.begin(), order.begin() + k, order.end(), [&](int64_t a, int64_t b) {
        const float x = std::fabs(m.values[a]), y = std::fabs(m.values[b]);
        return x != y ? x > y : a < b;  // columns increase within a row
      });
      order.resize(k);
      std::fill(kept + begin, kept + end, 0);
    }
    for (const int64_t place : order) kept[place] = m.values[place] != 0;
  }
}

}  // namespace sparse_embed

// Dense scores of shortlisted rows, best first.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"
#include "parallel.h"
#include "prefetch.h"
#include "topk.h"

namespace sparse_embed {

inline float dense_dot(const Kernels& kernels, const float* row, const float* query, size_t n) {
  return kernels.dot_float32(row, query, n);
}
inline float dense_dot(const Kernels& kernels, const uint16_t* row, const float* query, size_t n) {
  return kernels.dot_float16(row, query, n);
}

// Rows of `dense` have `dims` values; the row of id i is rows[i], or i if `rows` is null. Query i has
// the shortlist ids[i * length ...], in which negative ids mark unused places; its k best ids go to
// row i of the results.
template <class T>
void rerank(const T* dense, int64_t dims, const int64_t* rows, const float* queries,
            const int64_t* ids, int64_t num_queries, int64_t length, size_t k, size_t threads,
            const Kernels& kernels, float* out_scores, int64_t* out_ids) {
  auto row_of = [&](int64_t id) { return dense + (rows ? rows[id] : id) * dims; };
  parallel(size_t(num_queries), threads, [&](size_t q) {
    // Rows lie anywhere in memory: the next ones are fetched while one is multiplied.
    constexpr int64_t kAhead = 4;
    const int64_t* shortlist = ids + int64_t(q) * length;
    auto fetch = [&](int64_t i) {
      if (i < length && shortlist[i] >= 0) {
        const T* row = row_of(shortlist[i]);
        prefetch_range<3>(row, row + dims);
      }
    };
    for (int64_t i = 0; i < kAhead; ++i) fetch(i);
    std::vector<Key> keys;
    keys.reserve(size_t(length));
    for (int64_t i = 0; i < length; ++i) {
      fetch(i + kAhead);
      if (shortlist[i] < 0) continue;
      const float score =
          dense_dot(kernels, row_of(shortlist[i]), queries + int64_t(q) * dims, size_t(dims));
      keys.push_back(make_key(score, uint32_t(shortlist[i])));
    }
    write_best(keys, k, out_scores + q * k, out_ids + q * k);
  });
}

}  // namespace sparse_embed

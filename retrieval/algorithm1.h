// The paper's Algorithm 1 ("Sparse Nearest Neighbour"), as written: the yardstick for SparseIndex.
#pragma once

#include <cstdint>
#include <vector>

#include "csr.h"
#include "topk.h"

namespace sparse_embed {

// Build Index: C[j] = {(i, D_ij) | D_ij != 0}, all lists in one array, rows increasing within each.
class Algorithm1 {
 public:
  struct Posting {
    uint32_t row;
    float value;
  };

  explicit Algorithm1(const Csr& matrix) : rows_(matrix.rows), offsets_(matrix.dims + 1, 0) {
    for (int64_t p = 0; p < matrix.indptr[rows_]; ++p) {
      if (matrix.values[p] != 0.0f) ++offsets_[matrix.indices[p] + 1];
    }
    for (int64_t j = 0; j < matrix.dims; ++j) offsets_[j + 1] += offsets_[j];
    postings_.resize(offsets_[matrix.dims]);
    std::vector<uint64_t> next(offsets_.begin(), offsets_.end() - 1);
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t p = matrix.indptr[i]; p < matrix.indptr[i + 1]; ++p) {
        if (matrix.values[p] != 0.0f) {
          postings_[next[matrix.indices[p]]++] = {uint32_t(i), matrix.values[p]};
        }
      }
    }
  }

  size_t nbytes() const {
    return offsets_.size() * sizeof(uint64_t) + postings_.size() * sizeof(Posting);
  }

  // Query, for every row of `queries`; results go to arrays of shape (queries.rows, k).
  void search(const Csr& queries, size_t k, float threshold, float* out_scores,
              int64_t* out_ids) const {
    std::vector<float> scores;
    std::vector<Key> kept;
    for (int64_t q = 0; q < queries.rows; ++q) {
      scores.assign(rows_, 0.0f);
      for (int64_t p = queries.indptr[q]; p < queries.indptr[q + 1]; ++p) {
        const float weight = queries.values[p];
        if (weight == 0.0f) continue;
        const Posting* posting = postings_.data() + offsets_[queries.indices[p]];
        const Posting* end = postings_.data() + offsets_[queries.indices[p] + 1];
        for (; posting != end; ++posting) scores[posting->row] += posting->value * weight;
      }
      kept.clear();
      for (int64_t i = 0; i < rows_; ++i) {
        if (scores[i] >= threshold) kept.push_back(make_key(scores[i], uint32_t(i)));
      }
      write_best(kept, k, out_scores + q * k, out_ids + q * k);
    }
  }

 private:
  int64_t rows_;
  std::vector<uint64_t> offsets_;  // dims + 1
  std::vector<Posting> postings_;
};

}  // namespace sparse_embed

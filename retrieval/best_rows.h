// The best rows of one query so far, by exact score.
//
// Rows are named by their places (state.h) until they are scored, and by their ranks afterwards:
// results are compared by rank (ids.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "query.h"
#include "scoring.h"
#include "state.h"
#include "topk.h"

namespace sparse_embed {

class BestRows {
 public:
  BestRows(const Blocks& blocks, Query query, size_t k, float threshold)
      : blocks_(blocks), query_(std::move(query)), k_(k), threshold_(threshold),
        tau_(std::max(threshold, kSmallestPositive)) {}

  const Blocks& blocks() const { return blocks_; }
  const Query& query() const { return query_; }
  size_t k() const { return k_; }
  float threshold() const { return threshold_; }
  float tau() const { return tau_; }  // only rows that score at least this matter
  bool empty() const { return keys_.empty(); }
  size_t size() const { return keys_.size(); }
  void clear() { keys_.clear(); }

  // Scores `count` rows, of which place_at(i) is where the i-th lies, and takes those that reach tau.
  template <class PlaceAt>
  void score(size_t count, DenseQuery& dense, PlaceAt place_at) {
    score_rows(count, dense, place_at, tau_);
  }

  // Keeps the k best and raises tau to the score of the last of them.
  void keep() {
    if (keys_.size() < k_) return;
    std::nth_element(keys_.begin(), keys_.begin() + (k_ - 1), keys_.end(), std::greater<Key>());
    keys_.resize(k_);
    tau_ = std::max(tau_, key_score(keys_[k_ - 1]));
  }

  // Raises tau to the score of rank `rank` from 0, if there is one, and keeps all rows that tie with
  // it: among them, lower ids belong to the result.
  bool guess(size_t rank) {
    if (keys_.size() <= rank) return false;
    std::nth_element(keys_.begin(), keys_.begin() + rank, keys_.end(), std::greater<Key>());
    tau_ = std::max(tau_, key_score(keys_[rank]));
    keys_.erase(std::remove_if(keys_.begin(), keys_.end(),
                               [this](Key key) { return key_score(key) < tau_; }),
                keys_.end());
    return true;
  }

  // Scores all rows of block `b`.
  void score_block(uint32_t b, DenseQuery& dense) { score_block(b, tau_, dense); }

  // Scores the rows at these places, which take the place of all blocks.
  void score_all(const std::vector<uint32_t>& places, DenseQuery& dense) {
    constexpr size_t kAtOnce = 4096;
    float least = threshold_;
    for (size_t begin = 0; begin < places.size(); begin += kAtOnce) {
      score_rows(std::min(kAtOnce, places.size() - begin), dense,
                 [&](size_t i) { return places[begin + i]; }, least);
      keep();
      if (keys_.size() == k_) least = std::max(threshold_, key_score(keys_[k_ - 1]));
    }
    complete_ = true;
  }

  // The keys of the best rows in no particular order, and a way to give them to the search of the
  // same query in other blocks, in place of its own.
  std::vector<Key> take() { return std::move(keys_); }
  void set(std::vector<Key> keys) { keys_ = std::move(keys); }

  // The k best rows in no particular order, once all blocks have been searched; rows whose score is
  // not positive complete them if the threshold allows.
  std::vector<Key>& results(DenseQuery& dense) {
    keep_best(keys_, k_);
    if (keys_.size() < k_ && threshold_ <= 0.0f && !complete_) {
      if (nonnegative()) {
        append_zero_scores();
      } else {
        keys_.clear();
        for (uint32_t b = 0; b < blocks_.views.size(); ++b) {
          if (!blocks_.all_hidden(b)) score_block(b, threshold_, dense);
        }
      }
    }
    return keys_;
  }

 private:
  // Takes the rows that reach `least`. Rows may lie anywhere in memory, so those that come next are
  // fetched ahead.
  template <class PlaceAt>
  void score_rows(size_t count, DenseQuery& dense, PlaceAt place_at, float least) {
    if (count == 0) return;
    constexpr size_t kOffsetsAhead = 24, kDataAhead = 16;
    auto block = [&](size_t i) { return &blocks_.view_of(place_at(i)); };
    auto local = [&](size_t i) { return blocks_.local(place_at(i)); };
    auto fetch_offsets = [&](size_t i) {
      if (i < count) DenseQuery::prefetch_offsets(*block(i), local(i));
    };
    auto fetch_data = [&](size_t i) {
      if (i < count) DenseQuery::prefetch_data(*block(i), local(i));
    };
    dense.set(query_.dims, query_.weights, query_.count);
    for (size_t i = 0; i < kOffsetsAhead; ++i) fetch_offsets(i);
    for (size_t i = 0; i < kDataAhead; ++i) fetch_data(i);
    for (size_t i = 0; i < count; i += 4) {
      const BlockView* views[4];
      uint32_t places[4];
      float scores[4];
      for (size_t j = 0; j < 4; ++j) {
        fetch_offsets(i + j + kOffsetsAhead);
        fetch_data(i + j + kDataAhead);
        views[j] = block(std::min(i + j, count - 1));
        places[j] = local(std::min(i + j, count - 1));
      }
      dense.score_four(views, places, scores);
      for (size_t j = 0; j < 4 && i + j < count; ++j) {
        if (scores[j] >= least) take(scores[j], place_at(i + j));
      }
    }
    dense.clear(query_.dims, query_.count);
  }

  void score_block(uint32_t b, float least, DenseQuery& dense) {
    dense.set(query_.dims, query_.weights, query_.count);
    const uint32_t base = b << blocks_.shift;
    for (uint32_t place = 0; place < blocks_.views[b].rows(); ++place) {
      const float score = dense.score(blocks_.views[b], place);
      if (score >= least && !blocks_.is_hidden_at(base + place)) take(score, base + place);
    }
    dense.clear(query_.dims, query_.count);
    keep();
  }

  void take(float score, uint32_t place) {
    keys_.push_back(make_key(score, blocks_.ids->rank(blocks_.row_at(place))));
  }

  // Whether no score can be below 0.
  bool nonnegative() const {
    return query_.nonnegative &&
           std::all_of(blocks_.views.begin(), blocks_.views.end(),
                       [](const BlockView& b) { return b.header->nonnegative; });
  }

  // All rows with a positive score are known; the others score 0 and follow by id.
  void append_zero_scores() {
    std::vector<uint32_t> known;
    for (Key key : keys_) known.push_back(key_id(key));
    std::sort(known.begin(), known.end());
    auto at = known.begin();
    const uint64_t rows = blocks_.rows();
    for (uint32_t rank = 0; rank < rows && keys_.size() < k_; ++rank) {
      if (at != known.end() && *at == rank) {
        ++at;
      } else if (!blocks_.is_hidden(blocks_.ids->row(rank))) {
        keys_.push_back(make_key(0.0f, rank));
      }
    }
  }

  const Blocks& blocks_;
  Query query_;
  size_t k_;
  float threshold_;
  float tau_;
  std::vector<Key> keys_;  // (score, rank) of rows that may belong to the result
  bool complete_ = false;  // whether rows whose score is not positive were looked at, too
};

}  // namespace sparse_embed

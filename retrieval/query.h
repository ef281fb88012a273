// One query as searches need it, and how far float32 can lead them astray.
//
// Rounding: with m = min(query terms, largest row count) additions, a float32 accumulator differs
// from the sum of its exact products by at most (m + 1) 2^-23 sum_j |w_j| max|bound|, and an exact
// score from the real-valued one by at most (m + 1) 2^-23 q n, where q is the norm of the query and n
// the largest of a row. `accumulator_slack` and `score_slack` exceed them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "block.h"

namespace sparse_embed {

constexpr float kSmallestPositive = std::numeric_limits<float>::denorm_min();

// What soundness rests on, here and in plan.h. The other numbers that steer a search change its speed
// alone.

// The largest relative error of one float32 operation whose result is a normal number.
constexpr double kRounding = std::numeric_limits<float>::epsilon() / 2;
static_assert(kRounding == 0x1p-24, "float is IEEE single precision");

// Slacks count m additions, and two for the other roundings: the first product's (the 1 of m + 1
// above) and that of the bound itself, which is computed in double precision but kept in float32.
constexpr double kOtherRoundings = 2.0;
constexpr double kSlackPerAddition = 0x1p-22;
static_assert(kOtherRoundings >= 2.0 && kSlackPerAddition >= 2 * kRounding,
              "the slack could be less than the error of accumulators and scores");

// Sums below this do not overflow, whatever their roundings.
constexpr double kLargestBound = 1e37;
static_assert(kLargestBound <= std::numeric_limits<float>::max() / 16, "bounds could overflow");

struct Term {
  uint32_t dim;
  float weight;
  double log_weight;  // of its magnitude
};

struct Query {
  // The canonical query as it was given, by rising dimensions; it must outlive this.
  const int32_t* dims;
  const float* weights;
  int64_t count;

  // What bounds are made of: the terms that are not zero, heaviest first. Sums and norms are theirs.
  std::vector<Term> terms;
  bool complete = true;  // whether none was left out
  double norm = 0.0, weight_sum = 0.0, mean_weight = 0.0;
  bool nonnegative = true;

  // With an `effort` below 1, the lightest terms are left out of the bounds: those that hold at most
  // 1 - effort of the weight. Then a row may be missed whose score would have mattered.
  Query(const int32_t* dims, const float* weights, int64_t count, double effort = 1.0)
      : dims(dims), weights(weights), count(count) {
    for (int64_t i = 0; i < count; ++i) {
      if (weights[i] == 0.0f) continue;
      terms.push_back({uint32_t(dims[i]), weights[i], std::log(std::abs(double(weights[i])))});
      weight_sum += std::abs(double(weights[i]));
      if (weights[i] < 0.0f) nonnegative = false;
    }
    std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
      return std::abs(a.weight) > std::abs(b.weight);
    });
    if (effort < 1.0) leave_out((1.0 - effort) * weight_sum);
    mean_weight = weight_sum / std::max<double>(1.0, double(terms.size()));
    tail_norms_.resize(terms.size() + 1);
    double tail2 = 0.0;
    for (size_t t = terms.size(); t-- > 0;) {
      tail2 += double(terms[t].weight) * terms[t].weight;
      tail_norms_[t] = std::sqrt(tail2);
    }
    norm = tail_norms_[0];
  }

  // The norm of all but the `head` heaviest terms.
  double tail_norm(size_t head) const { return tail_norms_[head]; }

  // How many of the heaviest terms leave a tail whose norm is at most `allowed`.
  size_t head_terms(double allowed) const {
    return size_t(std::partition_point(tail_norms_.begin(), tail_norms_.end(),
                                       [&](double tail) { return tail > allowed; }) -
                  tail_norms_.begin());
  }

  // Whether float32 bounds are sound in this block; only values near the ends of the float32 range
  // make them fail, and then the block's rows are scored one by one.
  bool boundable(const BlockHeader& block) const {
    return std::max(weight_sum * block.max_value, norm * block.max_norm) < kLargestBound;
  }

  // No computed score exceeds the real-valued one by more than this.
  double score_slack(const BlockHeader& block) const {
    return additions(block) * kSlackPerAddition * norm * block.max_norm;
  }
  // No computed score exceeds what an accumulator should hold by more than this.
  double accumulator_slack(const BlockHeader& block) const {
    return score_slack(block) + additions(block) * kSlackPerAddition * weight_sum * block.max_value;
  }

 private:
  // Leaves out the lightest terms, but not the last one, while their weights add up to `most`.
  void leave_out(double most) {
    double left_out = 0.0;
    while (terms.size() > 1) {
      const double weight = std::abs(double(terms.back().weight));
      if (left_out + weight > most) break;
      left_out += weight;
      terms.pop_back();
      complete = false;
    }
    weight_sum -= left_out;
  }

  double additions(const BlockHeader& block) const {
    return kOtherRoundings + std::min<double>(double(terms.size()), block.max_count);
  }

  std::vector<double> tail_norms_;  // of terms[t:]
};

}  // namespace sparse_embed

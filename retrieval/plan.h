// What accumulation leaves out of one query in one block, and what accumulators tell of scores then.
//
// Not everything need be accumulated. Two things are left out, the more so the higher tau is, the
// score that a row must reach to matter:
//
// 1. The low end of each list. Lists are sorted, so accumulation stops where products fall below
//    `stop`. With `dropped` the sum of the stops, a row's score in the accumulated dimensions is at
//    most accumulator + dropped. Products that are not positive may be left out for nothing.
// 2. The lightest dimensions of the query. Let the query's first `head` dimensions (by weight) have
//    norm qh, the rest norm qt, q^2 = qh^2 + qt^2, and let no row of the block have a norm above n.
//    A row with norm a in the head has a head score h <= qh a and, by Cauchy-Schwarz, a tail score
//    <= qt sqrt(n^2 - a^2). Writing (qh, qt) = q (cos f, sin f) and a = n cos g, its score is at
//    most q n cos(g - f). A score >= tau therefore needs g <= f + acos(tau / (q n)), hence
//        h >= qh n cos(f + acos(tau / (q n)));
//    and a row with a head score of at most h can score no more than
//        h + qt sqrt(n^2 - (h / qh)^2)   for h <= qh n cos f,   else q n.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "block.h"
#include "query.h"

namespace sparse_embed {

constexpr double kStops = 2.2;  // measured

// Three roundings lie between the stops that a plan sums up and what `accumulate` leaves out by
// them: a stop's own, another when it is scaled, and that of the product it is compared with.
constexpr double kStopRounding = 1e-6;
static_assert(kStopRounding > 3 * kRounding, "a row could lose more than `dropped`");

// The shares of tau that a plan leaves out at most: of the tail (2. above), of list ends (1.).
// Where nothing is negative, searches drop the rows that no list touched. All of such a row's score
// was left out:
//     tail score <= qt n <= kMostTail tau
//     head score <= dropped <= kMostEnds tau (1 + kStopRounding)
// and float32 makes the sum larger by a factor of 1 + kMostScoreRounding at most. Dropping the row
// is sound only if that stays below tau (which may have risen since the plan was made, not fallen).
constexpr double kMostTail = 0.6;
constexpr double kMostEnds = 0.25;
constexpr double kMostScoreRounding = 0x1p20 * 2 * kRounding;  // 2^20 products, none negative
static_assert(kMostTail >= 0.0 && kMostEnds >= 0.0, "shares");
static_assert((kMostTail + kMostEnds * (1.0 + kStopRounding)) * (1.0 + kMostScoreRounding) < 1.0,
              "a row that no list touched could belong to the result");

// What to accumulate of one query in one block.
struct Plan {
  struct List {
    uint32_t begin, end;  // groups
    float stop;           // products below it may be left out
  };
  std::vector<List> lists;
  double dropped = 0.0;  // no row loses more than this by it

  // Decides; the more `thrift`, the more is left out.
  void make(const Query& query, const BlockView& block, float tau, double thrift) {
    const BlockHeader& header = *block.header;
    // Products below the smallest normal number have absolute errors, which no share of tau bounds:
    // then nothing may be left out.
    const double cosine = tau < std::numeric_limits<float>::min()
                              ? 0.0
                              : std::min(1.0, tau / std::max(query.norm * header.max_norm, 1e-300));
    // For exponentially distributed values, stopping at value mean * log(c / weight) saves the most
    // for a given sum of stops.
    const bool may_stop = query.nonnegative && header.nonnegative;
    const double most =
        may_stop ? std::min(kStops * thrift * cosine, 2.0) * query.mean_weight : 0.0;
    const double log_most = std::log(std::max(most, 1e-300));
    const size_t head = query.head_terms(
        query.norm * std::min(thrift * cosine * cosine * cosine, kMostTail * cosine));
    lists.clear();
    dropped = 0.0;
    for (size_t t = 0; t < head; ++t) {
      const Term& term = query.terms[t];
      const double weight = term.weight;
      const double stop = 0.0 < weight && weight < most
                              ? weight * header.mean_value * (log_most - term.log_weight)
                              : 0.0;
      const uint32_t* start = block.list_starts + term.dim;
      lists.push_back({start[0], start[1], float(stop)});
      dropped += stop;
    }
    if (dropped > kMostEnds * tau) {
      const double scale = kMostEnds * tau / dropped;
      for (List& list : lists) list.stop = float(list.stop * scale);
      dropped *= scale;
    }
    dropped *= 1.0 + kStopRounding;
  }
};

// The relation between head accumulators and scores in one block.
struct Cut {
  double q, qh, qt, n, dropped, slack;

  Cut(const Query& query, const BlockHeader& block, const Plan& plan)
      : q(query.norm), qt(query.tail_norm(plan.lists.size())), n(block.max_norm),
        dropped(plan.dropped), slack(query.accumulator_slack(block)) {
    qh = std::sqrt(std::max(0.0, q * q - qt * qt));
  }

  // What the accumulator of a row with score >= tau cannot be below.
  float accumulator(double tau) const {
    double least = tau;
    if (qt > 0.0 && n > 0.0) {
      const double angle = std::atan2(qt, qh) + std::acos(std::min(1.0, tau / (q * n)));
      least = qh * n * std::cos(angle);
    }
    return float(least - dropped - slack);
  }

  // What the score of a row with this accumulator cannot exceed.
  float score(double accumulator) const {
    const double h = accumulator + dropped;
    if (qt == 0.0 || n == 0.0) return float(h + slack);
    if (h >= qh * n * qh / q) return float(q * n + slack);
    return float(h + qt * std::sqrt(std::max(0.0, n * n - h * h / (qh * qh))) + slack);
  }
};

}  // namespace sparse_embed

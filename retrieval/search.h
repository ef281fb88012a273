// Search of one query in one range of blocks: bounds by accumulation or of cells, then exact scores of
// the few rows that can matter.
//
// For a block, each list of the query's dimensions adds weight * bound to the accumulators of its
// rows, where bound is the group's upper bound of the value (its lower bound for a negative weight).
// So an accumulator is an upper bound of the row's score, and every row that belongs to the result
// is among those whose bound reaches tau, the larger of the threshold and the k-th best exact score
// so far. These candidates are collected; the most promising are scored exactly, which raises tau
// and drops others unseen.
//
// Not everything need be accumulated. Two things are left out, the more so the higher tau is:
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
//
// How much is left out changes the speed alone; it follows the cost of the last block.
//
// Blocks with cells have another way (bounds.h): bounds of all cells are computed first, then the rows
// of the most promising cells are scored, in rounds that grow, until no other cell reaches tau. This
// takes less time if few rows are to be scored, that is for few results; what it takes is estimated
// from the number of cells that reach tau, and if accumulation is estimated to take less, it goes on
// with the tau that was found.
//
// tau may also be guessed from the first blocks. If in the end k rows reach the guess, no row below
// it belongs to the result; if not, the query is searched again without guessing.
//
// Rounding: with m = min(query terms, largest row count) additions, a float32 accumulator differs
// from the sum of its exact products by at most (m + 1) 2^-23 sum_j |w_j| max|bound|, and an exact
// score from the real-valued one by at most (m + 1) 2^-23 q n. `slack` exceeds both together.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "block.h"
#include "bounds.h"
#include "kernels.h"
#include "prefetch.h"
#include "scoring.h"
#include "topk.h"

namespace sparse_embed {

constexpr float kSmallestPositive = std::numeric_limits<float>::denorm_min();
constexpr double kStops = 2.2;  // measured

// What soundness rests on. The other numbers that steer the search change its speed alone.

// The largest relative error of one float32 operation whose result is a normal number.
constexpr double kRounding = std::numeric_limits<float>::epsilon() / 2;
static_assert(kRounding == 0x1p-24, "float is IEEE single precision");

// Three roundings lie between the stops that make_plan sums up and what `accumulate` leaves out by
// them: a stop's own, another when it is scaled, and that of the product it is compared with.
constexpr double kStopRounding = 1e-6;
static_assert(kStopRounding > 3 * kRounding, "a row could lose more than `dropped`");

// The shares of tau that make_plan leaves out at most: of the tail (2. above), of list ends (1.).
// Where nothing is negative, `run` drops the rows that no list touched. All of such a row's score
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

// `slack` counts m additions, and two for the other roundings: the first product's (the 1 of m + 1
// above) and that of the bound itself, which is computed in double precision but kept in float32.
constexpr double kOtherRoundings = 2.0;
constexpr double kSlackPerAddition = 0x1p-22;
static_assert(kOtherRoundings >= 2.0 && kSlackPerAddition >= 2 * kRounding,
              "the slack could be less than the error of accumulators and scores");

// Sums below this do not overflow, whatever their roundings.
constexpr double kLargestBound = 1e37;
static_assert(kLargestBound <= std::numeric_limits<float>::max() / 16, "bounds could overflow");

// What cells cost, for the choice between them and accumulation. Measured.
constexpr double kNsPerPlaneByte = 0.04, kNsPerRow = 15.0, kNsPerByte = 0.17;
constexpr uint64_t kCacheBytes = uint64_t(1) << 24;

// What the choice between cells and accumulation is made from.
struct CellCosts {
  uint64_t postings;     // in the query's lists
  uint64_t plane_bytes;  // of each of its planes
  uint64_t row_bytes;    // of all rows of the index
  uint64_t rows, blocks;
  bool forced;  // cells, whatever they cost
};

// The rows of an index as the search sees them: blocks of equal size (but for the last one).
struct Blocks {
  std::vector<BlockView> views;
  uint32_t shift = 0;  // a block holds 2^shift rows
  const std::vector<uint64_t>* removed = nullptr;  // one bit per row, or empty
  float max_level = 0.0f;  // no level of cells exceeds it

  void push(const BlockView& view) {
    views.push_back(view);
    if (!view.has_cells()) return;
    max_level = std::max({max_level, view.levels[kLevels - 1], view.levels[2 * kLevels - 1]});
  }

  uint64_t rows() const {
    return views.empty() ? 0 : (uint64_t(views.size() - 1) << shift) + views.back().rows();
  }
  // A row's id, and the place where it is stored, counted through all blocks, differ in the lower
  // bits: blocks hold consecutive ids, in an order of their own.
  uint32_t block_of(uint32_t id) const { return id >> shift; }
  uint32_t local(uint32_t id) const { return id & ((uint32_t(1) << shift) - 1); }
  uint32_t id_at(uint32_t place) const {
    const uint32_t b = block_of(place);
    return (b << shift) + views[b].row_at(local(place));
  }
  bool is_removed(uint32_t id) const {
    return !removed->empty() && ((*removed)[id / 64] >> (id % 64) & 1);
  }
};

// What to accumulate of one query in one block.
struct Plan {
  struct List {
    uint32_t begin, end;  // groups
    float stop;           // products below it may be left out
  };
  std::vector<List> lists;
  double dropped = 0.0;  // no row loses more than this by it
};

// Memory that one thread needs while it searches; reused from call to call.
struct Workspace {
  alignas(64) float acc[kAccumulators] = {};  // zero between blocks
  std::vector<uint32_t> found;                // local ids of candidates
  std::vector<float> bounds;                  // what their accumulators held
  Plan plan, next_plan;
  CellBounds cell_bounds;
  std::vector<Cell> cells;                    // that may matter
  std::vector<uint32_t> rows;                 // where their rows are stored
  DenseQuery dense;

  explicit Workspace(uint64_t dims) : found(kAccumulators), bounds(kAccumulators), dense(dims) {}
};

class QuerySearch {
 public:
  // `dims` and `weights` are one canonical query; they must outlive the search.
  QuerySearch(const Blocks& blocks, const int32_t* dims, const float* weights, int64_t count,
              size_t k, float threshold)
      : blocks_(blocks), dims_(dims), weights_(weights), count_(count), k_(k),
        threshold_(threshold), tau_(std::max(threshold, kSmallestPositive)) {
    double norm2 = 0.0;
    for (int64_t i = 0; i < count; ++i) {
      if (weights[i] == 0.0f) continue;
      terms_.push_back({uint32_t(dims[i]), weights[i], std::log(std::abs(double(weights[i])))});
      weight_sum_ += std::abs(double(weights[i]));
      norm2 += double(weights[i]) * weights[i];
      if (weights[i] < 0.0f) nonnegative_ = false;
    }
    std::sort(terms_.begin(), terms_.end(), [](const Term& a, const Term& b) {
      return std::abs(a.weight) > std::abs(b.weight);
    });
    norm_ = std::sqrt(norm2);
    mean_weight_ = weight_sum_ / std::max<double>(1.0, double(terms_.size()));
    shares_.resize(terms_.size(), 1.0f);
    tail_norms_.resize(terms_.size() + 1);
    double tail2 = 0.0;
    for (size_t t = terms_.size(); t-- > 0;) {
      tail2 += double(terms_[t].weight) * terms_[t].weight;
      tail_norms_[t] = std::sqrt(tail2);
    }
  }

  // Decides what to accumulate in block `b`.
  void make_plan(uint32_t b, Plan& plan) const {
    const BlockView& block = blocks_.views[b];
    const BlockHeader& header = *block.header;
    // Products below the smallest normal number have absolute errors, which no share of tau bounds:
    // then nothing may be left out.
    const double cosine = tau_ < std::numeric_limits<float>::min()
                              ? 0.0
                              : std::min(1.0, tau_ / std::max(norm_ * header.max_norm, 1e-300));
    // For exponentially distributed values, stopping at value mean * log(c / weight) saves the most
    // for a given sum of stops.
    const bool may_stop = nonnegative_ && header.nonnegative;
    const double most = may_stop ? std::min(kStops * thrift_ * cosine, 2.0) * mean_weight_ : 0.0;
    const double log_most = std::log(std::max(most, 1e-300));
    const size_t head =
        head_terms(norm_ * std::min(thrift_ * cosine * cosine * cosine, kMostTail * cosine));
    plan.lists.clear();
    plan.dropped = 0.0;
    for (size_t t = 0; t < head; ++t) {
      const double weight = terms_[t].weight;
      const double stop = 0.0 < weight && weight < most
                              ? weight * header.mean_value * (log_most - terms_[t].log_weight)
                              : 0.0;
      const uint32_t* start = block.list_starts + terms_[t].dim;
      plan.lists.push_back({start[0], start[1], float(stop)});
      plan.dropped += stop;
    }
    if (plan.dropped > kMostEnds * tau_) {
      const double scale = kMostEnds * tau_ / plan.dropped;
      for (Plan::List& list : plan.lists) list.stop = float(list.stop * scale);
      plan.dropped *= scale;
    }
    plan.dropped *= 1.0 + kStopRounding;
  }

  // Fetches what `make_plan` will read.
  void prefetch_plan(uint32_t b) const {
    for (const Term& term : terms_) {
      prefetch<2>(blocks_.views[b].list_starts + term.dim);
    }
  }

  // Fetches the t-th list of a plan into the second-level cache, or so much of it as was used last.
  void prefetch_list(uint32_t b, const Plan& plan, size_t t) const {
    if (t >= plan.lists.size()) return;
    const BlockView& block = blocks_.views[b];
    const Plan::List& list = plan.lists[t];
    const uint32_t used = uint32_t(float(list.end - list.begin) * shares_[t]) + 8;
    const uint32_t end = std::min(list.begin + used, list.end);
    prefetch_range<2>(block.ids + uint64_t(list.begin) * kGroup,
                      block.ids + uint64_t(end) * kGroup);
    const BFloat16* bounds = terms_[t].weight > 0.0f ? block.upper : block.lower;
    prefetch_range<2>(bounds + list.begin, bounds + end);
  }

  // Searches block `b`; `fetch(t)` is called once per planned list, to fetch what comes next.
  template <class Fetch>
  void run(uint32_t b, const Plan& plan, const Kernels& kernels, Workspace& work, Fetch fetch) {
    const BlockView& block = blocks_.views[b];
    if (!boundable(block)) {
      score_block(b, tau_, work);
      return;
    }
    uint64_t groups = 0;
    for (size_t t = 0; t < plan.lists.size(); ++t) {
      fetch(t);
      const Plan::List& list = plan.lists[t];
      const float weight = terms_[t].weight;
      const BFloat16* bounds = weight > 0.0f ? block.upper : block.lower;
      // Products of a positive weight never increase along a list: from the first that is not
      // positive on, they only lower accumulators, which are upper bounds without them.
      const float stop = weight > 0.0f ? std::max(list.stop, kSmallestPositive)
                                       : -std::numeric_limits<float>::infinity();
      const uint32_t done =
          kernels.accumulate(block.ids + uint64_t(list.begin) * kGroup, bounds + list.begin,
                             list.end - list.begin, weight, stop, work.acc);
      if (list.end > list.begin) shares_[t] = float(done) / float(list.end - list.begin);
      groups += done;
    }
    const Cut cut(*this, block, plan);
    float least = cut.accumulator(tau_);
    // A row that no list touched scores less than tau; see kMostTail.
    if (nonnegative_ && block.header->nonnegative) least = std::max(least, kSmallestPositive);
    const uint32_t found = kernels.scan(work.acc, block.rows(), least, work.found.data(),
                                        work.bounds.data());
    const uint32_t base = b << blocks_.shift;
    for (uint32_t i = 0; i < found; ++i) {
      const uint32_t place = base + work.found[i];
      if (!is_removed(place)) pool_.push_back(make_key(cut.score(work.bounds[i]), place));
    }
    adapt(groups * kGroup, found);
    if (pool_.size() >= 4 * k_ + 64) tighten(work);
  }

  // Whether to bound cells at all: not if that alone would take about as long as accumulating.
  bool may_use_cells(const CellCosts& costs) const {
    return bounding_ns(costs) < 0.5 * accumulation_ns(costs);
  }

  bool start_cells(CellBounds& bounds) const { return bounds.start(terms_, k_, blocks_.max_level); }

  // Searches the cells of `blocks`, whose bounds are known: the most promising first, in rounds that
  // grow, until no other cell can hold a row that matters. Returns false if it gives up because
  // accumulating takes less time: then tau is known better, and nothing else. `worthwhile` tells
  // whether cells take less time, what they took so far included.
  bool search_cells(const std::vector<uint32_t>& blocks, const CellCosts& costs,
                    const Kernels& kernels, Workspace& work, bool* worthwhile) {
    CellBounds& bounds = work.cell_bounds;
    const BlockHeader& some = *blocks_.views[blocks[0]].header;
    const double slack = score_slack(blocks);
    const bool guessing = threshold_ <= 0.0f;  // accumulation takes longer if it must guess tau
    double spent = 0.0;
    uint32_t most = kLargestSum;
    for (size_t wanted = std::max<size_t>(16, k_ / some.cell_rows);; wanted *= 4) {
      const uint32_t needed = bounds.least(tau_ - slack);
      const uint32_t least = std::max(needed, bounds.reached_by(wanted));
      if (least <= most) {
        bounds.collect(blocks, blocks_.views, least, most, kernels, work.cells);
        spent += double(work.cells.size()) * some.cell_rows * row_ns(costs);
        const double other = accumulation_ns(costs);
        const double guess = guessing ? 1.0 + 0.3 * std::min(1.0, double(k_) / 1000.0) : 1.0;
        *worthwhile = bounding_ns(costs) + spent < 0.9 * guess * other;
        if (!costs.forced && spent > other) {
          best_.clear();
          return false;
        }
        score_cells(bounds, slack, work);
      }
      if (least <= needed) return true;
      most = least - 1;
    }
  }

  // Guesses tau, given that `share` of the blocks have been searched: a score that so many rows
  // reach in them that more than k of the whole should.
  void guess(double share, Workspace& work) {
    const double expected = double(k_) * share;
    const auto rank = size_t(1.1 * expected + 3.0 * std::sqrt(expected) + 1.0);
    if (!best_.empty() || pool_.size() <= rank) return;
    score_candidates(std::min(2 * rank, pool_.size()), work);
    if (best_.size() <= rank) return;
    std::nth_element(best_.begin(), best_.begin() + rank, best_.end(), std::greater<Key>());
    const float tau = key_score(best_[rank]);
    // All rows that tie with the guess stay: among them, lower ids belong to the result.
    best_.erase(std::remove_if(best_.begin(), best_.end(),
                               [tau](Key key) { return key_score(key) < tau; }),
                best_.end());
    raise(tau);
    guessed_ = true;
  }

  // Scores what is left; then `best_` holds the k best rows with a score above 0 and not below the
  // threshold. Returns false if a guess was wrong: then rows may be missing.
  bool finish(Workspace& work) {
    while (!pool_.empty()) tighten(work);
    return !guessed_ || best_.size() >= k_;
  }

  // The best rows of a finished search, in no particular order, and a way to give them to another
  // search of the same query in place of its own.
  std::vector<Key> take_best() { return std::move(best_); }
  void set_best(std::vector<Key> keys) { best_ = std::move(keys); }

  // Writes the k best rows, best first, once all blocks have been searched; rows whose score is not
  // positive complete them if the threshold allows.
  void write(Workspace& work, float* scores, int64_t* ids) {
    keep_best(best_, k_);
    if (best_.size() < k_ && threshold_ <= 0.0f) {
      if (nonnegative()) {
        append_zero_scores();
      } else {
        best_.clear();
        for (uint32_t b = 0; b < blocks_.views.size(); ++b) score_block(b, threshold_, work);
      }
    }
    write_best(best_, k_, scores, ids);
  }

 private:
  struct Term {
    uint32_t dim;
    float weight;
    double log_weight;
  };

  // The relation between head accumulators and scores in one block; see the top of this file.
  struct Cut {
    double q, qh, qt, n, dropped, slack;

    Cut(const QuerySearch& query, const BlockView& block, const Plan& plan)
        : q(query.norm_), qt(query.tail_norms_[plan.lists.size()]), n(block.header->max_norm),
          dropped(plan.dropped) {
      qh = std::sqrt(std::max(0.0, q * q - qt * qt));
      const double additions =
          kOtherRoundings + std::min<double>(query.terms_.size(), block.header->max_count);
      slack = additions * kSlackPerAddition * (query.weight_sum_ * block.header->max_value + q * n);
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

  // Scores all rows of block `b` and offers those that reach `least`.
  void score_block(uint32_t b, float least, Workspace& work) {
    work.dense.set(dims_, weights_, count_);
    const uint32_t base = b << blocks_.shift;
    for (uint32_t row = 0; row < blocks_.views[b].rows(); ++row) {
      const float score = work.dense.score(blocks_.views[b], row);
      if (score >= least && !is_removed(base + row)) {
        best_.push_back(make_key(score, blocks_.id_at(base + row)));
      }
    }
    work.dense.clear(dims_, count_);
    keep_best_and_raise();
  }

  bool is_removed(uint32_t place) const {
    return !blocks_.removed->empty() && blocks_.is_removed(blocks_.id_at(place));
  }

  // Whether no score can be below 0.
  bool nonnegative() const {
    return nonnegative_ && std::all_of(blocks_.views.begin(), blocks_.views.end(),
                                       [](const BlockView& b) { return b.header->nonnegative; });
  }

  // `best_` holds all rows with a positive score; the others score 0 and follow by id.
  void append_zero_scores() {
    std::vector<uint32_t> known;
    for (Key key : best_) known.push_back(key_id(key));
    std::sort(known.begin(), known.end());
    auto at = known.begin();
    const uint64_t rows = blocks_.rows();
    for (uint32_t id = 0; id < rows && best_.size() < k_; ++id) {
      if (at != known.end() && *at == id) {
        ++at;
      } else if (!blocks_.is_removed(id)) {
        best_.push_back(make_key(0.0f, id));
      }
    }
  }

  // Whether float32 bounds are sound in this block; only values near the ends of the float32 range
  // make them fail, and then the block's rows are scored one by one.
  bool boundable(const BlockView& block) const {
    return std::max(weight_sum_ * block.header->max_value, norm_ * block.header->max_norm) <
           kLargestBound;
  }

  // About how long it takes to bound cells.
  double bounding_ns(const CellCosts& costs) const {
    return double(terms_.size()) * double(costs.plane_bytes) * kNsPerPlaneByte;
  }

  // About how long it takes to score a row: half as long if the cache holds all rows.
  double row_ns(const CellCosts& costs) const {
    const double near = costs.row_bytes < kCacheBytes ? 0.5 : 1.0;
    return near * (kNsPerRow + kNsPerByte * double(costs.row_bytes) / double(blocks_.rows()));
  }

  // About how long it takes to accumulate: the higher tau is, the more postings are left out.
  double accumulation_ns(const CellCosts& costs) const {
    const double largest = norm_ * blocks_.views[0].header->max_norm;
    const double cosine = tau_ / std::max(largest, 1e-300);
    return double(costs.postings) * std::min(std::max(0.6 - 0.6 * cosine, 0.15), 0.6) +
           0.08 * double(costs.rows) + 500.0 * double(costs.blocks) +
           0.5 * double(k_ + 300) * row_ns(costs);
  }

  // No computed score exceeds the real-valued one by more than this.
  double score_slack(const std::vector<uint32_t>& blocks) const {
    double slack = 0.0;
    for (uint32_t b : blocks) {
      const BlockHeader& header = *blocks_.views[b].header;
      const double additions = kOtherRoundings + std::min<double>(terms_.size(), header.max_count);
      slack = std::max(slack, additions * kSlackPerAddition * norm_ * header.max_norm);
    }
    return slack;
  }

  // How many of the heaviest terms leave a tail whose norm is at most `allowed`.
  size_t head_terms(double allowed) const {
    return size_t(std::partition_point(tail_norms_.begin(), tail_norms_.end(),
                                       [&](double tail) { return tail > allowed; }) -
                  tail_norms_.begin());
  }

  // Leaves more out while candidates are cheap beside accumulation, and less when they are not.
  void adapt(uint64_t postings, uint64_t candidates) {
    constexpr double kCandidateCost = 120.0;  // in postings, measured
    const bool cheap = kCandidateCost * double(candidates) < 0.5 * double(postings);
    thrift_ = std::min(std::max(thrift_ * (cheap ? 1.15 : 0.87), 0.05), 4.0);
  }

  // Scores the most promising candidates, and drops those that can no longer matter.
  void tighten(Workspace& work) {
    const size_t wanted = best_.size() < k_ ? k_ - best_.size() : 0;
    score_candidates(std::min(std::max({wanted, k_ / 4, size_t(16)}), pool_.size()), work);
    keep_best_and_raise();
  }

  // Moves the `count` most promising candidates to `best_`, if their scores reach tau.
  void score_candidates(size_t count, Workspace& work) {
    if (count < pool_.size()) {
      std::nth_element(pool_.begin(), pool_.begin() + count, pool_.end(), std::greater<Key>());
    }
    score_rows(count, [this](size_t i) { return key_id(pool_[i]); }, work);
    pool_.erase(pool_.begin(), pool_.begin() + std::ptrdiff_t(count));
  }

  // Scores the rows of work.cells that still matter when their turn comes.
  void score_cells(const CellBounds& bounds, double slack, Workspace& work) {
    const size_t chunk = std::max<size_t>(256, k_ / 2);
    for (size_t i = 0; i < work.cells.size();) {
      const uint32_t least = bounds.least(tau_ - slack);
      work.rows.clear();
      for (; i < work.cells.size() && work.rows.size() < chunk; ++i) {
        const Cell& cell = work.cells[i];
        if (cell.sum < least) continue;
        const BlockView& block = blocks_.views[cell.block];
        const CellLayout layout = block.cells();
        const uint32_t first = layout.first_place(cell.number);
        const uint32_t end = std::min(first + layout.cell_rows, block.rows());
        for (uint32_t place = first; place < end; ++place) {
          const uint32_t row = (cell.block << blocks_.shift) + place;
          if (!is_removed(row)) work.rows.push_back(row);
        }
      }
      score_rows(work.rows.size(), [&work](size_t r) { return work.rows[r]; }, work);
      keep_best_and_raise();
    }
  }

  // Moves those of the rows at place(0) ... place(count - 1) to `best_` whose scores reach tau.
  template <class Place>
  void score_rows(size_t count, Place place, Workspace& work) {
    if (count == 0) return;
    constexpr size_t kOffsetsAhead = 24, kDataAhead = 16;
    auto block = [&](size_t i) { return &blocks_.views[blocks_.block_of(place(i))]; };
    auto row = [&](size_t i) { return blocks_.local(place(i)); };
    auto fetch_offsets = [&](size_t i) {
      if (i < count) DenseQuery::prefetch_offsets(*block(i), row(i));
    };
    auto fetch_data = [&](size_t i) {
      if (i < count) DenseQuery::prefetch_data(*block(i), row(i));
    };
    work.dense.set(dims_, weights_, count_);
    for (size_t i = 0; i < kOffsetsAhead; ++i) fetch_offsets(i);
    for (size_t i = 0; i < kDataAhead; ++i) fetch_data(i);
    for (size_t i = 0; i < count; i += 4) {
      const BlockView* blocks[4];
      uint32_t rows[4];
      float scores[4];
      for (size_t j = 0; j < 4; ++j) {
        fetch_offsets(i + j + kOffsetsAhead);
        fetch_data(i + j + kDataAhead);
        blocks[j] = block(std::min(i + j, count - 1));
        rows[j] = row(std::min(i + j, count - 1));
      }
      work.dense.score_four(blocks, rows, scores);
      for (size_t j = 0; j < 4 && i + j < count; ++j) {
        if (scores[j] >= tau_) {
          best_.push_back(make_key(scores[j], blocks_.id_at(place(i + j))));
        }
      }
    }
    work.dense.clear(dims_, count_);
  }

  void keep_best_and_raise() {
    if (best_.size() < k_) return;
    std::nth_element(best_.begin(), best_.begin() + (k_ - 1), best_.end(), std::greater<Key>());
    best_.resize(k_);
    raise(key_score(best_[k_ - 1]));
  }

  // Raises tau and drops the candidates that no longer reach it.
  void raise(float tau) {
    if (tau <= tau_) return;
    tau_ = tau;
    pool_.erase(std::remove_if(pool_.begin(), pool_.end(),
                               [tau](Key key) { return key_score(key) < tau; }),
                pool_.end());
  }

  const Blocks& blocks_;
  const int32_t* dims_;
  const float* weights_;
  int64_t count_;
  size_t k_;
  float threshold_;
  float tau_;                       // only rows that score at least this matter
  std::vector<Term> terms_;         // heaviest first
  std::vector<double> tail_norms_;  // of terms_[t:]
  std::vector<float> shares_;       // of the lists, which accumulation went through last
  double norm_ = 0.0, weight_sum_ = 0.0, mean_weight_ = 0.0;
  double thrift_ = 1.0;  // how much is left out; see make_plan and adapt
  bool nonnegative_ = true, guessed_ = false;
  std::vector<Key> pool_;  // (upper bound of the score, place) of candidates not yet scored
  std::vector<Key> best_;  // (score, id) of rows that may belong to the result
};

}  // namespace sparse_embed

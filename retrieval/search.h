// Search of one query in one range of blocks by bounded accumulation.
//
// For a block, each list of the query's dimensions adds weight * bound to the accumulators of its
// rows, where bound is the group's upper bound of the value (its lower bound for a negative weight).
// So an accumulator is an upper bound of the row's score, and every row that belongs to the result
// is among those whose bound reaches tau, the larger of the threshold and the k-th best exact score
// so far. These candidates are collected; the most promising are scored exactly, which raises tau
// and drops others unseen. Not everything is accumulated (plan.h): how much is left out changes the
// speed alone, and follows the cost of the last block.
//
// tau may also be guessed from the first blocks. If in the end k rows reach the guess, no row below
// it belongs to the result; if not, the query is searched again without guessing.
//
// cell_search.h has another way, which comes first where it takes less time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "best_rows.h"
#include "kernels.h"
#include "plan.h"
#include "prefetch.h"
#include "topk.h"
#include "workspaces.h"

namespace sparse_embed {

class QuerySearch {
 public:
  // `query` points to what must outlive the search.
  QuerySearch(const Blocks& blocks, Query query, size_t k, float threshold)
      : best(blocks, std::move(query), k, threshold), shares_(best.query().terms.size(), 1.0f) {}

  BestRows best;

  // Decides what to accumulate in block `b`.
  void make_plan(uint32_t b, Plan& plan) const { plan.make(query(), view(b), best.tau(), thrift_); }

  // Fetches what `make_plan` will read.
  void prefetch_plan(uint32_t b) const {
    for (const Term& term : query().terms) prefetch<2>(view(b).list_starts + term.dim);
  }

  // Fetches the t-th list of a plan into the second-level cache, or so much of it as was used last.
  void prefetch_list(uint32_t b, const Plan& plan, size_t t) const {
    if (t >= plan.lists.size()) return;
    const BlockView& block = view(b);
    const Plan::List& list = plan.lists[t];
    const uint32_t used = uint32_t(float(list.end - list.begin) * shares_[t]) + 8;
    const uint32_t end = std::min(list.begin + used, list.end);
    prefetch_range<2>(block.ids + uint64_t(list.begin) * kGroup,
                      block.ids + uint64_t(end) * kGroup);
    const BFloat16* bounds = query().terms[t].weight > 0.0f ? block.upper : block.lower;
    prefetch_range<2>(bounds + list.begin, bounds + end);
  }

  // Searches block `b`; `fetch(t)` is called once per planned list, to fetch what comes next.
  template <class Fetch>
  void run(uint32_t b, const Plan& plan, const Kernels& kernels, Workspace& work, Fetch fetch) {
    const BlockView& block = view(b);
    if (!query().boundable(*block.header)) {
      best.score_block(b, work.dense);
      drop_candidates();
      return;
    }
    uint64_t groups = 0;
    for (size_t t = 0; t < plan.lists.size(); ++t) {
      fetch(t);
      const Plan::List& list = plan.lists[t];
      const float weight = query().terms[t].weight;
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
    const Cut cut(query(), *block.header, plan);
    float least = cut.accumulator(best.tau());
    // A row that no list touched scores less than tau; see kMostTail.
    if (query().nonnegative && block.header->nonnegative) least = std::max(least, kSmallestPositive);
    const uint32_t found = kernels.scan(work.acc, block.rows(), least, work.found.data(),
                                        work.bounds.data());
    const uint32_t base = b << best.blocks().shift;
    for (uint32_t i = 0; i < found; ++i) {
      const uint32_t place = base + work.found[i];
      if (!best.blocks().is_hidden_at(place)) {
        pool_.push_back(make_key(cut.score(work.bounds[i]), place));
      }
    }
    adapt(groups * kGroup, found);
    if (pool_.size() >= 4 * best.k() + 64) tighten(work);
  }

  // Guesses tau, given that `share` of the blocks have been searched: a score that so many rows
  // reach in them that more than k of the whole should.
  void guess(double share, Workspace& work) {
    const double expected = double(best.k()) * share;
    const auto rank = size_t(1.1 * expected + 3.0 * std::sqrt(expected) + 1.0);
    if (!best.empty() || pool_.size() <= rank) return;
    score_candidates(std::min(2 * rank, pool_.size()), work);
    if (!best.guess(rank)) return;
    drop_candidates();
    guessed_ = true;
  }

  // Scores what is left; then `best` holds the k best rows with a score above 0 and not below the
  // threshold. Returns false if a guess was wrong: then rows may be missing.
  bool finish(Workspace& work) {
    while (!pool_.empty()) tighten(work);
    return !guessed_ || best.size() >= best.k();
  }

 private:
  const Query& query() const { return best.query(); }
  const BlockView& view(uint32_t b) const { return best.blocks().views[b]; }

  // Leaves more out while candidates are cheap beside accumulation, and less when they are not.
  void adapt(uint64_t postings, uint64_t candidates) {
    constexpr double kCandidateCost = 120.0;  // in postings, measured
    const bool cheap = kCandidateCost * double(candidates) < 0.5 * double(postings);
    thrift_ = std::min(std::max(thrift_ * (cheap ? 1.15 : 0.87), 0.05), 4.0);
  }

  // Scores the most promising candidates, and drops those that can no longer matter.
  void tighten(Workspace& work) {
    const size_t wanted = best.size() < best.k() ? best.k() - best.size() : 0;
    score_candidates(std::min(std::max({wanted, best.k() / 4, size_t(16)}), pool_.size()), work);
    best.keep();
    drop_candidates();
  }

  // Moves the `count` most promising candidates to `best`, if their scores reach tau.
  void score_candidates(size_t count, Workspace& work) {
    if (count < pool_.size()) {
      std::nth_element(pool_.begin(), pool_.begin() + count, pool_.end(), std::greater<Key>());
    }
    const Key* pool = pool_.data();  // a local, which no write can change
    best.score(count, work.dense, [pool](size_t i) { return key_id(pool[i]); });
    pool_.erase(pool_.begin(), pool_.begin() + std::ptrdiff_t(count));
  }

  // Drops the candidates that no longer reach tau.
  void drop_candidates() {
    const float tau = best.tau();
    if (tau <= dropped_below_) return;
    dropped_below_ = tau;
    pool_.erase(std::remove_if(pool_.begin(), pool_.end(),
                               [tau](Key key) { return key_score(key) < tau; }),
                pool_.end());
  }

  std::vector<Key> pool_;      // (upper bound of the score, place) of candidates not yet scored
  std::vector<float> shares_;  // of the lists, which accumulation went through last
  double thrift_ = 1.0;        // how much is left out; see plan.h and adapt
  float dropped_below_ = 0.0f;
  bool guessed_ = false;
};

}  // namespace sparse_embed

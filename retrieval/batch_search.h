// Search of many queries on threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cell_search.h"
#include "csr.h"
#include "filter.h"
#include "kernels.h"
#include "parallel.h"
#include "search.h"
#include "state.h"
#include "topk.h"
#include "ways.h"
#include "workspaces.h"

namespace sparse_embed {

// What the caller wants to know.
struct Request {
  Csr queries;
  size_t k;
  float threshold;
  const Selection* selection;  // null: all rows
  size_t threads;
  const Kernels* kernels;
  Way way;
  double effort;  // below 1 rows may be missed; see query.h
};

class BatchSearch {
 public:
  // What is given must outlive this. With `every`, the k best are all rows that reach the threshold:
  // candidates are then scored at once, so that memory grows with the results alone.
  BatchSearch(const State& state, const Request& request, bool every, Workspaces& workspaces)
      : state_(state), request_(request), every_(every), workspaces_(workspaces),
        blocks_(state.blocks) {
    if (request.selection) {
      filter_ = std::make_unique<Filter>(state, *request.selection, few_rows());
      blocks_.hidden = &filter_->hidden;
    }
    for (uint32_t b = 0; b < blocks_.views.size(); ++b) {
      if (!blocks_.all_hidden(b)) visible_.push_back(b);
    }
  }

  // Calls visit(q, keys) for each query with the keys of its k best rows, which hold ranks and are in
  // no particular order. Calls come from several threads.
  template <class Visit>
  void run(Visit visit) {
    const size_t queries = size_t(request_.queries.rows), blocks = visible_.size();
    const size_t threads = request_.threads;
    if (queries == 0) return;
    if (filter_ && filter_->listed) {
      parallel(queries, threads, [&](size_t q) {
        Workspaces::Lease work(workspaces_);
        QuerySearch search = start(q, 1.0);
        search.best.score_all(filter_->places, work->dense);
        visit(q, search.best.results(work->dense));
      });
      return;
    }
    // One query is split over ranges of blocks; many are dealt out in batches, each of which goes
    // through the index together so that lists are still in a cache when the next query needs them.
    const size_t parts =
        queries >= threads
            ? 1
            : std::max<size_t>(1, std::min((threads + queries - 1) / queries, blocks));
    const size_t batch = parts > 1 ? 1 : std::min<size_t>(kBatch, (queries + threads - 1) / threads);
    const size_t batches = (queries + batch - 1) / batch;
    std::vector<std::vector<Key>> found(parts > 1 ? queries * parts : 0);
    parallel(batches * parts, threads, [&](size_t i) {
      const size_t first = i / parts * batch, part = i % parts;
      Task task;
      task.effort = request_.effort;
      task.queries = {first, std::min(first + batch, queries)};
      task.blocks = {blocks * part / parts, blocks * (part + 1) / parts};
      Workspaces::Lease work(workspaces_);
      std::vector<QuerySearch> searches = run_task(task, *work);
      for (size_t q = first; q < task.queries.end; ++q) {
        if (parts > 1) {
          found[q * parts + part] = searches[q - first].best.take();
        } else {
          visit(q, searches[q - first].best.results(work->dense));
        }
      }
    });
    if (parts == 1) return;
    parallel(queries, threads, [&](size_t q) {
      std::vector<Key> all;
      for (size_t part = 0; part < parts; ++part) {
        const std::vector<Key>& keys = found[q * parts + part];
        all.insert(all.end(), keys.begin(), keys.end());
      }
      QuerySearch search = start(q, 1.0);
      search.best.set(std::move(all));
      Workspaces::Lease work(workspaces_);
      visit(q, search.best.results(work->dense));
    });
  }

 private:
  static constexpr size_t kBatch = 64;

  struct Range {
    size_t begin = 0, end = 0;
    size_t size() const { return end - begin; }
  };

  // What one thread does at a time: these queries in these of the visible blocks.
  struct Task {
    Range queries, blocks;
    bool guessing = true;  // whether tau may be guessed
    bool cells = true;     // whether cells may be used
    double effort = 1.0;
  };

  // How many rows are scored one by one in less time than lists are gone through.
  uint64_t few_rows() const {
    constexpr uint64_t kRowCost = 120;  // in postings, measured
    const Csr& queries = request_.queries;
    if (queries.rows == 0) return 0;
    uint64_t postings = 0;
    for (int64_t p = 0; p < queries.indptr[queries.rows]; ++p) {
      postings += state_.list_lengths[queries.indices[p]];
    }
    return postings / uint64_t(queries.rows) / kRowCost;
  }

  QuerySearch start(size_t q, double effort) const {
    const Csr& queries = request_.queries;
    const int64_t begin = queries.indptr[q];
    return QuerySearch(blocks_,
                       Query(queries.indices + begin, queries.values + begin,
                             queries.indptr[q + 1] - begin, effort),
                       request_.k, request_.threshold);
  }

  // Searches the queries of a task in its blocks: by cells where that takes less time, and by
  // accumulation else. Whatever the effort, all rows with a positive score are found if they are
  // fewer than k and the threshold allows the others.
  std::vector<QuerySearch> run_task(const Task& task, Workspace& work) const {
    std::vector<QuerySearch> searches;
    for (size_t q = task.queries.begin; q < task.queries.end; ++q) {
      searches.push_back(start(q, task.effort));
    }
    std::vector<uint32_t> blocks, with_cells, without_cells;
    for (size_t i = task.blocks.begin; i < task.blocks.end; ++i) {
      const uint32_t b = visible_[i];
      blocks.push_back(b);
      (blocks_.views[b].has_cells() ? with_cells : without_cells).push_back(b);
    }
    std::vector<bool> done(searches.size(), false);
    if (task.cells && request_.way != Way::kAccumulate && !with_cells.empty()) {
      done = search_cells(with_cells, task.effort < 1.0, searches, work);
    }
    std::vector<QuerySearch*> whole, rest;
    for (size_t i = 0; i < searches.size(); ++i) (done[i] ? rest : whole).push_back(&searches[i]);
    accumulate(whole, blocks, task.guessing, work);
    accumulate(rest, without_cells, false, work);
    for (size_t i = 0; i < searches.size(); ++i) {
      const bool right = searches[i].finish(work);
      const BestRows& best = searches[i].best;
      const bool enough =
          best.query().complete || best.size() >= best.k() || best.threshold() > 0.0f;
      if (right && enough) continue;
      Task again = task;
      again.queries = {task.queries.begin + i, task.queries.begin + i + 1};
      if (!right) again.guessing = again.cells = false;
      if (!enough) again.effort = 1.0;
      searches[i].best.set(run_task(again, work)[0].best.take());
    }
    return searches;
  }

  // Searches the cells of `blocks`, and tells for which queries: some are better off without.
  std::vector<bool> search_cells(const std::vector<uint32_t>& blocks, bool approximate,
                                 std::vector<QuerySearch>& searches, Workspace& work) const {
    const bool forced = request_.way == Way::kCells;
    const Trials::Kind kind{request_.k, filter_ != nullptr, approximate};
    CellSearch cells(blocks_, blocks, every_, forced);
    // One query after the other: they share few planes, and fetching ahead matters more.
    std::vector<bool> done(searches.size(), false);
    for (size_t i = 0; i < searches.size(); ++i) {
      BestRows& best = searches[i].best;
      if (!cells.worth_trying(best, state_.list_lengths)) continue;
      if (!forced && !workspaces_.trials.due(kind)) continue;
      const CellSearch::Outcome outcome = cells.run(best, *request_.kernels, work);
      if (outcome == CellSearch::Outcome::kUnbounded) continue;
      done[i] = outcome != CellSearch::Outcome::kGaveUp;
      workspaces_.trials.note(kind, outcome == CellSearch::Outcome::kDone);
    }
    return done;
  }

  // Accumulates for some queries in some blocks, block by block.
  void accumulate(const std::vector<QuerySearch*>& searches, const std::vector<uint32_t>& blocks,
                  bool guessing, Workspace& work) const {
    const size_t count = searches.size(), steps = blocks.size() * count;
    auto block_at = [&](size_t step) { return blocks[step / count]; };
    auto search_at = [&](size_t step) -> QuerySearch& { return *searches[step % count]; };
    if (steps > 0) search_at(0).make_plan(block_at(0), work.plan);
    const size_t guess_at = guessing ? blocks.size() / 8 : 0;  // after this many blocks
    for (size_t step = 0; step < steps; ++step) {
      const bool more = step + 1 < steps;
      const QuerySearch& next = search_at(step + more);
      const uint32_t next_block = block_at(step + more);
      if (more) next.make_plan(next_block, work.next_plan);
      if (step + 2 < steps) search_at(step + 2).prefetch_plan(block_at(step + 2));
      search_at(step).run(block_at(step), work.plan, *request_.kernels, work, [&](size_t t) {
        if (more) next.prefetch_list(next_block, work.next_plan, t);
      });
      if (every_) search_at(step).finish(work);
      if (step / count + 1 == guess_at) {
        search_at(step).guess(double(guess_at) / double(blocks.size()), work);
      }
      std::swap(work.plan, work.next_plan);
    }
  }

  const State& state_;
  const Request& request_;
  const bool every_;
  Workspaces& workspaces_;
  Blocks blocks_;                  // those of the state, with the filter's rows hidden
  std::vector<uint32_t> visible_;  // those of the blocks that have a row to be found
  std::unique_ptr<Filter> filter_;
};

// The rows that reach the threshold of a range search, best first for each query. They hold the
// state that was searched, whose ids they have.
class RangeResults {
 public:
  RangeResults() = default;
  RangeResults(std::shared_ptr<const State> state, const Request& request, Workspaces& workspaces)
      : state_(std::move(state)), keys_(size_t(request.queries.rows)) {
    BatchSearch(*state_, request, true, workspaces).run([this](size_t q, std::vector<Key>& keys) {
      std::sort(keys.begin(), keys.end(), std::greater<Key>());
      keys_[q].assign(keys.begin(), keys.end());  // no more memory than they need
    });
    state_->require_intact();
  }

  // Writes where the results of each query begin, and where the last end; returns their number.
  uint64_t write_offsets(int64_t* offsets) const {
    *offsets = 0;
    for (const std::vector<Key>& keys : keys_) {
      offsets[1] = offsets[0] + int64_t(keys.size());
      ++offsets;
    }
    return uint64_t(*offsets);
  }

  void write(float* scores, int64_t* ids) const {
    for (const std::vector<Key>& keys : keys_) {
      for (const Key key : keys) {
        *scores++ = key_score(key);
        *ids++ = state_->ids.id(key_id(key));
      }
    }
  }

 private:
  std::shared_ptr<const State> state_;
  std::vector<std::vector<Key>> keys_;
};

}  // namespace sparse_embed

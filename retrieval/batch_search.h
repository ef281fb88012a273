// Search of many queries on threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "csr.h"
#include "filter.h"
#include "kernels.h"
#include "parallel.h"
#include "search.h"
#include "state.h"
#include "topk.h"
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
};

class BatchSearch {
 public:
  // What is given must outlive this. With `every`, the k best are all rows that reach the threshold:
  // candidates are then scored at once, so that memory grows with the results alone.
  BatchSearch(const State& state, const Request& request, bool every, Workspaces& workspaces)
      : request_(request), every_(every), workspaces_(workspaces), blocks_(state.blocks) {
    if (!request.selection) return;
    filter_ = std::make_unique<Filter>(state, *request.selection, few_rows(state));
    blocks_.hidden = &filter_->hidden;
  }

  // Calls visit(q, keys) for each query with the keys of its k best rows, which hold ranks and are in
  // no particular order. Calls come from several threads.
  template <class Visit>
  void run(Visit visit) {
    const size_t queries = size_t(request_.queries.rows), blocks = blocks_.views.size();
    const size_t threads = request_.threads;
    if (queries == 0) return;
    if (filter_ && filter_->listed) {
      parallel(queries, threads, [&](size_t q) {
        Workspaces::Lease work(workspaces_);
        QuerySearch search = start(q);
        search.run(filter_->rows, *work);
        visit(q, search.results(*work));
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
      task.queries = {first, std::min(first + batch, queries)};
      task.blocks = {blocks * part / parts, blocks * (part + 1) / parts};
      Workspaces::Lease work(workspaces_);
      std::vector<QuerySearch> searches = run_task(task, *work);
      for (size_t q = first; q < task.queries.end; ++q) {
        if (parts > 1) {
          found[q * parts + part] = searches[q - first].take_best();
        } else {
          visit(q, searches[q - first].results(*work));
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
      QuerySearch search = start(q);
      search.set_best(std::move(all));
      Workspaces::Lease work(workspaces_);
      visit(q, search.results(*work));
    });
  }

 private:
  static constexpr size_t kBatch = 64;

  struct Range {
    size_t begin = 0, end = 0;
    size_t size() const { return end - begin; }
  };

  // What one thread does at a time: these queries in these blocks.
  struct Task {
    Range queries, blocks;
    bool guessing = true;  // whether tau may be guessed
  };

  // How many rows are scored one by one in less time than lists are gone through.
  uint64_t few_rows(const State& state) const {
    constexpr uint64_t kRowCost = 120;  // in postings, measured
    const Csr& queries = request_.queries;
    if (queries.rows == 0) return 0;
    uint64_t postings = 0;
    for (int64_t p = 0; p < queries.indptr[queries.rows]; ++p) {
      postings += state.list_lengths[queries.indices[p]];
    }
    return postings / uint64_t(queries.rows) / kRowCost;
  }

  QuerySearch start(size_t q) const {
    const Csr& queries = request_.queries;
    const int64_t begin = queries.indptr[q];
    return QuerySearch(blocks_, queries.indices + begin, queries.values + begin,
                       queries.indptr[q + 1] - begin, request_.k, request_.threshold);
  }

  // Searches the queries of a task in its blocks, block by block.
  std::vector<QuerySearch> run_task(const Task& task, Workspace& work) const {
    std::vector<QuerySearch> searches;
    for (size_t q = task.queries.begin; q < task.queries.end; ++q) searches.push_back(start(q));
    const size_t count = searches.size(), steps = task.blocks.size() * count;
    auto block_at = [&](size_t step) { return uint32_t(task.blocks.begin + step / count); };
    auto search_at = [&](size_t step) -> QuerySearch& { return searches[step % count]; };
    if (steps > 0) search_at(0).make_plan(block_at(0), work.plan);
    const size_t guess_at = task.guessing ? task.blocks.size() / 8 : 0;  // after this many blocks
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
        search_at(step).guess(double(guess_at) / double(task.blocks.size()), work);
      }
      std::swap(work.plan, work.next_plan);
    }
    for (size_t i = 0; i < count; ++i) {
      if (searches[i].finish(work)) continue;
      Task again = task;
      again.queries = {task.queries.begin + i, task.queries.begin + i + 1};
      again.guessing = false;
      searches[i].set_best(run_task(again, work)[0].take_best());
    }
    return searches;
  }

  const Request& request_;
  const bool every_;
  Workspaces& workspaces_;
  Blocks blocks_;  // those of the state, with the filter's rows hidden
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

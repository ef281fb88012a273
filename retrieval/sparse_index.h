// The index: blocks of rows in memory or in a mapped file, removed ids, and threaded search. Any
// thread may search, save, add and remove at any time: each search sees the index as it was when it
// began.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "block.h"
#include "csr.h"
#include "kernels.h"
#include "parallel.h"
#include "search.h"
#include "topk.h"

namespace sparse_embed {

// Zeroed memory, in huge pages where the system has them: lists lie all over it.
inline std::shared_ptr<uint8_t> allocate_blocks(size_t bytes) {
  constexpr size_t kHugePage = size_t(1) << 21;
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, std::max(rounded, alignment)) != 0) throw std::bad_alloc();
#if defined(__linux__)
  if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  std::memset(memory, 0, bytes);
  return std::shared_ptr<uint8_t>(static_cast<uint8_t*>(memory), std::free);
}

// All that a search reads. A state never changes once it is published: who adds or removes rows
// makes another one, so that searches and saves under way keep theirs.
struct State {
  Blocks blocks;
  std::vector<std::shared_ptr<uint8_t>> owners;  // of the blocks' memory
  std::vector<uint64_t> list_lengths;            // non-zeros per dimension, removed rows excluded
  std::vector<uint64_t> removed;                 // one bit per row, or empty if none was removed
  uint64_t num_removed = 0;

  State() = default;
  State(const State& other)
      : blocks(other.blocks), owners(other.owners), list_lengths(other.list_lengths),
        removed(other.removed), num_removed(other.num_removed) {
    blocks.removed = &removed;
  }
  uint64_t rows() const { return blocks.rows(); }
};

// How to search; the results are the same.
enum class Way { kCheapest, kCells, kAccumulate };

inline Way way_named(const std::string& name) {
  if (name == "cheapest") return Way::kCheapest;
  if (name == "cells") return Way::kCells;
  if (name == "accumulate") return Way::kAccumulate;
  throw std::invalid_argument("no way to search is called " + name);
}

// Whether bounds of cells are worth a trial for a number of results, which the past tells: after each
// failure in a row, twice as many queries do without. It changes the speed alone, so threads need
// not agree on it.
class Trials {
 public:
  bool due(size_t k) {
    std::atomic<uint32_t>& left = entry(k).left;
    const uint32_t now = left.load(std::memory_order_relaxed);
    if (now > 0) left.store(now - 1, std::memory_order_relaxed);
    return now == 0;
  }
  void note(size_t k, bool success) {
    Entry& e = entry(k);
    const uint32_t failures =
        success ? 0 : std::min(e.failures.load(std::memory_order_relaxed) + 1, kMostFailures);
    e.failures.store(failures, std::memory_order_relaxed);
    e.left.store((uint32_t(1) << failures) - 1, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kMostFailures = 7;
  struct Entry {
    std::atomic<uint32_t> failures{0}, left{0};
  };
  Entry& entry(size_t k) { return entries_[63 - __builtin_clzll(uint64_t(k) | 1)]; }

  Entry entries_[64];
};

class SparseIndex {
 public:
  using Snapshot = std::shared_ptr<const State>;

  // An empty index; a block will hold 2^shift rows.
  SparseIndex(uint64_t dims, uint32_t shift) : dims_(dims), locks_(std::make_unique<Locks>()) {
    if (shift > kMaxBlockShift) throw std::invalid_argument("blocks of more than 32,768 rows");
    auto state = std::make_shared<State>();
    state->blocks.shift = shift;
    state->blocks.removed = &state->removed;
    state->list_lengths.resize(dims, 0);
    state_ = std::move(state);
  }
  SparseIndex(const SparseIndex&) = delete;

  uint64_t dims() const { return dims_; }

  // What the index is now; it stays as it is while anybody holds it.
  Snapshot snapshot() const {
    std::lock_guard<std::mutex> lock(locks_->state);
    return state_;
  }

  // Bytes of the accumulation structure, of the rows for exact scoring, of the cells, and of the rest.
  static void nbytes(const State& state, uint64_t* postings, uint64_t* rows, uint64_t* cells,
                     uint64_t* other) {
    *postings = *rows = *cells = 0;
    *other = (state.list_lengths.size() + state.removed.size()) * sizeof(uint64_t);
    for (const BlockView& view : state.blocks.views) {
      const BlockHeader& h = *view.header;
      const BlockLayout layout(h);
      *postings += layout.row_starts;
      *rows += layout.order - layout.row_starts;
      *cells += layout.end - layout.order;
    }
  }

  // Appends rows; they get the next ids, of which the first is returned. A last block that is not
  // full is built anew. If this throws, the index is as it was.
  uint64_t add(const Csr& matrix, uint64_t max_rows, size_t threads) {
    std::lock_guard<std::mutex> writing(locks_->writing);
    const Snapshot before = snapshot();
    const uint64_t rows = before->rows();
    if (uint64_t(matrix.rows) > max_rows - std::min(rows, max_rows)) {
      throw std::invalid_argument("more rows than an index holds");
    }
    const int64_t size = int64_t(1) << before->blocks.shift;
    const int64_t partial = int64_t(rows) % size;
    const int64_t topped = partial ? std::min<int64_t>(size - partial, matrix.rows) : 0;
    Merged merged;
    std::vector<std::unique_ptr<BlockBuilder>> builders;
    if (topped > 0) {
      merged = merge_last(before->blocks.views.back(), matrix, topped);
      builders.push_back(std::make_unique<BlockBuilder>(merged.csr(dims_), 0, partial + topped));
    }
    const size_t first = builders.size();
    builders.resize(first + size_t((matrix.rows - topped + size - 1) / size));
    parallel(builders.size() - first, threads, [&](size_t i) {
      const int64_t begin = topped + int64_t(i) * size;
      builders[first + i] =
          std::make_unique<BlockBuilder>(matrix, begin, std::min(begin + size, matrix.rows));
    });
    if (builders.empty()) return rows;
    std::vector<uint64_t> offsets(1, 0);
    for (const auto& builder : builders) offsets.push_back(offsets.back() + builder->bytes());
    const std::shared_ptr<uint8_t> memory = allocate_blocks(offsets.back());
    parallel(builders.size(), threads,
             [&](size_t i) { builders[i]->write(memory.get() + offsets[i]); });

    auto after = std::make_shared<State>(*before);
    for (int64_t p = matrix.indptr[0]; p < matrix.indptr[matrix.rows]; ++p) {
      if (matrix.values[p] != 0.0f) ++after->list_lengths[matrix.indices[p]];
    }
    if (!after->removed.empty()) after->removed.resize((rows + matrix.rows + 63) / 64, 0);
    if (topped > 0) {
      after->blocks.views.pop_back();
      after->owners.pop_back();
    }
    for (size_t i = 0; i < builders.size(); ++i) {
      after->blocks.push(BlockView::at(memory.get() + offsets[i]));
      after->owners.push_back(memory);
    }
    publish(std::move(after));
    return rows;
  }

  // Appends a block that lies in memory which `owner` keeps; throws if it is damaged. Only for an
  // index that nobody else has seen yet, as is `restore`.
  void attach(const uint8_t* data, uint64_t bytes, uint64_t rows, std::shared_ptr<uint8_t> owner) {
    State& state = const_cast<State&>(*state_);
    state.owners.push_back(std::move(owner));
    state.blocks.push(BlockView::open(data, bytes, rows, dims_));
  }

  void restore(std::vector<uint64_t> list_lengths, std::vector<uint64_t> removed) {
    State& state = const_cast<State&>(*state_);
    uint64_t count = 0;
    for (uint64_t bits : removed) count += uint64_t(__builtin_popcountll(bits));
    state.list_lengths = std::move(list_lengths);
    state.removed = std::move(removed);
    state.num_removed = count;
  }

  // Removes rows; returns how many of them were there. Ids must be below the rows of the index. If
  // this throws, the index is as it was.
  uint64_t remove(const int64_t* ids, size_t count) {
    std::lock_guard<std::mutex> writing(locks_->writing);
    auto after = std::make_shared<State>(*snapshot());
    if (after->removed.empty()) after->removed.resize((after->rows() + 63) / 64, 0);
    uint64_t fresh = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto id = uint32_t(ids[i]);
      if (after->blocks.is_removed(id)) continue;
      after->removed[id / 64] |= uint64_t(1) << (id % 64);
      ++fresh;
      const BlockView& block = after->blocks.views[after->blocks.block_of(id)];
      visit_row(block, after->blocks.local(id), [&](uint32_t dim, float) {
        if (dim < dims_) --after->list_lengths[dim];
      });
    }
    after->num_removed += fresh;
    publish(std::move(after));
    return fresh;
  }

  // Around a fork: nobody is within a short critical section when memory is copied. A thread that
  // was adding is not in the child, so its lock is made anew there, and the state is as it was.
  void before_fork() {
    locks_->state.lock();
    locks_->idle.lock();
  }
  void after_fork(bool in_child) {
    locks_->idle.unlock();
    locks_->state.unlock();
    if (!in_child) return;
    (void)locks_.release();  // perhaps locked by a thread that the child does not have
    locks_ = std::make_unique<Locks>();
  }

  // Results go to arrays of shape (queries.rows, k).
  void search(const Csr& queries, size_t k, float threshold, size_t threads,
              const Kernels& kernels, float* out_scores, int64_t* out_ids, Way way = Way::kCheapest) {
    const Snapshot state = snapshot();
    const Request request{*state, state->blocks, queries, k, threshold, kernels, way};
    const size_t num_queries = size_t(queries.rows), num_blocks = state->blocks.views.size();
    if (num_queries == 0) return;
    // One query is split over ranges of blocks; many are dealt out in batches, each of which goes
    // through the index together so that lists are still in a cache when the next query needs them.
    const size_t parts =
        num_queries >= threads
            ? 1
            : std::max<size_t>(1, std::min((threads + num_queries - 1) / num_queries, num_blocks));
    const size_t batch =
        parts > 1 ? 1 : std::min<size_t>(kBatch, (num_queries + threads - 1) / threads);
    const size_t batches = (num_queries + batch - 1) / batch;
    std::vector<std::vector<Key>> found(parts > 1 ? num_queries * parts : 0);
    parallel(batches * parts, threads, [&](size_t i) {
      const size_t first = i / parts * batch, part = i % parts;
      Task task;
      task.queries = {first, std::min(first + batch, num_queries)};
      task.blocks = {num_blocks * part / parts, num_blocks * (part + 1) / parts};
      Lease work(*this);
      std::vector<QuerySearch> searches = run(request, task, *work);
      for (size_t q = first; q < task.queries.end; ++q) {
        if (parts > 1) {
          found[q * parts + part] = searches[q - first].take_best();
        } else {
          searches[q - first].write(*work, out_scores + q * k, out_ids + q * k);
        }
      }
    });
    if (parts == 1) return;
    parallel(num_queries, threads, [&](size_t q) {
      std::vector<Key> all;
      for (size_t part = 0; part < parts; ++part) {
        const std::vector<Key>& keys = found[q * parts + part];
        all.insert(all.end(), keys.begin(), keys.end());
      }
      QuerySearch search = start(request, q);
      search.set_best(std::move(all));
      Lease work(*this);
      search.write(*work, out_scores + q * k, out_ids + q * k);
    });
  }

 private:
  static constexpr size_t kBatch = 64;

  // The arguments of a call of `search`.
  struct Request {
    const State& state;
    const Blocks& blocks;
    const Csr& queries;
    size_t k;
    float threshold;
    const Kernels& kernels;
    Way way;
  };

  struct Range {
    size_t begin = 0, end = 0;
    size_t size() const { return end - begin; }
  };

  // The part of a request that one thread does at a time: these queries in these blocks.
  struct Task {
    Range queries, blocks;
    bool guessing = true;  // whether tau may be guessed
    bool cells = true;     // whether cells may be used
  };

  struct Locks {
    std::mutex state;    // guards state_
    std::mutex idle;     // guards idle_
    std::mutex writing;  // one thread at a time adds or removes rows
  };

  // Borrows a workspace for as long as it lives. One that an exception passed through is thrown
  // away: it may hold half of a query.
  class Lease {
   public:
    explicit Lease(SparseIndex& index) : index_(index), exceptions_(std::uncaught_exceptions()) {
      {
        std::lock_guard<std::mutex> lock(index.locks_->idle);
        if (!index.idle_.empty()) {
          work_ = std::move(index.idle_.back());
          index.idle_.pop_back();
        }
      }
      if (!work_) work_ = std::make_unique<Workspace>(index.dims_);
    }
    ~Lease() {
      if (std::uncaught_exceptions() > exceptions_) return;
      try {
        std::lock_guard<std::mutex> lock(index_.locks_->idle);
        index_.idle_.push_back(std::move(work_));
      } catch (const std::bad_alloc&) {
        // No room to keep it: the next search makes another one.
      }
    }
    Workspace& operator*() { return *work_; }

   private:
    SparseIndex& index_;
    const int exceptions_;
    std::unique_ptr<Workspace> work_;
  };

  struct Merged {
    std::vector<int64_t> indptr{0};
    std::vector<int32_t> indices;
    std::vector<float> values;

    void push(int32_t dim, float value) {
      indices.push_back(dim);
      values.push_back(value);
    }
    Csr csr(uint64_t dims) const {
      return {int64_t(indptr.size()) - 1, int64_t(dims), indptr.data(), indices.data(),
              values.data()};
    }
  };

  // The rows of the last block followed by the first `more` of `matrix`.
  Merged merge_last(const BlockView& last, const Csr& matrix, int64_t more) const {
    Merged merged;
    for (uint32_t row = 0; row < last.rows(); ++row) {
      visit_row(last, row, [&](uint32_t dim, float value) {
        if (dim < dims_) merged.push(int32_t(dim), value);
      });
      merged.indptr.push_back(int64_t(merged.indices.size()));
    }
    for (int64_t i = 0; i < more; ++i) {
      for (int64_t p = matrix.indptr[i]; p < matrix.indptr[i + 1]; ++p) {
        merged.push(matrix.indices[p], matrix.values[p]);
      }
      merged.indptr.push_back(int64_t(merged.indices.size()));
    }
    return merged;
  }

  QuerySearch start(const Request& request, size_t q) const {
    const Csr& queries = request.queries;
    const int64_t begin = queries.indptr[q];
    return QuerySearch(request.blocks, queries.indices + begin, queries.values + begin,
                       queries.indptr[q + 1] - begin, request.k, request.threshold);
  }

  // Searches the queries of a task in its blocks: by cells where that takes less time, and by
  // accumulation else.
  std::vector<QuerySearch> run(const Request& request, const Task& task, Workspace& work) {
    std::vector<QuerySearch> searches;
    for (size_t q = task.queries.begin; q < task.queries.end; ++q) {
      searches.push_back(start(request, q));
    }
    std::vector<uint32_t> all, with_cells, without_cells;
    for (size_t b = task.blocks.begin; b < task.blocks.end; ++b) {
      all.push_back(uint32_t(b));
      (request.blocks.views[b].has_cells() ? with_cells : without_cells).push_back(uint32_t(b));
    }
    std::vector<bool> done(searches.size(), false);
    if (task.cells && request.way != Way::kAccumulate && !with_cells.empty()) {
      done = search_cells(request, task, with_cells, searches, work);
    }
    std::vector<QuerySearch*> whole, rest;
    for (size_t i = 0; i < searches.size(); ++i) (done[i] ? rest : whole).push_back(&searches[i]);
    accumulate(request, whole, all, task.guessing, work);
    accumulate(request, rest, without_cells, false, work);
    for (size_t i = 0; i < searches.size(); ++i) {
      if (searches[i].finish(work)) continue;
      Task again = task;
      again.queries = {task.queries.begin + i, task.queries.begin + i + 1};
      again.guessing = again.cells = false;
      searches[i].set_best(run(request, again, work)[0].take_best());
    }
    return searches;
  }

  // Searches the cells of `blocks`, and tells for which queries: some are better off without.
  std::vector<bool> search_cells(const Request& request, const Task& task,
                                 const std::vector<uint32_t>& blocks,
                                 std::vector<QuerySearch>& searches, Workspace& work) {
    const bool forced = request.way == Way::kCells;
    const std::vector<BlockView>& views = request.blocks.views;
    CellCosts costs{};
    costs.forced = forced;
    costs.blocks = blocks.size();
    for (uint32_t b : blocks) {
      costs.plane_bytes += views[b].cells().plane_bytes();
      costs.row_bytes += views[b].header->words * sizeof(uint32_t);
      costs.rows += views[b].rows();
    }
    // One query after the other: they share few planes, and fetching ahead matters more.
    std::vector<bool> done(searches.size(), false);
    for (size_t i = 0; i < searches.size(); ++i) {
      costs.postings =
          count_postings(request, task.queries.begin + i) * blocks.size() / views.size();
      if (!forced && !(searches[i].may_use_cells(costs) && trials_.due(request.k))) continue;
      if (!searches[i].start_cells(work.cell_bounds)) continue;
      for (size_t b = 0; b < blocks.size(); ++b) {
        const BlockView* next = b + 1 < blocks.size() ? &views[blocks[b + 1]] : nullptr;
        work.cell_bounds.add(views[blocks[b]], next, request.kernels);
      }
      bool worthwhile = false;
      done[i] = searches[i].search_cells(blocks, costs, request.kernels, work, &worthwhile);
      if (!forced) trials_.note(request.k, worthwhile);
    }
    return done;
  }

  // How many postings the lists of a query hold.
  static uint64_t count_postings(const Request& request, size_t q) {
    uint64_t count = 0;
    for (int64_t p = request.queries.indptr[q]; p < request.queries.indptr[q + 1]; ++p) {
      count += request.state.list_lengths[request.queries.indices[p]];
    }
    return count;
  }

  // Accumulates for some queries in some blocks, block by block.
  void accumulate(const Request& request, const std::vector<QuerySearch*>& searches,
                  const std::vector<uint32_t>& blocks, bool guessing, Workspace& work) const {
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
      search_at(step).run(block_at(step), work.plan, request.kernels, work, [&](size_t t) {
        if (more) next.prefetch_list(next_block, work.next_plan, t);
      });
      if (step / count + 1 == guess_at) {
        search_at(step).guess(double(guess_at) / double(blocks.size()), work);
      }
      std::swap(work.plan, work.next_plan);
    }
  }

  void publish(std::shared_ptr<State> state) {
    Snapshot old;  // let go of after the lock: it may be the last to hold gigabytes
    std::lock_guard<std::mutex> lock(locks_->state);
    old = std::move(state_);
    state_ = std::move(state);
  }

  const uint64_t dims_;
  Trials trials_;
  std::unique_ptr<Locks> locks_;
  Snapshot state_;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace sparse_embed

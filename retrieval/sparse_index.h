// The index: blocks of rows in memory or in a mapped file, their ids, and which were removed. Any
// thread may search, save and change it at any time: each search sees the index as it was when it
// began.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <vector>

#include "batch_search.h"
#include "block.h"
#include "csr.h"
#include "forks.h"
#include "state.h"
#include "topk.h"
#include "workspaces.h"

namespace sparse_embed {

class SparseIndex final : Forkable {
 public:
  using Snapshot = std::shared_ptr<const State>;

  // An empty index; a block will hold 2^shift rows.
  SparseIndex(uint64_t dims, uint32_t shift)
      : dims_(dims), state_(std::make_shared<State>(dims, shift)), workspaces_(dims) {
    if (shift > kMaxBlockShift) throw std::invalid_argument("blocks of more than 32,768 rows");
  }
  SparseIndex(const SparseIndex&) = delete;

  uint64_t dims() const { return dims_; }

  // What the index is now; it stays as it is while anybody holds it.
  Snapshot snapshot() const {
    Snapshot now;
    {
      std::lock_guard<std::mutex> lock(reading_);
      now = state_;
    }
    if (now->file) Mapping::handle_faults();
    return now;
  }

  // Bytes of the accumulation structure, of the rows for exact scoring, of the cells, and of the rest.
  static void nbytes(const State& state, uint64_t* postings, uint64_t* rows, uint64_t* cells,
                     uint64_t* other) {
    *postings = *rows = *cells = 0;
    *other = (state.list_lengths.size() + state.removed.size()) * sizeof(uint64_t);
    *other += state.ids.nbytes();
    for (const BlockView& view : state.blocks.views) {
      const BlockLayout layout(*view.header);
      *postings += layout.row_starts;
      *rows += layout.order - layout.row_starts;
      *cells += layout.end - layout.order;
    }
  }

  // Appends rows. They get the next ids, of which the first is returned, or `ids` unless it is null.
  // If this throws, the index is as it was; so it is with all that change it.
  uint64_t add(const Csr& matrix, const int64_t* ids, uint64_t max_rows, size_t threads) {
    std::lock_guard<std::mutex> writing(writing_);
    const Snapshot before = snapshot();
    require_room(*before, uint64_t(matrix.rows), max_rows);
    auto after = std::make_shared<State>(*before);
    after->ids = extended(*before, ids, uint64_t(matrix.rows), "ids holds ");
    append_rows(*after, matrix, threads);
    before->require_intact();
    publish(std::move(after));
    return before->ids.next();
  }

  // Appends the rows that another index has now, with their ids.
  void merge(const State& other, uint64_t max_rows, size_t threads) {
    std::lock_guard<std::mutex> writing(writing_);
    const Snapshot before = snapshot();
    require_room(*before, other.rows() - other.num_removed, max_rows);
    const std::vector<int64_t> ids = living_ids(other);
    auto after = std::make_shared<State>(*before);
    after->ids = extended(*before, ids.data(), ids.size(), "other holds the id ")
                     .followed_by(other.ids.next());
    append_living(*after, other, threads);
    before->require_intact();
    other.require_intact();
    publish(std::move(after));
  }

  // Builds the blocks anew without the rows that were removed, if there are any.
  void compact(size_t threads) {
    std::lock_guard<std::mutex> writing(writing_);
    const Snapshot before = snapshot();
    if (before->num_removed == 0) return;
    auto after = std::make_shared<State>(dims_, before->blocks.shift);
    after->ids = before->ids.compacted([&](uint32_t row) { return before->living(row); });
    append_living(*after, *before, threads);
    before->require_intact();
    publish(std::move(after));
  }

  // Appends a block that lies in memory which `owner` keeps; throws if it is damaged. Only for an
  // index that nobody else has seen yet, as is `restore`.
  void attach(const uint8_t* data, uint64_t bytes, uint64_t rows, std::shared_ptr<uint8_t> owner) {
    State& state = const_cast<State&>(*state_);
    state.blocks.push(BlockView::open(data, bytes, rows, dims_, owner));
    state.owners.push_back(std::move(owner));
  }

  // Takes over what a file says of all rows, once the blocks are attached; throws if the ids are
  // damaged. Their arrays may be null as those of Ids, and `owner` keeps them. `file` is the one that
  // all of this was read from, if it is mapped.
  void restore(std::vector<uint64_t> list_lengths, std::vector<uint64_t> removed, uint64_t next,
               const int64_t* sorted, const uint32_t* rows, const uint32_t* ranks,
               std::shared_ptr<uint8_t> owner, Mapping::Pointer file) {
    State& state = const_cast<State&>(*state_);
    uint64_t count = 0;
    for (uint64_t bits : removed) count += uint64_t(__builtin_popcountll(bits));
    state.list_lengths = std::move(list_lengths);
    state.removed = std::move(removed);
    state.num_removed = count;
    state.ids = Ids::open(state.rows(), next, sorted, rows, ranks, std::move(owner),
                          [&](uint32_t row) { return state.living(row); });
    state.file = std::move(file);
  }

  // Removes rows; returns how many of them were there. Throws if an id was never given.
  uint64_t remove(const int64_t* ids, size_t count) {
    std::lock_guard<std::mutex> writing(writing_);
    auto after = std::make_shared<State>(*snapshot());
    if (after->removed.empty()) after->removed.resize((after->rows() + 63) / 64, 0);
    uint64_t fresh = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t row = after->row_of(ids[i]);
      if (!after->living(row)) continue;
      after->removed[row / 64] |= uint64_t(1) << (row % 64);
      ++fresh;
      after->visit(row, [&](uint32_t dim, float) { --after->list_lengths[dim]; });
    }
    after->num_removed += fresh;
    after->require_intact();
    publish(std::move(after));
    return fresh;
  }

  // Results go to arrays of shape (queries.rows, k).
  void search(const Request& request, float* out_scores, int64_t* out_ids) {
    const Snapshot state = snapshot();
    const size_t k = request.k;
    BatchSearch(*state, request, false, workspaces_).run([&](size_t q, std::vector<Key>& keys) {
      write_best(keys, k, out_scores + q * k, out_ids + q * k);
      if (!state->ids.sorted()) return;
      for (size_t i = 0; i < keys.size(); ++i) {
        int64_t& place = out_ids[q * k + i];
        place = state->ids.id(uint32_t(place));
      }
    });
    state->require_intact();
  }

  // All rows that reach the threshold; `k` of the request does not matter.
  RangeResults range_search(Request request) {
    Snapshot state = snapshot();
    request.k = std::max<size_t>(1, state->rows());
    return RangeResults(std::move(state), request, workspaces_);
  }

 private:
  // A thread that was changing the index is not in the child of a fork: its lock is made anew there,
  // and the state is as it was.
  void before_fork() override {
    reading_.lock();
    workspaces_.lock();
  }
  void after_fork(bool in_child) override {
    workspaces_.unlock();
    reading_.unlock();
    if (in_child) new (&writing_) std::mutex;
  }

  static void require_room(const State& state, uint64_t more, uint64_t max_rows) {
    if (more > max_rows - std::min(state.rows(), max_rows)) {
      throw std::invalid_argument("more rows than an index holds");
    }
  }

  static Ids extended(const State& state, const int64_t* ids, uint64_t count, const char* holds) {
    return state.ids.extended(ids, count, [&](uint32_t row) { return state.living(row); }, holds);
  }

  void publish(std::shared_ptr<State> state) {
    Snapshot old;  // let go of after the lock: it may be the last to hold gigabytes
    std::lock_guard<std::mutex> lock(reading_);
    old = std::move(state_);
    state_ = std::move(state);
  }

  const uint64_t dims_;
  mutable std::mutex reading_;  // guards state_
  std::mutex writing_;          // one thread at a time changes the index
  Snapshot state_;
  Workspaces workspaces_;
  ForkGuard guard_{this};
};

}  // namespace sparse_embed

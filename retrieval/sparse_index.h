// The index: blocks of rows in memory or in a mapped file, removed ids, and threaded search.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
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

class SparseIndex {
 public:
  // An empty index; a block will hold 2^shift rows.
  SparseIndex(uint64_t dims, uint32_t shift) : dims_(dims), list_lengths_(dims, 0) {
    if (shift > kMaxBlockShift) throw std::invalid_argument("blocks of more than 32,768 rows");
    blocks_.shift = shift;
    blocks_.removed = &removed_;
  }
  SparseIndex(const SparseIndex&) = delete;

  uint64_t rows() const { return rows_; }
  uint64_t dims() const { return dims_; }
  uint32_t shift() const { return blocks_.shift; }
  size_t num_blocks() const { return blocks_.views.size(); }
  const uint8_t* block_data(size_t b) const {
    return reinterpret_cast<const uint8_t*>(blocks_.views[b].header);
  }
  uint64_t block_bytes(size_t b) const { return blocks_.views[b].header->bytes; }
  const std::vector<uint64_t>& list_lengths() const { return list_lengths_; }
  const std::vector<uint64_t>& removed() const { return removed_; }

  // Bytes of the accumulation structure, of the rows for exact scoring, and of the rest.
  void nbytes(uint64_t* postings, uint64_t* rows, uint64_t* other) const {
    *postings = *rows = 0;
    *other = list_lengths_.size() * sizeof(uint64_t) + removed_.size() * sizeof(uint64_t);
    for (const BlockView& view : blocks_.views) {
      const BlockHeader& h = *view.header;
      const BlockLayout layout(h.rows, h.dims, h.groups, h.words);
      *postings += layout.row_starts;
      *rows += layout.end - layout.row_starts;
    }
  }

  // Appends rows; they get the next ids. A last block that is not full is built anew.
  void add(const Csr& matrix, size_t threads) {
    const int64_t size = int64_t(1) << blocks_.shift;
    const int64_t partial = int64_t(rows_) % size;
    const int64_t topped = partial ? std::min<int64_t>(size - partial, matrix.rows) : 0;
    Merged merged;
    std::vector<std::unique_ptr<BlockBuilder>> builders;
    if (topped > 0) {
      merged = merge_last(matrix, topped);
      builders.push_back(std::make_unique<BlockBuilder>(merged.csr(dims_), 0, partial + topped));
    }
    const size_t first = builders.size();
    builders.resize(first + size_t((matrix.rows - topped + size - 1) / size));
    parallel(builders.size() - first, threads, [&](size_t i) {
      const int64_t begin = topped + int64_t(i) * size;
      builders[first + i] =
          std::make_unique<BlockBuilder>(matrix, begin, std::min(begin + size, matrix.rows));
    });
    if (builders.empty()) return;
    std::vector<uint64_t> offsets(1, 0);
    for (const auto& builder : builders) offsets.push_back(offsets.back() + builder->bytes());
    const std::shared_ptr<uint8_t> memory = allocate_blocks(offsets.back());
    parallel(builders.size(), threads,
             [&](size_t i) { builders[i]->write(memory.get() + offsets[i]); });

    std::vector<uint64_t> lengths(list_lengths_);
    for (int64_t p = matrix.indptr[0]; p < matrix.indptr[matrix.rows]; ++p) {
      if (matrix.values[p] != 0.0f) ++lengths[matrix.indices[p]];
    }
    blocks_.views.reserve(blocks_.views.size() + builders.size());
    owners_.reserve(owners_.size() + builders.size());
    if (!removed_.empty()) removed_.resize((rows_ + matrix.rows + 63) / 64, 0);
    if (topped > 0) {  // from here on nothing throws
      blocks_.views.pop_back();
      owners_.pop_back();
    }
    for (size_t i = 0; i < builders.size(); ++i) {
      blocks_.views.push_back(BlockView::at(memory.get() + offsets[i]));
      owners_.push_back(memory);
    }
    list_lengths_.swap(lengths);
    rows_ += uint64_t(matrix.rows);
  }

  // Appends a block in memory that `owner` keeps; throws if it is damaged.
  void attach(const uint8_t* data, uint64_t bytes, uint64_t rows, std::shared_ptr<uint8_t> owner) {
    blocks_.views.push_back(BlockView::open(data, bytes, rows, dims_));
    owners_.push_back(std::move(owner));
    rows_ += rows;
  }

  void restore(std::vector<uint64_t> list_lengths, std::vector<uint64_t> removed) {
    list_lengths_ = std::move(list_lengths);
    removed_ = std::move(removed);
  }

  // Removes rows; returns how many of them existed. Ids must be below rows().
  uint64_t remove(const int64_t* ids, size_t count) {
    if (removed_.empty()) removed_.resize((rows_ + 63) / 64, 0);
    uint64_t fresh = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto id = uint32_t(ids[i]);
      if (blocks_.is_removed(id)) continue;
      removed_[id / 64] |= uint64_t(1) << (id % 64);
      ++fresh;
      for_each(id, [this](uint32_t dim, float) {
        if (dim < dims_) --list_lengths_[dim];
      });
    }
    return fresh;
  }

  // Results go to arrays of shape (queries.rows, k).
  void search(const Csr& queries, size_t k, float threshold, size_t threads,
              const Kernels& kernels, float* out_scores, int64_t* out_ids) {
    const Request request{queries, k, threshold, kernels};
    const size_t num_queries = size_t(queries.rows), num_blocks = blocks_.views.size();
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
    const Csr& queries;
    size_t k;
    float threshold;
    const Kernels& kernels;
  };

  struct Range {
    size_t begin = 0, end = 0;
    size_t size() const { return end - begin; }
  };

  // The part of a request that one thread does at a time: these queries in these blocks.
  struct Task {
    Range queries, blocks;
    bool guessing = true;  // whether tau may be guessed
  };

  // Borrows a workspace for as long as it lives.
  class Lease {
   public:
    explicit Lease(SparseIndex& index) : index_(index) {
      {
        std::lock_guard<std::mutex> lock(index.mutex_);
        if (!index.idle_.empty()) {
          work_ = std::move(index.idle_.back());
          index.idle_.pop_back();
        }
      }
      if (!work_) work_ = std::make_unique<Workspace>(index.dims_);
    }
    ~Lease() {
      std::lock_guard<std::mutex> lock(index_.mutex_);
      index_.idle_.push_back(std::move(work_));
    }
    Workspace& operator*() { return *work_; }

   private:
    SparseIndex& index_;
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

  // Calls visit(dimension, value) for the non-zeros of a row.
  template <class Visit>
  void for_each(uint32_t id, Visit visit) const {
    const BlockView& block = blocks_.views[blocks_.block_of(id)];
    visit_row(block, blocks_.local(id), visit);
  }

  // The rows of the last block followed by the first `more` of `matrix`.
  Merged merge_last(const Csr& matrix, int64_t more) const {
    Merged merged;
    const BlockView& last = blocks_.views.back();
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
    return QuerySearch(blocks_, queries.indices + begin, queries.values + begin,
                       queries.indptr[q + 1] - begin, request.k, request.threshold);
  }

  // Searches the queries of a task in its blocks, block by block.
  std::vector<QuerySearch> run(const Request& request, const Task& task, Workspace& work) const {
    std::vector<QuerySearch> searches;
    for (size_t q = task.queries.begin; q < task.queries.end; ++q) {
      searches.push_back(start(request, q));
    }
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
      search_at(step).run(block_at(step), work.plan, request.kernels, work, [&](size_t t) {
        if (more) next.prefetch_list(next_block, work.next_plan, t);
      });
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
      searches[i].set_best(run(request, again, work)[0].take_best());
    }
    return searches;
  }

  uint64_t dims_;
  uint64_t rows_ = 0;
  Blocks blocks_;
  std::vector<std::shared_ptr<uint8_t>> owners_;  // of the blocks' memory
  std::vector<uint64_t> list_lengths_;            // non-zeros per dimension, removed rows excluded
  std::vector<uint64_t> removed_;                 // one bit per row, or empty if none was removed
  std::mutex mutex_;                              // guards idle_
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace sparse_embed

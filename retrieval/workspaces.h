// What searches keep from call to call: memory, and which way was fast.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "block.h"
#include "bounds.h"
#include "plan.h"
#include "scoring.h"
#include "ways.h"

namespace sparse_embed {

// Memory that one thread needs while it searches.
struct Workspace {
  alignas(64) float acc[kAccumulators] = {};  // zero between blocks
  std::vector<uint32_t> found;                // local ids of candidates
  std::vector<float> bounds;                  // what their accumulators held
  Plan plan, next_plan;
  CellBounds cell_bounds;
  std::vector<Cell> cells;       // that may matter
  std::vector<uint32_t> places;  // of their rows
  DenseQuery dense;

  explicit Workspace(uint64_t dims) : found(kAccumulators), bounds(kAccumulators), dense(dims) {}
};

class Workspaces {
 public:
  explicit Workspaces(uint64_t dims) : dims_(dims) {}

  Trials trials;  // of cells

  // Borrows a workspace for as long as it lives. One that an exception passed through is thrown
  // away: it may hold half of a query.
  class Lease {
   public:
    explicit Lease(Workspaces& pool) : pool_(pool), exceptions_(std::uncaught_exceptions()) {
      {
        std::lock_guard<std::mutex> lock(pool.mutex_);
        if (!pool.idle_.empty()) {
          work_ = std::move(pool.idle_.back());
          pool.idle_.pop_back();
        }
      }
      if (!work_) work_ = std::make_unique<Workspace>(pool.dims_);
    }
    ~Lease() {
      if (std::uncaught_exceptions() > exceptions_) return;
      try {
        std::lock_guard<std::mutex> lock(pool_.mutex_);
        pool_.idle_.push_back(std::move(work_));
      } catch (const std::bad_alloc&) {
        // No room to keep it: the next search makes another one.
      }
    }
    Workspace& operator*() { return *work_; }
    Workspace* operator->() { return work_.get(); }

   private:
    Workspaces& pool_;
    const int exceptions_;
    std::unique_ptr<Workspace> work_;
  };

  // For a fork; see forks.h.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  const uint64_t dims_;
  std::mutex mutex_;  // guards idle_
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace sparse_embed

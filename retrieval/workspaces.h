// The memory of searches, kept from call to call.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "search.h"

namespace sparse_embed {

class Workspaces {
 public:
  explicit Workspaces(uint64_t dims) : dims_(dims) {}

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

   private:
    Workspaces& pool_;
    const int exceptions_;
    std::unique_ptr<Workspace> work_;
  };

  // Around a fork nobody is within the critical section.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  const uint64_t dims_;
  std::mutex mutex_;  // guards idle_
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace sparse_embed

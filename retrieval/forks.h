// Keeps a fork from copying the short locks of indexes while somebody has them: nobody in the child
// would ever open them.
//
// The thread that forks takes them all before and opens them after it, in the parent and in the
// child; threads that fork at once take turns. It may have the interpreter's lock meanwhile: nobody
// who has one of the short locks waits for that, or for another lock that is taken here.
#pragma once

#include <pthread.h>

#include <list>
#include <mutex>

namespace sparse_embed {

class Forkable {
 public:
  virtual void before_fork() = 0;
  virtual void after_fork(bool in_child) = 0;

 protected:
  ~Forkable() = default;
};

// The last member of what is to survive forks: it must be whole as long as this lives.
class ForkGuard {
 public:
  explicit ForkGuard(Forkable* guarded) {
    Guarded& all = living();
    std::lock_guard<std::mutex> lock(all.mutex);
    place_ = all.list.insert(all.list.end(), guarded);
  }
  ~ForkGuard() {
    Guarded& all = living();
    std::lock_guard<std::mutex> lock(all.mutex);
    all.list.erase(place_);
  }
  ForkGuard(const ForkGuard&) = delete;

 private:
  struct Guarded {
    std::mutex mutex;  // guards the list, and is a fork's turn
    std::list<Forkable*> list;

    Guarded() {
      pthread_atfork(
          [] {
            living().mutex.lock();
            for (Forkable* guarded : living().list) guarded->before_fork();
          },
          [] { after_fork(false); }, [] { after_fork(true); });
    }
    static void after_fork(bool in_child) {
      for (Forkable* guarded : living().list) guarded->after_fork(in_child);
      living().mutex.unlock();
    }
  };
  static Guarded& living() {
    static Guarded& all = *new Guarded;  // never destroyed: threads may outlive the program's end
    return all;
  }

  std::list<Forkable*>::iterator place_;
};

}  // namespace sparse_embed

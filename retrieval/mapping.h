// A file that is used where it lies, whatever other programs do to it meanwhile.
//
// To read a page that is gone, because the file was cut short or its disk fails, raises SIGBUS on the
// thread that reads. The handler below puts pages of zeros in its place and marks the mapping, and the
// thread goes on; who has read from a mapping calls `require_intact` afterwards, which throws. Whatever
// keeps reads and writes within their bounds is copied out of the file before it is checked (block.h),
// since the content of a page may change at any moment, too.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateIgnoreWritesBegin(const char*, int);
extern "C" void AnnotateIgnoreWritesEnd(const char*, int);
#endif

namespace sparse_embed {

// The file that was read is not what it was when it was opened.
struct FileChanged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The addresses of mappings, which a signal handler may look up at any moment. They are never freed,
// but used again.
class MappedRange {
 public:
  static MappedRange& take() {
    for (MappedRange* range = first().load(); range; range = range->next_) {
      if (!range->taken_.exchange(true)) return *range;
    }
    auto* made = new MappedRange;
    made->next_ = first().load();
    while (!first().compare_exchange_weak(made->next_, made)) {
    }
    return *made;
  }
  void set(uintptr_t begin, uintptr_t end) {
    lost_ = false;
    begin_ = begin;
    end_ = end;
  }
  void give_back() {
    end_ = 0;
    taken_ = false;
  }

  // Whether pages were gone when they were read.
  bool lost() const { return lost_.load(); }

  // Puts zeros from the page of an address on, to the end of its mapping; false if it is in none.
  static bool replace(uintptr_t address) {
    for (MappedRange* range = first().load(); range; range = range->next_) {
      const uintptr_t end = range->end_;
      const bool inside = range->begin_ <= address && address < end;
      if (!inside || range->end_ != end) continue;  // the latter: it is being used again
      const uintptr_t page = address - address % uintptr_t(sysconf(_SC_PAGESIZE));
      range->lost_ = true;
#if defined(__SANITIZE_THREAD__)
      // Others read these pages meanwhile, as they do while programs write to the file.
      AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
      const void* zeros = mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                               MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#if defined(__SANITIZE_THREAD__)
      AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
#endif
      return zeros != MAP_FAILED;
    }
    return false;
  }

 private:
  static std::atomic<MappedRange*>& first() {
    static std::atomic<MappedRange*> range{nullptr};
    return range;
  }

  std::atomic<bool> taken_{true}, lost_{false};
  std::atomic<uintptr_t> begin_{0}, end_{0};
  MappedRange* next_ = nullptr;
};

class Mapping {
 public:
  using Pointer = std::shared_ptr<const Mapping>;

  // Maps an open file; throws if that fails. `changed` is what to say when it has been changed.
  Mapping(int file, std::string changed)
      : changed_(std::move(changed)), range_(MappedRange::take()),
        file_(fcntl(file, F_DUPFD_CLOEXEC, 0)) {
    if (file_ < 0 || fstat(file_, &opened_) != 0) fail();
    if (size() == 0) return;
    void* memory = mmap(nullptr, size(), PROT_READ, MAP_SHARED, file_, 0);
    if (memory == MAP_FAILED) fail();
    data_ = static_cast<const uint8_t*>(memory);
    range_.set(uintptr_t(data_), uintptr_t(data_) + size());
    handle_faults();
  }
  ~Mapping() { release(); }
  Mapping(const Mapping&) = delete;

  const uint8_t* data() const { return data_; }
  uint64_t size() const { return uint64_t(opened_.st_size); }

  // To be called before the mapping is read: puts our handler before those of others, who may have
  // come since.
  static void handle_faults() {
    struct sigaction current;
    sigaction(SIGBUS, nullptr, &current);
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_fault) return;
    previous() = current;
    struct sigaction ours = {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGBUS, &ours, nullptr);
  }

  // To be called after it was read: throws unless the file has been all the time what was opened.
  void require_intact() const {
    if (differs()) different_ = true;
    if (range_.lost() || different_) throw FileChanged(changed_);
  }

 private:
  bool differs() const {
    struct stat now;
    return fstat(file_, &now) != 0 || now.st_size != opened_.st_size ||
           now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec;
  }

  // The handler that was there before ours.
  static struct sigaction& previous() {
    static struct sigaction action = {};  // at first the default
    return action;
  }

  static void on_fault(int signal, siginfo_t* info, void*) {
    const int error = errno;
    const bool sent = info->si_code <= 0;  // by a program
    if (sent || !MappedRange::replace(uintptr_t(info->si_addr))) {
      // The previous handler meets the fault when the instruction runs again. If that one comes back
      // to us, as Python's faulthandler does, there is only the default left.
      const struct sigaction next = previous();
      previous() = {};
      sigaction(signal, &next, nullptr);
      if (sent) raise(signal);
    }
    errno = error;
  }

  [[noreturn]] void fail() {
    const std::system_error error(errno, std::generic_category());
    release();
    throw error;
  }
  void release() {
    range_.give_back();
    if (data_) munmap(const_cast<uint8_t*>(data_), size());
    if (file_ >= 0) close(file_);
  }

  const std::string changed_;
  MappedRange& range_;
  const int file_;
  struct stat opened_ = {};
  const uint8_t* data_ = nullptr;
  mutable std::atomic<bool> different_{false};  // for good: what was read then may be in use
};

inline Mapping::Pointer map_file(int file, const char* changed) {
  return std::make_shared<const Mapping>(file, changed);
}

}  // namespace sparse_embed

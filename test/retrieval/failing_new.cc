// Preloaded by test_index_failures.py: once armed, the n-th allocation of C++ fails.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> left{-1};  // allocations that still succeed; negative: all do

bool fails() { return left.load() >= 0 && left.fetch_sub(1) == 0; }
}  // namespace

extern "C" void arm(long count) { left = count; }
extern "C" long disarm() { return left.exchange(-1); }

void* operator new(std::size_t size) {
  void* memory = fails() ? nullptr : std::malloc(size ? size : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(size ? size : 1);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  void* memory = fails() ? nullptr : std::aligned_alloc(std::size_t(alignment),
                                                        (size + std::size_t(alignment) - 1) /
                                                            std::size_t(alignment) *
                                                            std::size_t(alignment));
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  if (fails()) return ENOMEM;
  *memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  return *memory ? 0 : ENOMEM;
}

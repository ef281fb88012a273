// Fetching memory ahead of its use.
#pragma once

namespace sparse_embed {

// Level 3 fetches into the first-level cache, 2 into the second. The empty asm has no instructions:
// without it GCC drops a function that only prefetches as one without effect.
template <int level>
inline void prefetch(const void* address) {
  __builtin_prefetch(address, 0, level);
  asm volatile("" : : "r"(address));
}

template <int level>
inline void prefetch_range(const void* begin, const void* end) {
  for (auto* line = static_cast<const char*>(begin); line < end; line += 64) prefetch<level>(line);
}

}  // namespace sparse_embed

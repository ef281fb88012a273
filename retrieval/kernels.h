// The inner loops for each instruction set, picked at run time.
//
// One build runs on any x86-64, and on other processors with the portable loops: kernels.inc is
// compiled here several times, each under its own target options, into a table of functions.
//
// To add an instruction set, compile kernels.inc once more (below) and add a row to kKernelSets; in
// kernels.inc, write the code that uses the new instructions. Nothing else knows the sets: Python
// takes the names from the table, and the tests run all sets that the machine supports.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "block.h"

#if (defined(__x86_64__) || defined(_M_X64)) && defined(__GNUC__)
#define SPARSE_EMBED_X86 1
#include <immintrin.h>
#endif

namespace sparse_embed {

struct Kernels {
  uint32_t (*accumulate)(const uint16_t* ids, const BFloat16* bounds, uint32_t groups, float weight,
                         float stop, float* acc);
  uint32_t (*scan)(float* acc, uint32_t rows, float cut, uint32_t* found,
                   float* bounds);
  float (*dot_float32)(const float* row, const float* query, size_t n);
  float (*dot_float16)(const uint16_t* row, const float* query, size_t n);
};

// Scans and dot products take this many numbers at a time. The results of dot products depend on
// it, so it is the same for all instruction sets.
constexpr int kLanes = 32;
static_assert(kLanes == 32, "a scan keeps a bit per lane in 32 bits");
static_assert(kMaxBlockRows % kLanes == 0, "a scan must not see the ids that fill up a list");

// IEEE half precision to single, by moving the exponent and letting a product rescale it.
inline float half_to_float(uint16_t half) {
  const uint32_t magnitude = uint32_t(half & 0x7FFF) << 13;
  float value;
  std::memcpy(&value, &magnitude, sizeof value);
  value *= 0x1p112f;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((half & 0x7C00) == 0x7C00) bits |= 0x7F800000u;  // infinity and NaN
  bits |= uint32_t(half & 0x8000) << 16;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// A section per instruction set. KERNEL_TARGET lets the compiler use the instructions; a macro per
// set tells kernels.inc that it may. kernels.inc undefines them all.

namespace portable {
#define KERNEL_TARGET
#include "kernels.inc"
}  // namespace portable

#if SPARSE_EMBED_X86

namespace avx2 {
#define KERNEL_TARGET __attribute__((target("avx2,f16c")))
#define KERNEL_AVX2 1
#include "kernels.inc"
}  // namespace avx2

namespace avx512 {
#define KERNEL_TARGET __attribute__((target("avx2,f16c,avx512f")))
#define KERNEL_AVX2 1
#define KERNEL_AVX512 1
#include "kernels.inc"
}  // namespace avx512

// Whether this processor has an instruction set; the builtin takes only literals.
#define CPU_HAS(name) (__builtin_cpu_init(), __builtin_cpu_supports(name) != 0)

#endif  // SPARSE_EMBED_X86

struct KernelSet {
  const char* name;
  bool (*available)();  // on this machine
  const Kernels* kernels;
};

// Fastest first.
constexpr KernelSet kKernelSets[] = {
#if SPARSE_EMBED_X86
    {"avx512", [] { return CPU_HAS("avx2") && CPU_HAS("f16c") && CPU_HAS("avx512f"); },
     &avx512::kKernels},
    {"avx2", [] { return CPU_HAS("avx2") && CPU_HAS("f16c"); }, &avx2::kKernels},
#endif
    {"portable", [] { return true; }, &portable::kKernels},
};

#undef CPU_HAS

// The names of the sets that this machine can run, fastest first.
inline std::vector<std::string> available_kernels() {
  std::vector<std::string> names;
  for (const KernelSet& set : kKernelSets) {
    if (set.available()) names.push_back(set.name);
  }
  return names;
}

inline const Kernels& kernels_named(const std::string& name) {
  for (const KernelSet& set : kKernelSets) {
    if (name == set.name && set.available()) return *set.kernels;
  }
  throw std::invalid_argument("this machine cannot run " + name);
}

}  // namespace sparse_embed

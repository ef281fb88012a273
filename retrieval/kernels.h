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
#include "prefetch.h"

#if (defined(__x86_64__) || defined(_M_X64)) && defined(__GNUC__)
#define SPARSE_EMBED_X86 1
#include <immintrin.h>
#endif

namespace sparse_embed {

// What bound_cells sums up.
struct PlaneSums {
  const uint8_t* data;      // planes of codes; see cells.h
  uint32_t plane_bytes;     // from a plane to the next
  const uint32_t* planes;   // which planes
  const uint8_t* products;  // kLevels of each of them: what its codes stand for
  uint32_t terms;           // how many planes
  const uint16_t* start;    // sums to begin with, over and over again; null for 0
  uint32_t start_groups;    // of kCellGroup cells
  const uint8_t* next;      // data of the same form that will be needed next, or null
};

struct Kernels {
  uint32_t (*accumulate)(const uint16_t* ids, const BFloat16* bounds, uint32_t groups, float weight,
                         float stop, float* acc);
  uint32_t (*scan)(float* acc, uint32_t rows, float cut, uint32_t* found,
                   float* bounds);
  void (*look_up)(const float* weights, uint32_t terms, const float* levels, uint8_t* products);
  void (*bound_cells)(const PlaneSums& input, uint32_t groups, uint16_t* sums, uint16_t* largest);
  uint32_t (*scan_cells)(const uint16_t* sums, uint16_t least, uint16_t most, uint32_t* found);
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
#define KERNEL_TARGET __attribute__((target("avx2,f16c,avx512f,avx512bw")))
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
    {"avx512",
     [] {
       return CPU_HAS("avx2") && CPU_HAS("f16c") && CPU_HAS("avx512f") && CPU_HAS("avx512bw");
     },
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

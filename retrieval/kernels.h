// The inner loops for each instruction set, picked at run time.
//
// One build runs on any x86-64, and on other processors with the portable loops: kernels.inc is
// compiled here several times, each under its own target options, into a table of functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

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

namespace portable {
#define KERNEL_AVX2 0
#define KERNEL_AVX512 0
#include "kernels.inc"
#undef KERNEL_AVX2
#undef KERNEL_AVX512
}  // namespace portable

#if SPARSE_EMBED_X86

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif
namespace avx2 {
#define KERNEL_AVX2 1
#define KERNEL_AVX512 0
#include "kernels.inc"
#undef KERNEL_AVX2
#undef KERNEL_AVX512
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,f16c,avx512f"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,f16c,avx512f")
#endif
namespace avx512 {
#define KERNEL_AVX2 0
#define KERNEL_AVX512 1
#include "kernels.inc"
#undef KERNEL_AVX2
#undef KERNEL_AVX512
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // SPARSE_EMBED_X86

// Whether this machine can run the kernels called `name`.
inline bool kernels_available(const std::string& name) {
#if SPARSE_EMBED_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (name == "avx512") return avx2 && __builtin_cpu_supports("avx512f");
  if (name == "avx2") return avx2;
#endif
  return name == "portable";
}

inline const Kernels& kernels_named(const std::string& name) {
  if (!kernels_available(name)) throw std::invalid_argument("this machine cannot run " + name);
#if SPARSE_EMBED_X86
  if (name == "avx512") return avx512::kKernels;
  if (name == "avx2") return avx2::kKernels;
#endif
  return portable::kKernels;
}

}  // namespace sparse_embed

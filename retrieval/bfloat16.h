// bfloat16 numbers: the upper half of a float32.
#pragma once

#include <cstdint>
#include <cstring>

namespace sparse_embed {

using BFloat16 = uint16_t;

inline float bf16_to_float(BFloat16 code) {
  const uint32_t bits = uint32_t(code) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The smallest bfloat16 that is not less than `value`.
inline BFloat16 bf16_round_up(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return (bits >> 31) ? BFloat16(bits >> 16) : BFloat16((bits + 0xFFFFu) >> 16);
}

// bfloat16 codes as unsigned numbers of the same order, and back.
inline uint16_t bf16_to_ordered(BFloat16 code) { return code ^ (code >> 15 ? 0xFFFF : 0x8000); }
inline BFloat16 ordered_to_bf16(uint16_t order) { return order ^ (order >> 15 ? 0x8000 : 0xFFFF); }

}  // namespace sparse_embed

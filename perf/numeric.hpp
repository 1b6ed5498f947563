// SPDX-License-Identifier: Apache-2.0
// Plain conversions between a row of bf16, fp16 or fp32 and floats: round to nearest, ties to even. Finite values only
// occur in these programs, so infinities are produced by overflow but NaNs never.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "ucclep/ucclep.h"

namespace ucclep::perf {

inline size_t element_bytes(ucclEpDataType_t dtype) {
  switch (dtype) {
    case ucclEpBfloat16:
    case ucclEpFloat16:
      return 2;
    case ucclEpFloat32:
      return 4;
    case ucclEpFloat8e4m3:
      return 1;
    default:
      throw std::invalid_argument("a data type that these programs do not use");
  }
}

inline float from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float from_fp16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  float value;
  if (magnitude < 0x0400) {
    value = static_cast<float>(magnitude) * 0x1p-24f;  // subnormal: units of 2^-24
  } else {
    const uint32_t bias = magnitude < 0x7c00 ? 112u << 23 : 224u << 23;  // the exponent 31 becomes 255
    value = std::bit_cast<float>((magnitude << 13) + bias);
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

inline uint16_t to_fp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t result;
  if (magnitude >= 0x477ff000) {  // 65520 and above round to infinity
    result = 0x7c00;
  } else if (magnitude < 0x38800000) {  // below 2^-14: a multiple of 2^-24
    result = static_cast<uint32_t>(std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p24f));
  } else {
    result = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  }
  return static_cast<uint16_t>(result | ((bits >> 16) & 0x8000));
}

// OCP e4m3fn, saturating at 448.
inline uint8_t to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const float magnitude = std::min(std::abs(value), 448.0f);
  uint32_t result;
  if (magnitude < 0x1p-6f) {  // a multiple of 2^-9
    result = static_cast<uint32_t>(std::nearbyint(magnitude * 0x1p9f));
  } else {
    const uint32_t m = std::bit_cast<uint32_t>(magnitude);
    result = ((m + 0x7ffff + ((m >> 20) & 1)) >> 20) - (120 << 3);
  }
  return static_cast<uint8_t>(result | ((bits >> 24) & 0x80));
}

namespace detail {

template <float (*convert)(uint16_t)>
void decode16(const std::byte* in, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, in + 2 * i, 2);
    out[i] = convert(bits);
  }
}

template <uint16_t (*convert)(float)>
void encode16(const float* in, size_t n, std::byte* out) {
  for (size_t i = 0; i < n; ++i) {
    const uint16_t bits = convert(in[i]);
    std::memcpy(out + 2 * i, &bits, 2);
  }
}

}  // namespace detail

inline void decode_row(ucclEpDataType_t dtype, const std::byte* in, size_t n, float* out) {
  if (dtype == ucclEpBfloat16) return detail::decode16<from_bf16>(in, n, out);
  if (dtype == ucclEpFloat16) return detail::decode16<from_fp16>(in, n, out);
  std::memcpy(out, in, n * sizeof(float));
}

inline void encode_row(ucclEpDataType_t dtype, const float* in, size_t n, std::byte* out) {
  if (dtype == ucclEpBfloat16) return detail::encode16<to_bf16>(in, n, out);
  if (dtype == ucclEpFloat16) return detail::encode16<to_fp16>(in, n, out);
  std::memcpy(out, in, n * sizeof(float));
}

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
// Conversions between fp32 and the narrow formats, in integer arithmetic: the same bits on every target, whatever its
// rounding mode, flush-to-zero setting or conversion instructions do. Narrowing rounds to nearest, ties to even. Where
// a target has instructions that give these bits, its arch header uses them.
#pragma once
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"

namespace ucclep {

UCCLEP_HD constexpr uint32_t float_bits(float value) {
  return __builtin_bit_cast(uint32_t, value);
}
UCCLEP_HD constexpr float float_of(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

namespace numeric {

constexpr uint32_t sign_mask = 0x80000000u;
constexpr uint32_t infinity = 0x7f800000u;
constexpr uint32_t hidden_bit = 0x00800000u;  // of the fp32 significand

// value / 2^shift, rounded to nearest even. value <= 2^32 - 2^shift, 1 <= shift <= 31.
UCCLEP_HD constexpr uint32_t shift_to_even(uint32_t value, uint32_t shift) {
  return (value + (1u << (shift - 1)) - 1 + (value >> shift & 1)) >> shift;
}

// The magnitude (fp32 bits, finite) in a format with `mantissa` bits whose exponent bias is `bias`: subnormals when it
// is small, and past the largest exponent simply the next codes; the caller saturates.
template <uint32_t mantissa, uint32_t bias>
UCCLEP_HD constexpr uint32_t narrow(uint32_t magnitude) {
  constexpr uint32_t dropped = 23 - mantissa;
  constexpr uint32_t rebias = 127 - bias;  // of the exponent field; a field of rebias or less becomes subnormal
  const uint32_t exponent = magnitude >> 23;
  if (exponent > rebias) return shift_to_even(magnitude - (rebias << 23), dropped);
  const uint32_t shift = dropped + 1 + (rebias - exponent);
  if (shift > 24) return 0;  // below half of the smallest subnormal
  return shift_to_even((magnitude & (hidden_bit - 1)) | hidden_bit, shift);
}

}  // namespace numeric

UCCLEP_HD constexpr float from_bf16(uint16_t value) {
  return float_of(uint32_t{value} << 16);
}

UCCLEP_HD constexpr uint16_t to_bf16(float value) {
  const uint32_t bits = float_bits(value);
  const bool nan = (bits & ~numeric::sign_mask) > numeric::infinity;
  return static_cast<uint16_t>(nan ? bits >> 16 | 0x40 : numeric::shift_to_even(bits, 16));
}

UCCLEP_HD constexpr float from_fp16(uint16_t value) {
  const uint32_t sign = (value & 0x8000u) << 16;
  const uint32_t magnitude = value & 0x7fffu;
  if (magnitude >= 0x7c00) return float_of(sign | numeric::infinity | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x0400) return float_of(sign | ((magnitude << 13) + (112u << 23)));
  // A multiple of 2^-24 below 2^-14: the integer is exact in fp32, and so is the product.
  const uint32_t subnormal = float_bits(static_cast<float>(magnitude) * 0x1p-24f);
  return float_of(sign | subnormal);
}

UCCLEP_HD constexpr uint16_t to_fp16(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t magnitude = bits & ~numeric::sign_mask;
  const uint32_t sign = bits >> 16 & 0x8000;
  if (magnitude > numeric::infinity) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00);  // 2^16 and more
  return static_cast<uint16_t>(sign | numeric::narrow<10, 15>(magnitude));
}

// OCP e4m3fn: no infinities, the largest value is 448, a NaN is 0x7f with the sign.
UCCLEP_HD constexpr float from_e4m3(uint8_t value) {
  const uint32_t sign = (value & 0x80u) << 24;
  const uint32_t magnitude = value & 0x7fu;
  if (magnitude == 0x7f) return float_of(sign | 0x7fc00000u);
  if (magnitude >= 0x08) return float_of(sign | ((magnitude << 20) + (120u << 23)));
  const uint32_t subnormal = float_bits(static_cast<float>(magnitude) * 0x1p-9f);
  return float_of(sign | subnormal);
}

// Saturating: what is larger than 448, infinities too, becomes 448.
UCCLEP_HD constexpr uint8_t to_e4m3(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t magnitude = bits & ~numeric::sign_mask;
  const uint32_t sign = bits >> 24 & 0x80;
  if (magnitude > numeric::infinity) return static_cast<uint8_t>(sign | 0x7f);
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7e);  // 448
  return static_cast<uint8_t>(sign | numeric::narrow<3, 7>(magnitude));
}

// e8m0 is a biased power of two: 2^(value - 127), 255 is NaN.
UCCLEP_HD constexpr float from_e8m0(uint8_t value) {
  if (value == 255) return float_of(0x7fc00000u);
  return float_of(value == 0 ? 0x00400000u : uint32_t{value} << 23);
}

// The smallest power of two that is not less than value > 0. What is larger than 2^127, infinity and NaN give 255.
UCCLEP_HD constexpr uint8_t to_e8m0_up(float value) {
  const uint32_t bits = float_bits(value) & ~numeric::sign_mask;
  if (bits <= 0x00400000u) return 0;  // 2^-127 is subnormal in fp32
  const uint32_t exponent = (bits + numeric::hidden_bit - 1) >> 23;
  return static_cast<uint8_t>(exponent < 255 ? exponent : 255);
}

}  // namespace ucclep

// Narrowing to fp8 and bf16 by arithmetic, for targets without an instruction that gives the same bits.
#if defined(__HIP__) || !defined(__CUDACC__)
namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_FN uint32_t to_e4m3_pair(float low, float high) {
  return to_e4m3(low) | uint32_t{to_e4m3(high)} << 8;
}
UCCLEP_FN uint32_t to_bf16_pair(float low, float high) {
  return to_bf16(low) | uint32_t{to_bf16(high)} << 16;
}

}  // namespace UCCLEP_SIMT_NAMESPACE
#endif

// SPDX-License-Identifier: Apache-2.0
// 16 bytes of a row as fp32 numbers, for the sums of combine. A product is rounded before it is added (add_rounded,
// multiply_rounded), whatever flags a kernel is compiled with. A NaN stays one; sign and payload are the target's, as
// with any arithmetic.
#pragma once
#include <cstdint>

#include "ucclep/device/arch/numeric.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

// The element types of combine.
struct Bf16 {};
struct Fp16 {};
struct Fp32 {};
// As the C API says it.
template <class Element>
inline constexpr ucclEpDataType_t dtype_of = ucclEpFloat32;
template <>
inline constexpr ucclEpDataType_t dtype_of<Bf16> = ucclEpBfloat16;
template <>
inline constexpr ucclEpDataType_t dtype_of<Fp16> = ucclEpFloat16;

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {

// Two elements, as they lie in a word.
struct Pair {
  float low, high;
};

UCCLEP_FN Pair widen(Bf16, uint32_t pair) {
  return {float_of(pair << 16), float_of(pair & 0xffff0000)};
}
UCCLEP_FN Pair widen(Fp16, uint32_t pair) {
  return {widen_fp16(static_cast<uint16_t>(pair)), widen_fp16(static_cast<uint16_t>(pair >> 16))};
}
UCCLEP_FN uint32_t narrow(Bf16, Pair x) {
  return to_bf16_pair(x.low, x.high);
}
UCCLEP_FN uint32_t narrow(Fp16, Pair x) {
  return to_fp16_pair(x.low, x.high);
}

template <class Element>
struct Vector {
  static constexpr uint32_t size = 8;
  float x[size];

  static UCCLEP_FN Vector unpack(vec16 v) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    Vector out;
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const Pair pair = widen(Element{}, words[i]);
      out.x[2 * i] = pair.low;
      out.x[2 * i + 1] = pair.high;
    }
    return out;
  }
  UCCLEP_FN vec16 pack() const {
    uint32_t words[4];
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < 4; ++i) words[i] = narrow(Element{}, Pair{x[2 * i], x[2 * i + 1]});
    return {words[0], words[1], words[2], words[3]};
  }
  UCCLEP_FN void add(const Vector& other) {
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < size; ++i) x[i] = add_rounded(x[i], other.x[i]);
  }
  UCCLEP_FN void scale(float factor) {
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < size; ++i) x[i] = multiply_rounded(x[i], factor);
  }
};

template <>
struct Vector<Fp32> {
  static constexpr uint32_t size = 4;
  float x[size];

  static UCCLEP_FN Vector unpack(vec16 v) { return {{float_of(v.x), float_of(v.y), float_of(v.z), float_of(v.w)}}; }
  UCCLEP_FN vec16 pack() const { return {float_bits(x[0]), float_bits(x[1]), float_bits(x[2]), float_bits(x[3])}; }
  UCCLEP_FN void add(const Vector& other) {
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < size; ++i) x[i] = add_rounded(x[i], other.x[i]);
  }
  UCCLEP_FN void scale(float factor) {
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < size; ++i) x[i] = multiply_rounded(x[i], factor);
  }
};

// A sum that starts with its first term; of words of 8 bytes, a half of it.
template <class Element>
struct TermSum {
  Vector<Element> sum{};
  bool begun = false;

  static UCCLEP_FN Vector<Element> unpack(uint64_t bits) {
    return Vector<Element>::unpack({static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32), 0, 0});
  }
  UCCLEP_FN void add(const Vector<Element>& term) {
    if (begun) {
      sum.add(term);
    } else {
      sum = term;
    }
    begun = true;
  }
  UCCLEP_FN uint64_t packed() const {
    const vec16 words = sum.pack();
    return words.x | uint64_t{words.y} << 32;
  }
};

// body(element) with the type that combine sums.
template <class Body>
UCCLEP_FN auto with_element(ucclEpDataType_t dtype, Body&& body) {
  if (dtype == ucclEpBfloat16) return body(Bf16{});
  if (dtype == ucclEpFloat16) return body(Fp16{});
  return body(Fp32{});
}

}  // namespace UCCLEP_SIMT_NAMESPACE

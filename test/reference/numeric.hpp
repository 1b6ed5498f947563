// SPDX-License-Identifier: Apache-2.0
// Number formats by their definition: every value is found by scaling and rounding a double, never by bit tricks. It is
// written a second time on purpose; the library's own conversions are checked against it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ucclep/ucclep.h"

namespace ucclep::reference {

// A binary format with a sign, `exponent` bits of exponent and `mantissa` bits below the leading one.
struct Format {
  int exponent;
  int mantissa;
  bool has_infinity;  // false: e4m3fn, which saturates
};

inline constexpr Format bf16{8, 7, true};
inline constexpr Format fp16{5, 10, true};
inline constexpr Format e4m3{4, 3, false};

// The nearest value of the format, ties to the even mantissa.
uint32_t encode(const Format& format, double value);
double decode(const Format& format, uint32_t bits);

// Bytes of one storage element.
size_t element_bytes(ucclEpDataType_t dtype);

// bf16, fp16 and fp32 elements in memory.
float load(ucclEpDataType_t dtype, const void* element);
void store(ucclEpDataType_t dtype, void* element, float value);
// The value after it was stored and loaded again.
float rounded(ucclEpDataType_t dtype, float value);

// UCCLEP_QUANT_FP8_128 of 128 (or fewer, at the end of a row) values.
struct Quantized {
  std::vector<uint8_t> values;  // e4m3
  float scale;
  uint8_t exponent;  // e8m0 of the scale; only with round_scale
};
Quantized quantize_block(std::span<const float> values, bool round_scale);

}  // namespace ucclep::reference

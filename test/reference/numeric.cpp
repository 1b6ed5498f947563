// SPDX-License-Identifier: Apache-2.0
#include "reference/numeric.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace ucclep::reference {
namespace {

// Of a normal number. Tests ask for millions of them.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

int bias_of(const Format& format) {
  return (1 << (format.exponent - 1)) - 1;
}

// Without infinities the highest exponent holds numbers too, and only the highest mantissa there is NaN.
double largest(const Format& format) {
  const int highest = (1 << format.exponent) - 1 - bias_of(format);
  if (format.has_infinity) return (2.0 - power_of_two(-format.mantissa)) * power_of_two(highest - 1);
  return (2.0 - 2 * power_of_two(-format.mantissa)) * power_of_two(highest);
}

}  // namespace

uint32_t encode(const Format& format, double value) {
  const uint32_t sign = std::signbit(value) ? 1u << (format.exponent + format.mantissa) : 0;
  const uint32_t top = ((1u << format.exponent) - 1) << format.mantissa;
  if (std::isnan(value))
    return sign | top | (format.has_infinity ? 1u << (format.mantissa - 1) : (1u << format.mantissa) - 1);
  double magnitude = std::fabs(value);
  if (!format.has_infinity) magnitude = std::min(magnitude, largest(format));
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | top;

  const int lowest = 1 - bias_of(format);  // subnormal numbers have its quantum
  const int exponent = std::max(std::ilogb(magnitude), lowest);
  const double quantum = power_of_two(exponent - format.mantissa);
  // The division is exact; nearbyint rounds ties to even. A carry into the next exponent is right as it stands.
  const auto steps = static_cast<uint32_t>(std::nearbyint(magnitude / quantum));
  if (steps * quantum > largest(format)) return sign | top;
  const uint32_t implicit = 1u << format.mantissa;
  if (steps < implicit) return sign | steps;
  return sign | ((static_cast<uint32_t>(exponent - lowest + 1) << format.mantissa) + (steps - implicit));
}

double decode(const Format& format, uint32_t bits) {
  const uint32_t fraction = bits & ((1u << format.mantissa) - 1);
  const uint32_t exponent = bits >> format.mantissa & ((1u << format.exponent) - 1);
  const bool negative = bits >> (format.exponent + format.mantissa) & 1;
  const bool top = exponent == (1u << format.exponent) - 1;
  double magnitude;
  if (top && format.has_infinity) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (top && fraction == (1u << format.mantissa) - 1) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else {
    const double leading = exponent == 0 ? 0.0 : 1.0;
    const int power = std::max<int>(static_cast<int>(exponent), 1) - bias_of(format);
    magnitude = (leading + static_cast<double>(fraction) * power_of_two(-format.mantissa)) * power_of_two(power);
  }
  return negative ? -magnitude : magnitude;
}

size_t element_bytes(ucclEpDataType_t dtype) {
  switch (dtype) {
    case ucclEpBfloat16:
    case ucclEpFloat16:
      return 2;
    case ucclEpFloat32:
    case ucclEpInt32:
      return 4;
    case ucclEpInt64:
      return 8;
    case ucclEpFloat8e4m3:
    case ucclEpFloat8e5m2:
    case ucclEpFloat8e8m0:
    case ucclEpFloat4e2m1x2:
    case ucclEpUint8:
      return 1;
    case ucclEpNoDataType:
      break;
  }
  throw std::invalid_argument("element_bytes: no such dtype");
}

float load(ucclEpDataType_t dtype, const void* element) {
  if (dtype == ucclEpFloat32) {
    float value;
    std::memcpy(&value, element, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, element, sizeof(bits));
  return static_cast<float>(decode(dtype == ucclEpBfloat16 ? bf16 : fp16, bits));
}

void store(ucclEpDataType_t dtype, void* element, float value) {
  if (dtype == ucclEpFloat32) {
    std::memcpy(element, &value, sizeof(value));
    return;
  }
  const auto bits = static_cast<uint16_t>(encode(dtype == ucclEpBfloat16 ? bf16 : fp16, value));
  std::memcpy(element, &bits, sizeof(bits));
}

float rounded(ucclEpDataType_t dtype, float value) {
  uint8_t element[4];
  store(dtype, element, value);
  return load(dtype, element);
}

Quantized quantize_block(std::span<const float> values, bool round_scale) {
  float largest_magnitude = 1e-4f;
  for (const float value : values) largest_magnitude = std::max(largest_magnitude, std::fabs(value));
  Quantized result{{}, largest_magnitude / 448.0f, 0};
  if (round_scale) {
    int power = -126;
    while (std::ldexp(1.0f, power) < result.scale) ++power;
    result.scale = std::ldexp(1.0f, power);
    result.exponent = static_cast<uint8_t>(power + 127);
  }
  const float factor = 448.0f / largest_magnitude;
  for (const float value : values) {
    const float scaled = round_scale ? value / result.scale : value * factor;
    result.values.push_back(static_cast<uint8_t>(encode(e4m3, scaled)));
  }
  return result;
}

}  // namespace ucclep::reference

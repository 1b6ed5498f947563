// SPDX-License-Identifier: Apache-2.0
// The conversions against a plain search for the nearest representable value, in double.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "ucclep/device/arch/numeric.hpp"

namespace {

using namespace ucclep;

// A narrow binary format by its definition. Codes of magnitudes are in increasing order of value.
struct Format {
  int mantissa_bits;
  int bias;
  uint32_t largest;   // code of the largest finite magnitude
  uint32_t overflow;  // code of what rounds beyond it
  uint32_t sign;

  double value(uint32_t code) const {
    const int exponent = static_cast<int>(code >> mantissa_bits);
    const double fraction = std::ldexp(code & ((1u << mantissa_bits) - 1), -mantissa_bits);
    return exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  }

  uint32_t nearest(double x) const {
    const double magnitude = std::fabs(x);
    uint32_t low = 0;
    uint32_t high = largest + 1;  // read as a value too: the first one that does not exist
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (value(middle) <= magnitude ? low : high) = middle;
    }
    const double below = magnitude - value(low);
    const double above = value(low + 1) - magnitude;
    if (above < below || (above == below && low % 2 == 1)) ++low;
    return (low > largest ? overflow : low) | (std::signbit(x) ? sign : 0);
  }
};

const Format bf16{7, 127, 0x7f7f, 0x7f80, 0x8000};
const Format fp16{10, 15, 0x7bff, 0x7c00, 0x8000};
const Format e4m3{3, 7, 0x7e, 0x7e, 0x80};

// Every representable value, every midpoint of neighbours, and the floats next to both.
std::vector<float> edges(const Format& format) {
  std::vector<float> values;
  const float huge = std::numeric_limits<float>::infinity();
  for (uint32_t code = 0; code <= format.largest; ++code) {
    const double midpoint = (format.value(code) + format.value(code + 1)) / 2;
    for (double exact : {format.value(code), midpoint}) {
      const float x = static_cast<float>(exact);
      for (float y : {x, std::nextafterf(x, 0.0f), std::nextafterf(x, huge)}) {
        if (std::isfinite(y)) values.insert(values.end(), {y, -y});
      }
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const float x = float_of(random());
    if (std::isfinite(x)) values.push_back(x);
  }
  return values;
}

template <class Convert>
void check_rounding(const Format& format, Convert convert) {
  size_t wrong = 0;
  for (float x : edges(format)) {
    if (convert(x) != format.nearest(x) && wrong++ == 0) {
      UNSCOPED_INFO("first wrong: " << x << " gives " << +convert(x) << ", nearest is " << format.nearest(x));
    }
  }
  CHECK(wrong == 0);
}

bool same_bits(float a, double b) {
  return float_bits(a) == float_bits(static_cast<float>(b));
}

TEST_CASE("bf16: every code converts to fp32 and back", "[numeric]") {
  size_t wrong = 0;
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const uint32_t magnitude = code & 0x7fff;
    const float x = from_bf16(static_cast<uint16_t>(code));
    if (magnitude > 0x7f80) {
      wrong += !std::isnan(x) || to_bf16(x) != (code | 0x40);
    } else {
      const double expected = magnitude == 0x7f80 ? HUGE_VAL : bf16.value(magnitude);
      wrong += !same_bits(x, code & 0x8000 ? -expected : expected) || to_bf16(x) != code;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("fp16: every code converts to fp32 and back", "[numeric]") {
  size_t wrong = 0;
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const uint32_t magnitude = code & 0x7fff;
    const float x = from_fp16(static_cast<uint16_t>(code));
    if (magnitude > 0x7c00) {
      wrong += !std::isnan(x) || to_fp16(x) != (code | 0x200);
    } else {
      const double expected = magnitude == 0x7c00 ? HUGE_VAL : fp16.value(magnitude);
      wrong += !same_bits(x, code & 0x8000 ? -expected : expected) || to_fp16(x) != code;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("e4m3: every code converts to fp32 and back", "[numeric]") {
  for (uint32_t code = 0; code < 0x100; ++code) {
    const uint32_t magnitude = code & 0x7f;
    const float x = from_e4m3(static_cast<uint8_t>(code));
    CAPTURE(code, x);
    if (magnitude == 0x7f) {
      CHECK(std::isnan(x));
    } else {
      CHECK(same_bits(x, code & 0x80 ? -e4m3.value(magnitude) : e4m3.value(magnitude)));
    }
    CHECK(to_e4m3(x) == code);
  }
}

TEST_CASE("bf16: rounds to nearest even", "[numeric]") {
  check_rounding(bf16, to_bf16);
}
TEST_CASE("fp16: rounds to nearest even, subnormals included", "[numeric]") {
  check_rounding(fp16, to_fp16);
}
TEST_CASE("e4m3: rounds to nearest even and saturates at 448", "[numeric]") {
  check_rounding(e4m3, to_e4m3);
}

TEST_CASE("narrow formats: infinities and NaNs", "[numeric]") {
  const float huge = std::numeric_limits<float>::infinity();
  CHECK(to_bf16(huge) == 0x7f80);
  CHECK(to_bf16(-huge) == 0xff80);
  CHECK(to_fp16(huge) == 0x7c00);
  CHECK(to_fp16(-huge) == 0xfc00);
  CHECK(to_e4m3(huge) == 0x7e);
  CHECK(to_e4m3(-huge) == 0xfe);
  // The payload's upper bits are zero here: a plain truncation would make an infinity of it.
  for (uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu}) {
    CAPTURE(bits);
    const uint32_t negative = bits >> 31;
    CHECK((to_bf16(float_of(bits)) & 0x7fff) > 0x7f80);
    CHECK((to_fp16(float_of(bits)) & 0x7fff) > 0x7c00);
    CHECK(to_e4m3(float_of(bits)) == (negative << 7 | 0x7f));
    CHECK(to_bf16(float_of(bits)) >> 15 == negative);
    CHECK(to_fp16(float_of(bits)) >> 15 == negative);
  }
}

TEST_CASE("e8m0: the smallest power of two that is not less", "[numeric]") {
  for (int code = 0; code < 255; ++code) {
    CAPTURE(code);
    const float power = static_cast<float>(std::ldexp(1.0, code - 127));
    CHECK(same_bits(from_e8m0(static_cast<uint8_t>(code)), power));
    CHECK(to_e8m0_up(power) == code);
    CHECK(to_e8m0_up(std::nextafterf(power, 0.0f)) == code);
    CHECK(to_e8m0_up(std::nextafterf(power, HUGE_VALF)) == code + 1);
    CHECK(to_e8m0_up(power * 1.5f) == code + 1);
  }
  CHECK(std::isnan(from_e8m0(255)));
  CHECK(to_e8m0_up(HUGE_VALF) == 255);
  CHECK(to_e8m0_up(std::numeric_limits<float>::quiet_NaN()) == 255);
}

static_assert(to_bf16(1.0f) == 0x3f80 && to_fp16(1.0f) == 0x3c00 && to_e4m3(1.0f) == 0x38 && to_e8m0_up(1.0f) == 127,
              "usable in constant expressions");

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// The sums of combine in a program that is compiled with fused multiplication and addition: each product is rounded
// all the same.
#include <catch2/catch.hpp>

#include "ucclep/device/simt/element.hpp"

namespace ucclep::test {
namespace {

bool cpu_fuses() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

// x * x is 1 + 2^-11 + 2^-24, and rounds to 1 + 2^-11. The compiler does not know the values.
volatile float of_x = 1 + 0x1p-12f, of_minus_square = -(1 + 0x1p-11f);

TEST_CASE("rounding: the program was compiled to fuse, or this test shows nothing") {
  if (!cpu_fuses()) return;
  const float x = of_x, minus_square = of_minus_square;
  CHECK(x * x + minus_square == 0x1p-24f);
}

TEST_CASE("rounding: a product is rounded before it is added") {
  if (!cpu_fuses()) return;
  const float x = of_x, minus_square = of_minus_square;
  Vector<Fp32> sum{{x, x, x, x}};
  sum.scale(x);
  sum.add(Vector<Fp32>{{minus_square, minus_square, minus_square, minus_square}});
  for (const float value : sum.x) CHECK(value == 0);
}

}  // namespace
}  // namespace ucclep::test

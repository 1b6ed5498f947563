// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "ucclep/device/simt/divisor.hpp"

using ucclep::Divisor;

TEST_CASE("divisor: quotients are exact as far as is promised") {
  const auto exact = [](uint32_t value, uint64_t number) {
    return Divisor(value).quotient(static_cast<uint32_t>(number)) == number / value;
  };
  for (uint32_t value = 1; value <= 65535; ++value) {
    const uint64_t most = 0xffffffffu / value - 1;  // that is promised
    // A quotient that is wrong is so first where a multiple begins, or just before.
    for (const uint64_t number : {uint64_t{0}, uint64_t{value} - 1, uint64_t{value}, uint64_t{65534} / value * value,
                                  most / value * value, most - 1, most}) {
      if (number > most || (exact(value, number) && (number == 0 || exact(value, number - 1)))) continue;
      FAIL(number << " / " << value);
    }
  }
}

TEST_CASE("divisor: of nothing one can be made, of a handle that has no routing yet") {
  volatile uint32_t nothing = 0;  // not known to the compiler, which would not divide by it
  CHECK(Divisor(nothing).value == 0);
}

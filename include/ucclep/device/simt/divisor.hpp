// SPDX-License-Identifier: Apache-2.0
// A number that kernels divide by. The host knows it before, so they multiply: a division by what the compiler does not
// know is some 20 instructions on a GPU, most of which wait for the one before.
#pragma once
#include <cstdint>

#include "ucclep/device/arch/qualifiers.hpp"

namespace ucclep {

struct Divisor {
  uint32_t value = 0, inverse = 0;

  constexpr Divisor() = default;
  UCCLEP_HD constexpr explicit Divisor(uint32_t value) : value(value), inverse(value == 0 ? 0 : 0xffffffffu / value) {}

  UCCLEP_HD constexpr operator uint32_t() const { return value; }

  // number / value. Exact while (number + 1) * value is less than 2^32 (after A. D. Robison, N-bit unsigned division
  // via N-bit multiply-add, 2005): for numbers below 65535 and values of 16 bits, always.
  UCCLEP_HD constexpr uint32_t quotient(uint32_t number) const {
    return static_cast<uint32_t>(uint64_t{inverse} * (number + 1) >> 32);
  }
};

}  // namespace ucclep

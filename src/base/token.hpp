// SPDX-License-Identifier: Apache-2.0
// 128 random bits: secrets, names that nobody guesses, identities.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <string>

namespace ucclep {

struct Token {
  std::array<uint8_t, 16> bytes{};

  static Token random();  // from the kernel's generator
  std::string hex() const;
  auto operator<=>(const Token&) const = default;
};

// Takes the same time wherever the first difference is.
bool same_secret(const Token& a, const Token& b) noexcept;

}  // namespace ucclep

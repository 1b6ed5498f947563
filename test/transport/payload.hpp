// SPDX-License-Identifier: Apache-2.0
// Bytes that tell who sent them, and as which message: a byte of another message, or of another place of the same one,
// differs.
#pragma once
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "transport/team.hpp"

namespace ucclep::test {

inline std::byte payload_byte(uint32_t message, uint64_t i) {
  uint64_t x = (uint64_t{message} << 32 | (i & 0xffffffff)) * 0x9e3779b97f4a7c15;
  return static_cast<std::byte>(x >> 56);
}

inline void fill_payload(std::byte* to, uint32_t message, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) to[i] = payload_byte(message, i);
}

inline void check_payload(const std::byte* at, uint32_t message, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (at[i] == payload_byte(message, i)) continue;
    throw Failure(fmt::format("message {:#x}: byte {} of {} is {:#x}, not {:#x}", message, i, bytes,
                              static_cast<unsigned>(at[i]), static_cast<unsigned>(payload_byte(message, i))));
  }
}

}  // namespace ucclep::test

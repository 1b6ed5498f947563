// SPDX-License-Identifier: Apache-2.0
// Numbers that follow from a seed on every machine, which those of the standard library's distributions do not.
#pragma once
#include <cstdint>

namespace ucclep::transport {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t up_to(uint64_t max) noexcept { return max == 0 ? 0 : next() % (max + 1); }
  bool percent(uint64_t of_cases) noexcept { return next() % 100 < of_cases; }

 private:
  uint64_t next() noexcept {  // splitmix64
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }
  uint64_t state_;
};

}  // namespace ucclep::transport

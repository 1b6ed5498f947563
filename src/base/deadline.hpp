// SPDX-License-Identifier: Apache-2.0
// The moment at which a wait gives up. Every wait of the library has one.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>

namespace ucclep {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after_ms(int64_t ms) { return Deadline(Clock::now() + std::chrono::milliseconds(ms), ms); }

  Clock::time_point at() const { return at_; }
  bool expired() const { return Clock::now() >= at_; }
  // Rounded up, so that a wait of this length does not end before the deadline; 0 once it has passed.
  int64_t remaining_ms() const {
    return std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count());
  }
  // What was granted at the beginning: for error messages.
  int64_t total_ms() const { return total_ms_; }
  // For poll and epoll_wait, which take an int.
  int poll_ms() const { return static_cast<int>(std::min<int64_t>(remaining_ms(), 1'000'000'000)); }

 private:
  Deadline(Clock::time_point at, int64_t total_ms) : at_(at), total_ms_(total_ms) {}
  Clock::time_point at_;
  int64_t total_ms_;
};

}  // namespace ucclep

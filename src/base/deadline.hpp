// SPDX-License-Identifier: Apache-2.0
// The moment at which a wait gives up. Every wait of the library has one, and a call of the API makes one for all of
// its waits: it ends at that moment, or within the grace that follows.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>

namespace ucclep {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after_ms(int64_t ms) { return Deadline(Clock::now() + duration(ms), ms); }

  // What a call may still do after its deadline, in all: hear who is missing, read a record, say goodbye.
  static constexpr int64_t grace_ms = 1000;
  Deadline with_grace() const { return Deadline(at_ + duration(grace_ms), total_ms_); }
  // Of a step after which another one needs time: earlier by so much, or by a quarter of what is left.
  Deadline leaving_ms(int64_t ms) const {
    return Deadline(at_ - duration(std::min(ms, remaining_ms() / 4)), total_ms_);
  }
  friend Deadline earlier(const Deadline& a, const Deadline& b) { return a.at_ < b.at_ ? a : b; }

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
  // The clock counts nanoseconds in 64 bits: beyond some centuries the sum would wrap.
  static std::chrono::milliseconds duration(int64_t ms) {
    constexpr int64_t longest_ms = int64_t{1} << 40;
    return std::chrono::milliseconds(std::min(ms, longest_ms));
  }
  Clock::time_point at_;
  int64_t total_ms_;
};

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// How a proxy thread waits for work. It spins, then yields, then sleeps for a sixteenth of the time that it has been
// idle, at most a millisecond. While an operation of its own is under way, it yields only every few rounds, sleeps only
// after 20 ms, and for at most 50 us. So a command that comes after a pause waits at most a sixteenth of the pause, and
// an idle thread costs next to nothing. Nobody wakes the thread: lanes of a GPU could not.
#pragma once
#include <chrono>
#include <cstdint>

#include "proxy/statistics.hpp"

namespace ucclep::proxy {

class IdleBackoff {
 public:
  using Clock = std::chrono::steady_clock;

  // Call it after a round in which something happened.
  void reset() { rounds_ = 0; }
  // Call it after a round in which nothing happened.
  void wait(bool under_way);

  uint64_t yields() const { return yields_.get(); }
  uint64_t sleeps() const { return sleeps_.get(); }

 private:
  uint32_t rounds_ = 0;  // without work
  Clock::time_point since_;
  Counter yields_, sleeps_;
};

}  // namespace ucclep::proxy

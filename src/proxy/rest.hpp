// SPDX-License-Identifier: Apache-2.0
// How a proxy thread waits for work: it spins, then gives way, then sleeps for a sixteenth of the time for which
// nothing has come, at most a millisecond. While something of its own is under way it gives way after several rounds
// only, for 20 ms before it sleeps, for at most 50 us. So what comes after a pause waits for a sixteenth of the pause
// at most, and a thread that has nothing to do costs next to nothing. Nobody wakes it: lanes of a GPU could not.
#pragma once
#include <chrono>
#include <cstdint>

#include "proxy/statistics.hpp"

namespace ucclep::proxy {

class Rest {
 public:
  using Clock = std::chrono::steady_clock;

  // After a round in which something happened.
  void over() { rounds_ = 0; }
  // After one in which nothing did.
  void rest(bool under_way);

  uint64_t yields() const { return yields_.get(); }
  uint64_t sleeps() const { return sleeps_.get(); }

 private:
  uint32_t rounds_ = 0;  // without work
  Clock::time_point since_;
  Counter yields_, sleeps_;
};

}  // namespace ucclep::proxy

// SPDX-License-Identifier: Apache-2.0
#include "proxy/idle_backoff.hpp"

#include <algorithm>
#include <thread>

namespace ucclep::proxy {
namespace {

constexpr uint32_t spins = 256;
// A look costs less than giving way, and what is under way will not be long.
constexpr uint32_t rounds_between_yields = 16;
// It ends at the pace of a wire, or, in a transport of tests, of polls. It has stood still where nothing has ended for
// so long.
constexpr std::chrono::microseconds before_sleep{500}, before_sleep_under_way{20000};
constexpr std::chrono::microseconds longest_sleep{1000}, longest_under_way{50};

}  // namespace

void IdleBackoff::wait(bool under_way) {
  if (++rounds_ <= spins) return;
  if (rounds_ == spins + 1) since_ = Clock::now();
  if (under_way && rounds_ % rounds_between_yields != 0) return;
  const auto idle = Clock::now() - since_;
  if (idle < (under_way ? before_sleep_under_way : before_sleep)) {
    yields_.add(1);
    std::this_thread::yield();
  } else {
    rounds_ = spins + 1;
    sleeps_.add(1);
    std::this_thread::sleep_for(std::min<Clock::duration>(idle / 16, under_way ? longest_under_way : longest_sleep));
  }
}

}  // namespace ucclep::proxy

// SPDX-License-Identifier: Apache-2.0
#include "host/proxy/rest.hpp"

#include <algorithm>
#include <thread>

namespace ucclep::proxy {
namespace {

constexpr uint32_t spins = 256;
constexpr std::chrono::microseconds before_sleep{500}, longest_sleep{1000}, longest_under_way{50};

}  // namespace

void Rest::rest(bool under_way) {
  if (++rounds_ <= spins) return;
  const Clock::time_point now = Clock::now();
  if (rounds_ == spins + 1) since_ = now;
  const auto idle = now - since_;
  if (idle < before_sleep) {
    yields_.add(1);
    std::this_thread::yield();
  } else {
    rounds_ = std::min(rounds_, spins + 2);
    sleeps_.add(1);
    std::this_thread::sleep_for(std::min<Clock::duration>(idle / 16, under_way ? longest_under_way : longest_sleep));
  }
}

}  // namespace ucclep::proxy

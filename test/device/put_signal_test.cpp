// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep {
namespace {

void arrives(unsigned wave, const HostDeviceConfig& config = {}) {
  for (unsigned count : {2u, 3u, 8u}) {
    INFO(count << " ranks");
    const auto counts = test::exchange_rows("put_signal", wave, count, config);
    CHECK(counts.wrong == 0);
    CHECK(counts.timed_out == 0);
  }
}

TEST_CASE("put_signal: data arrives with its signal, wave 32", "[put_signal]") {
  arrives(32);
}
TEST_CASE("put_signal: data arrives with its signal, wave 64", "[put_signal]") {
  arrives(64);
}

TEST_CASE("put_signal: data arrives whatever the schedule, in all modes", "[put_signal]") {
  for (uint64_t seed = 1; seed <= test::seeds(); ++seed) {
    for (unsigned wave : {32u, 64u}) {
      arrives(wave, {.seed = seed});
      arrives(wave, {.seed = seed, .residency = 2, .lockstep = true, .deferred = true, .watchdog_ms = 20'000});
    }
  }
}

}  // namespace
}  // namespace ucclep

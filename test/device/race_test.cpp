// SPDX-License-Identifier: Apache-2.0
// ThreadSanitizer's build only: it must report what is not ordered, and nothing else.
#if defined(UCCLEP_TSAN)
#include <catch2/catch.hpp>

#include "exchange.hpp"
#include "put_signal.hpp"
#include "support/race.hpp"
#include "trial.hpp"

namespace ucclep {
namespace {

using test::is_reported;

TEST_CASE("race: a release weakened to relaxed is reported", "[race]") {
  is_reported("broken: relaxed signal w32");
  is_reported("broken: relaxed signal w64");
}

TEST_CASE("race: a barrier left out before a signal is reported", "[race]") {
  is_reported("broken: no join");
}

TEST_CASE("race: a bulk copy that is not waited for is reported", "[race]") {
  is_reported("broken: no wait_loaded");
  is_reported("broken: no wait_read");
  is_reported("broken: no wait_written");
}

TEST_CASE("race: shared memory handed to a bulk copy without a fence is reported", "[race]") {
  is_reported("broken: no fence");
}

TEST_CASE("race: a bulk store into a slot whose reuse was acquired without a fence is reported", "[race]") {
  is_reported("broken: no reuse fence");
}

TEST_CASE("broken: relaxed signal w32", "[.broken]") {
  test::exchange_rows("trial_relaxed_signal", 32, 2);
}
TEST_CASE("broken: relaxed signal w64", "[.broken]") {
  test::exchange_rows("trial_relaxed_signal", 64, 2);
}
TEST_CASE("broken: no join", "[.broken]") {
  test::exchange_rows("trial_no_join", 32, 2);
}

void relay(const char* kernel) {
  test::Trial trial({.workers = 2, .seed = 1, .deferred = true});
  trial.args.rounds = 5;
  trial.args.bytes = 512;
  trial.run(kernel, {2, 32, 1024});
}
TEST_CASE("broken: no wait_loaded", "[.broken]") {
  relay("trial_relay_without_wait_loaded");
}
TEST_CASE("broken: no wait_read", "[.broken]") {
  relay("trial_relay_without_wait_read");
}
TEST_CASE("broken: no wait_written", "[.broken]") {
  relay("trial_relay_without_wait_written");
}
TEST_CASE("broken: no fence", "[.broken]") {
  relay("trial_relay_without_fence");
}
TEST_CASE("broken: no reuse fence", "[.broken]") {
  relay("trial_relay_without_reuse_fence");
}

}  // namespace
}  // namespace ucclep
#endif

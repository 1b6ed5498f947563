// SPDX-License-Identifier: Apache-2.0
// ThreadSanitizer's build only: it must report what is not ordered, and nothing else. The broken kernels run in a
// process of their own, since a report is an exit code.
#if defined(UCCLEP_TSAN)
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>

#include "device/kernels/put_signal.hpp"
#include "exchange.hpp"
#include "trial.hpp"

namespace ucclep {
namespace {

std::string output_of(const std::string& hidden_case) {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  REQUIRE(length > 0);
  const std::string command = "TSAN_OPTIONS=exitcode=66 UCCLEP_TEST_REPORT= '" + std::string(path.data()) + "' '" +
                              hidden_case + "' 2>&1; echo exit $?";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string output;
  std::array<char, 4096> part{};
  while (fgets(part.data(), part.size(), pipe) != nullptr) output += part.data();
  pclose(pipe);
  return output;
}

void is_reported(const std::string& hidden_case) {
  INFO(hidden_case);
  const std::string output = output_of(hidden_case);
  CHECK_THAT(output, Catch::Matchers::Contains("WARNING: ThreadSanitizer: data race"));
  CHECK_THAT(output, Catch::Matchers::Contains("exit 66"));
}

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

}  // namespace
}  // namespace ucclep
#endif

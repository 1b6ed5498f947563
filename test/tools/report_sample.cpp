// SPDX-License-Identifier: Apache-2.0
// Not a test: the cases that summary_test.py runs to see how they are counted.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "support/test_env.hpp"

TEST_CASE("passes with sections", "[good]") {
  SECTION("one") {
    CHECK(true);
  }
  SECTION("two") {
    CHECK(true);
  }
}

TEST_CASE("passes, although it is skipped elsewhere", "[good]") {
  CHECK(true);
}

TEST_CASE("is skipped", "[good]") {
  ucclep::test::skip_case("no such device");
}

TEST_CASE("starts a process that is not counted", "[good]") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    execl("/proc/self/exe", "report_sample", "passes with sections", nullptr);
    _exit(1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("fails", "[bad]") {
  CHECK(1 == 2);
}

TEST_CASE("throws after a skip", "[bad]") {
  ucclep::test::skip_case("the failure counts more");
  throw 1;
}

TEST_CASE("is killed", "[killed]") {
  raise(SIGKILL);
}

namespace {

// Each of the three within four seconds, all of them not.
void take_time() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
}

}  // namespace

TEST_CASE("takes its time", "[network]") {
  take_time();
}

TEST_CASE("takes as long", "[network]") {
  take_time();
}

TEST_CASE("takes as long again", "[network]") {
  take_time();
}

TEST_CASE("does not end", "[network]") {
  std::this_thread::sleep_for(std::chrono::minutes(5));
}

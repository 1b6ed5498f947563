// SPDX-License-Identifier: Apache-2.0
#include "host/context/last_error.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "host/boundary/guard.hpp"
#include "host/context/communicator.hpp"

namespace {

using ucclep::guarded;

std::string last_error(ucclEpComm_t comm = nullptr) {
  return ucclEpGetLastError(comm);
}

// A communicator with nothing in it.
struct FakeComm {
  FakeComm() { comm.enlist(ucclep::ObjectKind::comm, &comm); }
  ucclEpComm comm;
  ucclEpComm_t get() { return &comm; }
};

ucclEpResult_t fail_with(const char* message, ucclEpComm_t comm = nullptr) {
  return guarded("ucclEpTest", comm, [&] { ucclep::fail(ucclEpInvalidUsage, "{}", message); });
}

}  // namespace

TEST_CASE("The boundary turns every exception into a code and an error message", "[api]") {
  CHECK(guarded("ucclEpTest", nullptr, [] { ucclep::fail(ucclEpTimeout, "rank {} is late", 3); }) == ucclEpTimeout);
  CHECK(last_error() == "ucclEpTest: rank 3 is late");
  CHECK(guarded("ucclEpTest", nullptr, [] { throw std::bad_alloc(); }) == ucclEpOutOfMemory);
  CHECK(last_error() == "ucclEpTest: out of memory on the host");
  CHECK(guarded("ucclEpTest", nullptr, [] { std::string().resize(std::string::npos); }) == ucclEpOutOfMemory);
  CHECK(last_error() == "ucclEpTest: a size exceeds the largest possible allocation of the host");
  const std::error_code no_space = make_error_code(std::errc::no_space_on_device);
  CHECK(guarded("ucclEpTest", nullptr, [&] { throw std::system_error(no_space, "raw"); }) == ucclEpSystemError);
  CHECK(last_error() == "ucclEpTest: a system call failed: " + no_space.message());
  CHECK(guarded("ucclEpTest", nullptr, [&] { throw std::filesystem::filesystem_error("raw", "/a", no_space); }) ==
        ucclEpSystemError);
  CHECK(last_error() == "ucclEpTest: cannot access /a: " + no_space.message());
  const std::string unexpected =
      "ucclEpTest: the library caught an unexpected exception: set UCCLEP_DEBUG=WARN to log what it was";
  CHECK(guarded("ucclEpTest", nullptr, [] { throw std::out_of_range("index 9"); }) == ucclEpInternalError);
  CHECK(last_error() == unexpected);
  CHECK(guarded("ucclEpTest", nullptr, [] { throw 7; }) == ucclEpInternalError);
  CHECK(last_error() == unexpected);
}

TEST_CASE("A call that succeeds leaves the last error as it was", "[api]") {
  fail_with("first");
  CHECK(guarded("ucclEpTest", nullptr, [] {}) == ucclEpSuccess);
  CHECK(last_error() == "ucclEpTest: first");
}

TEST_CASE("Each thread has its own last error, empty at first", "[api]") {
  fail_with("mine");
  std::string first, then;
  std::thread([&] {
    first = last_error();
    fail_with("theirs");
    then = last_error();
  }).join();
  CHECK(first.empty());
  CHECK(then == "ucclEpTest: theirs");
  CHECK(last_error() == "ucclEpTest: mine");
}

TEST_CASE("A communicator's last error can be read by any thread, and goes with it", "[api]") {
  FakeComm one, other;
  CHECK(last_error(one.get()).empty());
  fail_with("before", one.get());
  CHECK(last_error(one.get()).empty());

  ucclep::keep_errors_of(one.get());
  ucclep::keep_errors_of(other.get());
  std::thread([&] { fail_with("by a thread", one.get()); }).join();
  fail_with("elsewhere", other.get());
  CHECK(last_error(one.get()) == "ucclEpTest: by a thread");
  CHECK(last_error(other.get()) == "ucclEpTest: elsewhere");
  CHECK(last_error() == "ucclEpTest: elsewhere");

  ucclep::forget_errors_of(one.get());
  CHECK(last_error(one.get()).empty());
  ucclep::forget_errors_of(other.get());
}

TEST_CASE("The string of a communicator stays as it is while others fail", "[api]") {
  FakeComm comm;
  ucclep::keep_errors_of(comm.get());
  fail_with("first", comm.get());
  const char* read = ucclEpGetLastError(comm.get());
  std::thread([&] { fail_with("second", comm.get()); }).join();
  CHECK(std::string(read) == "ucclEpTest: first");
  ucclep::forget_errors_of(comm.get());
}

TEST_CASE("An error message longer than the space is cut", "[api]") {
  const std::string long_message(5000, 'x');
  fail_with(long_message.c_str());
  CHECK(last_error() == ("ucclEpTest: " + long_message).substr(0, 1023));
}

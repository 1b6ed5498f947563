// SPDX-License-Identifier: Apache-2.0
// How a transport is found by its name, and what is said when that fails. The plugins lie in LD_LIBRARY_PATH.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "transport/transport.hpp"

namespace ucclep::transport {
namespace {

std::string refusal(const std::string& name, ucclEpResult_t code) {
  try {
    make_transport(name);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  FAIL("'" << name << "' was taken");
  return "";
}

void check_words(const std::string& message, const std::vector<std::string>& words) {
  INFO(message);
  for (const std::string& word : words) CHECK(message.find(word) != std::string::npos);
}

}  // namespace

TEST_CASE("transport names: one that nothing answers to says what was looked for", "[plugin]") {
  check_words(refusal("nosuch", ucclEpInvalidArgument), {"'nosuch'", "libucclep_transport_nosuch.so"});
  check_words(refusal("", ucclEpInvalidArgument), {"''"});
  check_words(refusal("../etc/passwd", ucclEpInvalidArgument), {"../etc/passwd", "not the name"});
  check_words(refusal("loopback:eth0", ucclEpInvalidArgument), {"no argument", "eth0"});
}

TEST_CASE("transport plugins: each way of being broken has its message", "[plugin][build-tree]") {
  check_words(refusal("broken_no_entry", ucclEpInvalidArgument), {"ucclEpTransportPlugin", "broken_no_entry"});
  check_words(refusal("broken_null", ucclEpNotSupported), {"broken_null", "no functions"});
  check_words(refusal("broken_abi", ucclEpInvalidArgument),
              {fmt::format("version {}", UCCLEP_TRANSPORT_ABI - 1), fmt::format("has {}", UCCLEP_TRANSPORT_ABI),
               "build it with this version's ucclep/transport.h"});
  check_words(refusal("broken_hole", ucclEpInvalidArgument), {"`close` is NULL"});
}

TEST_CASE("transport plugins: the message of a plugin comes with its name", "[plugin][build-tree]") {
  const auto transport = make_transport("example");
  const auto endpoint = transport->open({nullptr, 2, 16, 16, 1000, 0});
  try {
    endpoint->connect(5, 0, endpoint->address());
    FAIL("peer 5 of 2 was connected");
  } catch (const Error& error) {
    CHECK(error.code() == ucclEpInvalidArgument);
    check_words(error.what(), {"transport example: connect: ", "peer 5 is out of range"});
  }
  CHECK_THROWS_AS(make_transport("example:argument")->open({nullptr, 2, 16, 16, 1000, 0}), Error);
}

}  // namespace ucclep::transport

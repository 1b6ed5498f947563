// SPDX-License-Identifier: Apache-2.0
// When a proxy thread gives way, and when it sleeps.
#include "host/proxy/rest.hpp"

#include <catch2/catch.hpp>

namespace ucclep::test {
namespace {

using proxy::Rest;
using std::chrono::milliseconds;

// Finds nothing for so long. How long it was, since other programs may have had the core meanwhile.
Rest::Clock::duration find_nothing(Rest& rest, bool under_way, milliseconds time) {
  const auto begin = Rest::Clock::now();
  while (Rest::Clock::now() - begin < time) rest.rest(under_way);
  return Rest::Clock::now() - begin;
}

TEST_CASE("rest: while something is under way a thread does not sleep at once", "[rest]") {
  for (int attempt = 0; attempt < 100; ++attempt) {
    Rest rest;
    if (find_nothing(rest, true, milliseconds(5)) > milliseconds(15)) continue;
    CHECK(rest.yields() > 0);
    CHECK(rest.sleeps() == 0);
    find_nothing(rest, true, milliseconds(30));
    CHECK(rest.sleeps() > 0);
    return;
  }
  FAIL("other programs had the core all the time");
}

TEST_CASE("rest: a thread that waits for nothing of its own sleeps soon, and spins after the next work", "[rest]") {
  Rest rest;
  find_nothing(rest, false, milliseconds(5));
  const uint64_t sleeps = rest.sleeps(), yields = rest.yields();
  CHECK(sleeps > 0);
  rest.over();
  for (int round = 0; round < 200; ++round) rest.rest(false);
  CHECK(rest.sleeps() == sleeps);
  CHECK(rest.yields() == yields);
}

}  // namespace
}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// When a proxy thread gives way, and when it sleeps.
#include "proxy/rest.hpp"

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

// Finds nothing until it sleeps: after how many rounds depends on who else has the core.
bool comes_to_sleep(Rest& rest, bool under_way) {
  const auto begin = Rest::Clock::now();
  while (rest.sleeps() == 0 && Rest::Clock::now() - begin < std::chrono::seconds(10)) rest.rest(under_way);
  return rest.sleeps() > 0;
}

TEST_CASE("rest: while something is under way a thread does not sleep at once", "[rest]") {
  for (int attempt = 0; attempt < 100; ++attempt) {
    Rest rest;
    if (find_nothing(rest, true, milliseconds(5)) > milliseconds(15)) continue;
    CHECK(rest.yields() > 0);
    CHECK(rest.sleeps() == 0);
    CHECK(comes_to_sleep(rest, true));
    return;
  }
  FAIL("other programs had the core all the time");
}

TEST_CASE("rest: a thread that waits for nothing of its own sleeps soon, and spins after the next work", "[rest]") {
  Rest rest;
  CHECK(comes_to_sleep(rest, false));
  const uint64_t sleeps = rest.sleeps(), yields = rest.yields();
  rest.over();
  for (int round = 0; round < 200; ++round) rest.rest(false);
  CHECK(rest.sleeps() == sleeps);
  CHECK(rest.yields() == yields);
}

}  // namespace
}  // namespace ucclep::test

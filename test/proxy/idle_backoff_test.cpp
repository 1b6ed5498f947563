// SPDX-License-Identifier: Apache-2.0
// When a proxy thread yields, and when it sleeps.
#include "proxy/idle_backoff.hpp"

#include <catch2/catch.hpp>

namespace ucclep::test {
namespace {

using proxy::IdleBackoff;
using std::chrono::milliseconds;

// Finds nothing for so long. How long it was, since other programs may have had the core meanwhile.
IdleBackoff::Clock::duration find_nothing(IdleBackoff& backoff, bool under_way, milliseconds time) {
  const auto begin = IdleBackoff::Clock::now();
  while (IdleBackoff::Clock::now() - begin < time) backoff.wait(under_way);
  return IdleBackoff::Clock::now() - begin;
}

// Finds nothing until it sleeps: after how many rounds depends on who else has the core.
bool comes_to_sleep(IdleBackoff& backoff, bool under_way) {
  const auto begin = IdleBackoff::Clock::now();
  while (backoff.sleeps() == 0 && IdleBackoff::Clock::now() - begin < std::chrono::seconds(10)) backoff.wait(under_way);
  return backoff.sleeps() > 0;
}

TEST_CASE("idle backoff: while something is under way a thread does not sleep at once", "[backoff]") {
  for (int attempt = 0; attempt < 100; ++attempt) {
    IdleBackoff backoff;
    if (find_nothing(backoff, true, milliseconds(5)) > milliseconds(15)) continue;
    CHECK(backoff.yields() > 0);
    CHECK(backoff.sleeps() == 0);
    CHECK(comes_to_sleep(backoff, true));
    return;
  }
  FAIL("other programs had the core all the time");
}

TEST_CASE("idle backoff: a thread that waits for nothing of its own sleeps soon, and spins after the next work",
          "[backoff]") {
  IdleBackoff backoff;
  CHECK(comes_to_sleep(backoff, false));
  const uint64_t sleeps = backoff.sleeps(), yields = backoff.yields();
  backoff.reset();
  for (int round = 0; round < 200; ++round) backoff.wait(false);
  CHECK(backoff.sleeps() == sleeps);
  CHECK(backoff.yields() == yields);
}

}  // namespace
}  // namespace ucclep::test

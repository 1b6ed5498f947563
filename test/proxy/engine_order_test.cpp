// SPDX-License-Identifier: Apache-2.0
// Engines over networks that keep an order and over networks that do not.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "engine_team.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// A shape and as many operations as fit a moment, all from a seed.
TeamResult exchange_all(TeamShape shape, uint64_t seed, uint32_t operations) {
  INFO("seed " << seed << ", " << shape.transport << ", from " << shape.first[1] << " and " << shape.first[2] << " on");
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return static_cast<uint32_t>(random() % n); };
  shape.ranks = 2 + below(2);
  shape.in_flight = 2 + below(3);
  shape.threads = 1 + below(2);
  shape.rows = 1 + below(40);
  shape.rows_per_chunk = 1 + below(6);
  shape.connections = 1 + below(2);
  shape.nics = 1 + below(shape.connections);
  shape.credits = {.window = 1 + below(20), .return_every = 1};
  shape.credits.return_every = 1 + below(shape.credits.window);
  return run_team(shape, [&](Rank& me) {
    std::mt19937_64 mine(seed * 64 + me.rank());
    // Which kind comes when is the same for all.
    std::mt19937_64 order(seed);
    for (uint32_t i = 0; i < operations; ++i) me.exchange(order() % 2 == 0 ? Kind::dispatch : Kind::combine, mine);
  });
}

// What came out of order, and twice, over many seeds.
struct Disorder {
  uint64_t chunks = 0, early = 0, repeated = 0;

  void add(const TeamResult& result) {
    for (const proxy::GroupStatistics& group : result.groups) {
      chunks += group.chunks;
      early += group.early;
      repeated += group.repeated;
    }
  }
};

TEST_CASE("engine: everything arrives over a network that keeps the order", "[engine]") {
  for (uint64_t seed = 1; seed <= 3 * seeds(); ++seed) exchange_all({}, seed, 40);
}

// UCCLEP_TEST_TRANSPORT: what lies below the faults.
TEST_CASE("engine: everything arrives in whatever order the network delivers", "[engine][order]") {
  const char* below = std::getenv("UCCLEP_TEST_TRANSPORT");
  Disorder disorder;
  const uint64_t all = std::max<uint64_t>(seeds(), reduced() ? 12 : below != nullptr ? 50 : 200);
  for (uint64_t seed = 1; seed <= all; ++seed) {
    TeamShape shape;
    const char* hides[] = {"", ",hide=source", ",hide=both,repeat=100"};
    shape.transport = fmt::format("faulty:seed={}{}:{}", seed, hides[seed % 3], below != nullptr ? below : "loopback");
    const TeamResult result = exchange_all(shape, seed, 5);
    if (!result.not_here.empty()) return skip_case(result.not_here);
    disorder.add(result);
  }
  CHECK(disorder.early * 10 > disorder.chunks);
  CHECK(disorder.repeated > 0);
}

// Numbers go on where another group's ended: every one of these is truncated on the way, and some carry over.
TEST_CASE("engine: everything arrives, whatever number the first operation has", "[engine]") {
  const proxy::KindNumbers firsts[] = {{0, 1'000'003, 77},
                                       {0, 4095, 4093},
                                       {0, 31, 1'000'003},
                                       {0, 0xffff'fffe, 0x7fff'ffff},
                                       {0, (uint64_t{1} << 40) + 12345, (uint64_t{1} << 32) - 2}};
  uint64_t seed = 1;
  for (const proxy::KindNumbers& first : firsts) {
    for (const char* transport : {"loopback", "faulty:hide=source:loopback"}) {
      TeamShape shape;
      shape.transport = transport;
      shape.first = first;
      exchange_all(shape, seed++, 30);
    }
  }
}

// Epochs and the numbers of messages that were dealt with are truncated: past the end of both.
TEST_CASE("engine: operations go on beyond what an immediate can count", "[engine]") {
  TeamShape shape;
  shape.rows = 60;
  shape.rows_per_chunk = 1;
  shape.row_bytes = 16;
  const uint32_t operations = reduced() ? 40 : 200;
  const TeamResult result = run_team(shape, [&](Rank& me) {
    std::mt19937_64 random(me.rank());
    for (uint32_t i = 0; i < operations; ++i) me.exchange(Kind::dispatch, random);
  });
  CHECK((reduced() || result.groups[0].chunks > 4096));
}

}  // namespace
}  // namespace ucclep::test

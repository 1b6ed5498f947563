// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "base/error.hpp"
#include "proxy/arrival_table.hpp"
#include "support/test_env.hpp"

namespace ucclep::proxy {
namespace {

Arrival arrives(ArrivalTable& table, Kind kind, uint64_t seq, uint32_t source, uint32_t chunk) {
  return table.arrive(unpack(pack(chunk_arrives(kind, seq, source, chunk))));
}

Arrival expects(ArrivalTable& table, Kind kind, uint64_t seq, uint32_t source, uint32_t chunks) {
  return table.arrive(unpack(pack(header_arrives(kind, seq, source, chunks))));
}

TEST_CASE("arrivals: chunks in any order, and twice", "[arrival]") {
  ArrivalTable table({.ranks = 3, .in_flight = 2, .chunks = 200});
  const auto arrive = [&](uint32_t chunk) { return arrives(table, Kind::dispatch, 1, 2, chunk); };
  const auto progress = [&] { return table.progress(Kind::dispatch, 2, 1); };
  CHECK(progress() == Progress{1, false, false, 0});
  CHECK(arrive(1) == Arrival::fresh);
  CHECK(progress() == Progress{1, false, false, 0});
  CHECK(arrive(0) == Arrival::fresh);
  CHECK(progress() == Progress{1, false, false, 2});
  CHECK(arrive(1) == Arrival::repeated);
  CHECK(progress() == Progress{1, false, false, 2});
  for (uint32_t chunk = 129; chunk > 2; --chunk) CHECK(arrive(chunk) == Arrival::fresh);
  CHECK(progress() == Progress{1, false, false, 2});
  CHECK(arrive(2) == Arrival::fresh);
  CHECK(progress() == Progress{1, false, false, 130});
  CHECK(expects(table, Kind::dispatch, 1, 2, 131) == Arrival::fresh);
  CHECK(progress() == Progress{1, true, false, 130});
  CHECK(arrive(130) == Arrival::fresh);
  CHECK(progress() == Progress{1, true, true, 131});
  CHECK(arrive(131) == Arrival::foreign);
  CHECK(arrive(130) == Arrival::repeated);
  CHECK(progress() == Progress{1, true, true, 131});
  CHECK(table.repeated() == 2);
  CHECK(table.foreign() == 1);
  // The other sources, kinds and operations know nothing of it.
  CHECK(table.progress(Kind::dispatch, 1, 1) == Progress{1, false, false, 0});
  CHECK(table.progress(Kind::combine, 2, 1) == Progress{1, false, false, 0});
  CHECK(table.progress(Kind::dispatch, 2, 2) == Progress{2, false, false, 0});
}

TEST_CASE("arrivals: chunks that the header does not know do not count", "[arrival]") {
  for (uint32_t expected : {0u, 1u, 63u, 64u, 65u, 130u}) {
    INFO(expected << " chunks");
    ArrivalTable table({.ranks = 1, .in_flight = 2, .chunks = 200});
    for (uint32_t chunk : {0u, 64u, 130u, 199u}) CHECK(arrives(table, Kind::combine, 1, 0, chunk) == Arrival::fresh);
    const uint32_t known = (expected > 0) + (expected > 64);
    CHECK(expects(table, Kind::combine, 1, 0, expected) == Arrival::fresh);
    CHECK(table.foreign() == 4 - known);
    CHECK(table.progress(Kind::combine, 0, 1) == Progress{1, true, expected <= 1, expected == 0 ? 0u : 1u});
    for (uint32_t chunk = 0; chunk < expected; ++chunk) arrives(table, Kind::combine, 1, 0, chunk);
    CHECK(table.progress(Kind::combine, 0, 1) == Progress{1, true, true, expected});
    CHECK(table.repeated() == known);
    CHECK(expects(table, Kind::combine, 1, 0, expected) == Arrival::repeated);
  }
}

TEST_CASE("arrivals: the most chunks there are, and none", "[arrival]") {
  ArrivalTable table({.ranks = 1, .in_flight = 8, .chunks = max_chunks});
  CHECK(expects(table, Kind::update, 1, 0, max_chunks) == Arrival::fresh);
  for (uint32_t chunk = max_chunks; chunk-- > 0;) CHECK(arrives(table, Kind::update, 1, 0, chunk) == Arrival::fresh);
  const Progress all = table.progress(Kind::update, 0, 1);
  CHECK(all == Progress{1, true, true, max_chunks});
  CHECK(expects(table, Kind::update, 2, 0, 0) == Arrival::fresh);
  CHECK(table.progress(Kind::update, 0, 2) == Progress{2, true, true, 0});
  CHECK(all.word() < table.progress(Kind::update, 0, 9).word());
  CHECK(Progress{1, true, false, max_chunks}.word() < all.word());
}

TEST_CASE("arrivals: what is over or cannot be yet is counted and dropped", "[arrival]") {
  for (uint32_t in_flight = 2; in_flight <= max_in_flight; ++in_flight) {
    for (uint64_t consumed : {uint64_t{0}, uint64_t{5}, uint64_t{31}, uint64_t{32}, uint64_t{1} << 40}) {
      INFO(in_flight << " in flight, consumed " << consumed);
      ArrivalTable table({.ranks = 1, .in_flight = in_flight, .chunks = 4});
      table.consume(Kind::combine, consumed);
      CHECK(arrives(table, Kind::combine, consumed, 0, 1) == Arrival::stale);
      CHECK(arrives(table, Kind::combine, consumed + in_flight + 1, 0, 1) == Arrival::stale);
      CHECK(expects(table, Kind::combine, consumed, 0, 1) == Arrival::stale);
      CHECK(expects(table, Kind::combine, consumed + in_flight + 1, 0, 1) == Arrival::stale);
      CHECK(table.stale() == 4);
      CHECK(arrives(table, Kind::combine, consumed + 1, 0, 1) == Arrival::fresh);
      CHECK(arrives(table, Kind::combine, consumed + in_flight, 0, 1) == Arrival::fresh);
      table.consume(Kind::combine, consumed > 0 ? consumed - 1 : 0);  // it never goes back
      CHECK(arrives(table, Kind::combine, consumed, 0, 1) == Arrival::stale);
    }
  }
}

TEST_CASE("arrivals: no such rank, kind or chunk", "[arrival]") {
  ArrivalTable table({.ranks = 3, .in_flight = 2, .chunks = 5});
  CHECK(table.arrive({ImmKind::dispatch, 1, 3, 0}) == Arrival::foreign);
  CHECK(table.arrive({ImmKind::dispatch, 1, 0, 5}) == Arrival::foreign);
  CHECK(table.arrive({ImmKind::word, 1, 0, 0}) == Arrival::foreign);
  CHECK(table.arrive({static_cast<ImmKind>(7), 1, 0, 0}) == Arrival::foreign);
  CHECK(expects(table, Kind::update, 1, 3, 1) == Arrival::foreign);
  CHECK(expects(table, Kind::update, 1, 0, 6) == Arrival::foreign);
  CHECK(table.foreign() == 6);
}

TEST_CASE("arrivals: a group too large for immediates is refused", "[arrival]") {
  const auto message = [](const ArrivalShape& shape) -> std::string {
    try {
      const ArrivalTable table(shape);
    } catch (const Error& error) {
      CHECK(error.code() == ucclEpNotSupported);
      return error.what();
    }
    return "not refused";
  };
  CHECK(message({4097, 2, 1}) == "the group needs 4097 ranks, but the network's immediate can name at most 4096");
  CHECK_THAT(message({1, 2, 4097}), Catch::Contains("4097 chunks"));
  CHECK_THAT(message({1, 9, 1}), Catch::Contains("9 operations in flight"));
}

// Against a plain set, over many operations: everything delivered in a random order within the window, some of it
// twice, some of it long after.
TEST_CASE("arrivals: random orders of many operations agree with a plain model", "[arrival]") {
  for (uint64_t seed = 1; seed <= 20 * test::seeds(); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return static_cast<uint32_t>(random() % n); };
    const uint32_t in_flight = 2 + below(7), ranks = 1 + below(3), chunks = 1 + below(150);
    ArrivalTable table({.ranks = ranks, .in_flight = in_flight, .chunks = chunks});
    std::map<std::tuple<uint64_t, uint32_t>, std::set<uint32_t>> model;
    uint64_t consumed = 0, wrong = 0;
    for (int step = 0; step < 3000; ++step) {
      const uint64_t seq = consumed + 1 + below(in_flight);
      const uint32_t source = below(ranks), chunk = below(chunks);
      auto& set = model[{seq, source}];
      const Arrival expected = set.insert(chunk).second ? Arrival::fresh : Arrival::repeated;
      wrong += arrives(table, Kind::combine, seq, source, chunk) != expected;
      uint32_t prefix = 0;
      while (set.count(prefix) != 0) ++prefix;
      wrong += table.progress(Kind::combine, source, seq) != Progress{seq, false, false, prefix};
      if (consumed > 0)
        wrong += arrives(table, Kind::combine, consumed - below(std::min<uint64_t>(consumed, 8)), source, chunk) !=
                 Arrival::stale;
      if (below(50) == 0) table.consume(Kind::combine, ++consumed);
    }
    CHECK(wrong == 0);
    CHECK(consumed > 20);
  }
}

}  // namespace
}  // namespace ucclep::proxy

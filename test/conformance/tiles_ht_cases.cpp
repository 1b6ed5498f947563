// SPDX-License-Identifier: Apache-2.0
// Tiles in HT: in rounds, between nodes, with less room than rows, and while a source sends nothing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "conformance/late_stores.hpp"
#include "conformance/tiled.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// Ranks with many tokens, few and none; more rounds than slots.
const Scenario tiles_in_rounds = in_ht_tiles({.experts = 8,
                                              .top_k = 3,
                                              .max_tokens = 61,
                                              .round = 9,
                                              .tokens = {61, 0, 20, 54},
                                              .hidden = 96,
                                              .biases = 1,
                                              .rule = uniform(10)});

Scenario quantised_tiles(Scenario scenario) {
  scenario.hidden = 256;
  scenario.scales = Scales{};
  scenario.quant = UCCLEP_QUANT_FP8_128;
  return scenario;
}

TEST_CASE("tiles: HT in rounds, and between nodes", "[tiles][process][reduced][modes][nodes]") {
  run_tiles({tiles_in_rounds}, 1);
}

TEST_CASE("tiles: HT in one round, and between nodes", "[tiles][process][reduced][nodes]") {
  Scenario scenario = tiles_in_rounds;
  scenario.round = 0;
  Scenario slots = tiles_in_rounds;  // as many rounds as slots
  slots.round = 31;
  run_tiles({scenario, slots, quantised_tiles(scenario), quantised_tiles(tiles_in_rounds)});
}

TEST_CASE("tiles: HT gradients in rounds", "[tiles][process][reduced][nodes]") {
  run_each({tiles_in_rounds}, there_and_back);
}

// The receive phase of one handle sends and receives rounds while other handles combine.
TEST_CASE("tiles: HT rounds go on beside operations of other kinds", "[tiles][process][reduced][nodes]") {
  Scenario scenario = tiles_in_rounds;
  scenario.num_sms = 2;
  Scenario plain = scenario;
  plain.tile_rows = 0;
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    const Handle other = make_handle(at.group, handle_config(plain));
    for (uint64_t round = 0; round < 3; ++round) {
      Exchange exchange(rank, at.comm, scenario, round + 1), between(rank, at.comm, plain, round + 10);
      between.update(other, at.stream);
      between.dispatch(other, at.stream);
      begin_tiles(exchange, at.handle, at.stream);
      between.combine(other, at.stream);
      refused(between.try_dispatch(other, at.stream), ucclEpInvalidUsage, "ucclEpDispatch", {"max_in_flight"});
      between.update(other, at.stream);
      complete_tiles(at.handle, at.stream);
      check_tiles_and_combine(exchange, at.handle, at.stream);
      between.check_all();
    }
    no_async_error(at.comm);
  });
}

TEST_CASE("tiles: HT ranks may differ in tile_rows", "[tiles][process]") {
  run_ranks(4, [&](Rank& rank) {
    const Scenario scenario =
        in_ht_tiles({.experts = 8, .top_k = 2, .max_tokens = 40, .rule = uniform(20)}, rank.rank == 1 ? 64 : 16);
    Session at(rank, scenario);
    // Who checks takes the row that a rank sends back for that which has its number in zones of its own.
    Exchange exchange(rank, at.comm, scenario, 7);
    begin_tiles(exchange, at.handle, at.stream);
    complete_tiles(at.handle, at.stream);
    at.stream.synchronize();
    exchange.take_places(at.handle);
    exchange.check_dispatch();
    no_async_error(at.comm);
  });
}

// One rank sends rows to experts of its own, so it knows which of them came in time for a place.
void run_with_room(int64_t capacity, int64_t max_recv, int overflow) {
  const Scenario scenario = in_ht_tiles({.experts = 8,
                                         .top_k = 1,
                                         .max_tokens = 60,
                                         .tokens = {60, 0, 0, 0},
                                         .fixed_capacity = capacity,
                                         .max_recv = max_recv,
                                         .overflow = overflow,
                                         .rule = [](const Scenario&, uint64_t, int, int64_t token) {
                                           return std::vector<int64_t>{token % 3 == 0 ? 1 : 0};
                                         }});
  const int64_t kept = 12, first = 48;  // of 20 rows of expert 1, and where it begins: behind 40 of expert 0
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario, 3);
    exchange.dispatch_config.send_only = 1;
    exchange.update(at.handle, at.stream);
    exchange.dispatch(at.handle, at.stream);
    complete_tiles(at.handle, at.stream);
    exchange.combine(at.handle, at.stream);
    at.stream.synchronize();
    if (rank.rank == 0) {
      const TileWords words(at.comm, at.handle, scenario);
      require(words.final == std::vector<int32_t>{40, static_cast<int32_t>(kept)}, "rows_final counts dropped rows");
      for (int64_t t = 0; t < words.at.tiles; ++t) {
        const uint32_t word = words.ready[static_cast<size_t>(t)], expected = t < 4 ? 1 : 2;
        require(word == expected, "tile " + std::to_string(t) + " is " + std::to_string(word));
      }
      std::set<int64_t> came;
      for (int64_t row = first; row < first + kept; ++row) came.insert(words.src_info[static_cast<size_t>(row)]);
      require(came.size() == static_cast<size_t>(kept), "rows of expert 1 lie twice");
      const size_t row_bytes = 2 * static_cast<size_t>(scenario.hidden);
      std::vector<uint8_t> sums(60 * row_bytes);
      ok(ucclEpMemcpy(at.comm, sums.data(), exchange.combined().get()->data, sums.size(), at.stream), "ucclEpMemcpy");
      at.stream.synchronize();
      for (int64_t token = 0; token < 60; token += 3) {
        const auto begin = sums.begin() + token * static_cast<int64_t>(row_bytes);
        const bool zero = std::all_of(begin, begin + static_cast<int64_t>(row_bytes), [](uint8_t b) { return b == 0; });
        require(zero == !came.contains(token), "token " + std::to_string(token) + " came back wrong");
      }
    }
    const ucclEpAsyncError_t error = async_error(at.comm);
    const bool recorded = rank.rank == 0 && overflow == UCCLEP_OVERFLOW_ERROR;
    require(error.code == (recorded ? ucclEpOverflow : ucclEpSuccess), error.text);
    if (recorded) ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
    masked::meet(rank, 0);
  });
}

TEST_CASE("tiles: HT drops rows past the capacity, and the limit of the group", "[tiles][process][reduced]") {
  for (const int overflow : {UCCLEP_OVERFLOW_DROP, UCCLEP_OVERFLOW_ERROR}) {
    run_with_room(60, 0, overflow);
    run_with_room(80, 60, overflow);
  }
}

// Keeps a rank's dispatch from sending rows: READY of a peer is taken out of its window, as if it had not come.
class HiddenReady {
 public:
  HiddenReady(const ucclEpDeviceGroup& group, int peer) {
    const uint64_t header =
        group.layout.header(group.shape, Kind::dispatch, group.shape.slot_of(seq), static_cast<uint32_t>(peer));
    epoch_ = words_at(group, group.rank, header + sizeof(uint64_t));
    wait_until("READY of a peer", [&] { return __atomic_load_n(epoch_, __ATOMIC_ACQUIRE) == seq; });
    __atomic_store_n(epoch_, 0, __ATOMIC_RELEASE);
  }
  void let_go() { __atomic_store_n(epoch_, seq, __ATOMIC_RELEASE); }

 private:
  static constexpr uint64_t seq = 1;  // the group's first dispatch
  uint64_t* epoch_ = nullptr;
};

constexpr int slow_source = 1, seen_by = 0;

// Rows of rank `slow_source` come when body(tiles) has returned at rank `seen_by`.
template <class Body, class End>
void hold_back_source(const Scenario& scenario, int timeout_ms, Body&& body, End&& end) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario, rank.rank == slow_source ? 30000 : timeout_ms);
    Exchange exchange(rank, at.comm, scenario, scenario.seed);
    exchange.update(at.handle, at.stream);
    at.stream.synchronize();
    exchange.dispatch_config.send_only = 1;
    const ucclEpTiles_t tiles = tiles_of(at.handle);
    if (rank.rank == slow_source) {
      HiddenReady hidden(device_group(at.group), 2);
      exchange.dispatch(at.handle, at.stream);
      masked::meet(rank, 0);
      hidden.let_go();
    } else {
      exchange.dispatch(at.handle, at.stream);
      if (rank.rank == seen_by) body(tiles);
      masked::meet(rank, 0);
    }
    end(rank, at, exchange, tiles);
  });
}

TEST_CASE("tiles: HT tiles are ready while a source holds back its rows", "[tiles][host][process][room]") {
  for (const int round : {0, 20}) {
    // Of a later round no row is taken before all of the one before.
    const int64_t rows_here = round == 0 ? 120 : 60;
    Scenario scenario = in_ht_tiles({.experts = 8, .top_k = 1, .max_tokens = 40, .rule = only({0}), .seed = 862});
    scenario.round = round;
    const auto see = [rows_here](const ucclEpTiles_t& tiles) {
      wait_until("tiles of rows that are here", [&] { return count_now(tiles, 1) == rows_here / 16; });
      const int32_t rows = __atomic_load_n(tiles.rows_final, __ATOMIC_ACQUIRE);
      require(rows == 160, "rows_final is " + std::to_string(rows));
      wait_until("tiles that are none", [&] { return count_now(tiles, 2) == tiles.tiles - 10; });
      require(count_now(tiles, 1) == rows_here / 16, "a tile is ready without its rows");
    };
    hold_back_source(scenario, 30000, see, [](Rank&, Session& at, Exchange& exchange, const ucclEpTiles_t&) {
      complete_tiles(at.handle, at.stream);
      check_tiles_and_combine(exchange, at.handle, at.stream);
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("tiles: HT tiles of a source that stops are none", "[tiles][host][process][room]") {
  const Scenario scenario = in_ht_tiles({.experts = 8, .top_k = 1, .max_tokens = 40, .rule = only({0}), .seed = 864});
  const auto see = [](const ucclEpTiles_t& tiles) {
    wait_until("all tiles to end", [&] { return count_now(tiles, 0) == 0; });
    require(count_now(tiles, 1) == 120 / 16, "tiles whose rows are there are not ready");
  };
  hold_back_source(scenario, 3000, see, [](Rank& rank, Session& at, Exchange&, const ucclEpTiles_t& tiles) {
    // The dispatch of a rank to which nothing is on its way ends well.
    const ucclEpResult_t ended = ucclEpStreamSynchronize(at.comm, at.stream);
    if (rank.rank == seen_by) require(ended != ucclEpSuccess, "the dispatch has not failed");
    wait_until("all tiles to end", [&] { return count_now(tiles, 0) == 0; });
    masked::meet(rank, 1);  // windows stay until nobody reads those of others
  });
}

}  // namespace
}  // namespace ucclep::test

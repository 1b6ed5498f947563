// SPDX-License-Identifier: Apache-2.0
// Tiles of which rows are late, or do not come.
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <utility>

#include "conformance/held_back.hpp"
#include "conformance/late_stores.hpp"
#include "conformance/tiled.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// Tiles of which all rows have come are ready while a source holds back its later rows, or all of them.
TEST_CASE("tiles: some are ready while a source holds back rows", "[tiles][host][process][room]") {
  for (const bool begun : {true, false}) {
    for (const int64_t hidden : {hidden_in_lines, hidden_in_bulk}) {
      const Scenario scenario =
          in_tiles({.experts = 4, .top_k = 1, .max_tokens = 40, .hidden = hidden, .rule = only({0}), .seed = 860});
      run_ranks(scenario.ranks, [&](Rank& rank) {
        Session at(rank, scenario, 30000);
        Exchange exchange(rank, at.comm, scenario, scenario.seed);
        exchange.update(at.handle, at.stream);
        at.stream.synchronize();
        constexpr int slow = 3;
        const int last = begun ? 0 : slow;  // who dispatches when all others have
        if (rank.rank != last) {
          begin_tiles(exchange, at.handle, at.stream);
          at.stream.synchronize();
        }
        masked::meet(rank, 0);
        std::optional<HeldBack> held;
        if (rank.rank == 0) {
          if (begun) {
            held.emplace(device_group(at.group), scenario,
                         [](int source, int64_t token) { return source == slow && token >= 20; });
            begin_tiles(exchange, at.handle, at.stream);
            at.stream.synchronize();
          }
          const int64_t here = begun ? 140 : 120;  // rows of expert 0
          const ucclEpTiles_t tiles = tiles_of(at.handle);
          wait_until("tiles of rows that are here", [&] { return count_now(tiles, 1) == here / 16; });
          const int32_t rows = __atomic_load_n(tiles.rows_final, __ATOMIC_ACQUIRE);
          require(rows == (begun ? 160 : -1), "rows_final is " + std::to_string(rows));
          require(count_now(tiles, 2) == 0, "some tiles are none");
          if (begun) held->let_go();
        }
        masked::meet(rank, 1);
        if (rank.rank == last && !begun) begin_tiles(exchange, at.handle, at.stream);
        complete_tiles(at.handle, at.stream);
        check_tiles_and_combine(exchange, at.handle, at.stream);
        no_async_error(at.comm);
      });
    }
  }
}

// Last tiles are ready when their rows are there, though other experts have yet to get some.
TEST_CASE("tiles: the last of an expert waits for its rows alone", "[tiles][host][process][room]") {
  for (const int64_t hidden : {hidden_in_lines, hidden_in_bulk}) {
    const Scenario scenario =
        in_tiles({.experts = 16, .top_k = 1, .max_tokens = 21, .hidden = hidden, .rule = uniform(), .seed = 870});
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario, 30000);
      Exchange exchange(rank, at.comm, scenario, scenario.seed);
      exchange.update(at.handle, at.stream);
      if (rank.rank != 0) begin_tiles(exchange, at.handle, at.stream);
      at.stream.synchronize();
      masked::meet(rank, 0);
      if (rank.rank == 0) {
        const reference::World& world = exchange.contents().world();
        HeldBack held(device_group(at.group), scenario, [&](int source, int64_t token) {
          return source == 2 && world.rank[2].expert(token, 0) % 4 == 1;
        });
        begin_tiles(exchange, at.handle, at.stream);
        at.stream.synchronize();
        int64_t others = 0, held_tiles = 0;  // tiles of experts, but for expert 1
        const reference::Counters counts = reference::counters(world, scenario.shape(), 0);
        for (size_t l = 0; l < 4; ++l) (l == 1 ? held_tiles : others) += (counts.tokens_per_expert[l] + 15) / 16;
        const ucclEpTiles_t tiles = tiles_of(at.handle);
        wait_until("the tiles of all experts but one", [&] { return count_now(tiles, 1, 1) == others; });
        const int64_t open = count_now(tiles, 0);
        require(open > 0 && open <= held_tiles, std::to_string(open) + " tiles are open");
        held.let_go();
      }
      masked::meet(rank, 1);
      complete_tiles(at.handle, at.stream);
      check_tiles_and_combine(exchange, at.handle, at.stream);
      no_async_error(at.comm);
    });
  }
}

// ---- What fails ----

TEST_CASE("tiles: of a rank that does not come none stays open", "[tiles][host][process][room]") {
  const Scenario both{.experts = 8, .top_k = 2, .max_tokens = 21, .tile_rows = 16, .seed = 880};
  for (const auto& [aborts, whole] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    for (const Scenario& scenario : in_both_modes(both)) {
      run_ranks(scenario.ranks, [&](Rank& rank) {
        constexpr int missing = 2;
        Session at(rank, scenario, aborts ? 30000 : 4000);
        const ucclEpTiles_t tiles = tiles_of(at.handle);
        Exchange exchange(rank, at.comm, scenario, scenario.seed);
        exchange.update(at.handle, at.stream);
        at.stream.synchronize();
        masked::meet(rank, 1);
        exchange.dispatch_config.send_only = whole ? 0 : 1;
        if (rank.rank != missing) exchange.dispatch(at.handle, at.stream);
        masked::meet(rank, 2);
        if (aborts && rank.rank == 0) ok(ucclEpCommAbort(at.comm), "ucclEpCommAbort");
        if (rank.rank != missing) {
          ucclEpResult_t result = ucclEpStreamSynchronize(at.comm, at.stream);
          wait_until("all tiles to end", [&] { return count_now(tiles, 0) == 0; });
          if (result == ucclEpSuccess) result = ucclEpComplete(at.handle, at.stream);
          const ucclEpResult_t expected = !aborts ? ucclEpTimeout : rank.rank == 0 ? ucclEpAborted : ucclEpRemoteError;
          const ucclEpAsyncError_t error = async_error(at.comm);
          require(result == expected && error.code == expected && (aborts || error.peer == missing), error.text);
        }
        masked::meet(rank, 0);
      });
    }
  }
}

void run_with_other_settings(Scenario scenario, bool whole) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Scenario mine = scenario;
    if (rank.rank == 2) mine.weights = Weights::none;
    Session at(rank, mine);
    Exchange exchange(rank, at.comm, mine, mine.seed);
    exchange.update(at.handle, at.stream);
    exchange.dispatch_config.send_only = whole ? 0 : 1;
    exchange.dispatch(at.handle, at.stream);
    complete_tiles(at.handle, at.stream);
    at.stream.synchronize();
    const TileWords words(at.comm, at.handle, mine);
    require(words.count(0) == 0, std::to_string(words.count(0)) + " tiles wait for rows that will not come");
    const ucclEpAsyncError_t error = async_error(at.comm);
    require(error.code == ucclEpInvalidArgument && std::string(error.text).find("topk_weights") != std::string::npos,
            error.text);
    ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
    masked::meet(rank, 0);
  });
}

TEST_CASE("tiles: ranks that differ, and no tile stays open", "[tiles][process]") {
  for (const bool whole : {true, false}) {
    for (const Scenario& scenario :
         in_both_modes({.experts = 8, .top_k = 2, .max_tokens = 21, .tile_rows = 16, .seed = 885})) {
      run_with_other_settings(scenario, whole);
    }
  }
}

// A header announces a row more, or less, than comes.
TEST_CASE("tiles: as many rows must come as were announced", "[tiles][host][process][room]") {
  for (const int more : {1, -1}) {
    const Scenario scenario = in_tiles(
        {.experts = 8, .top_k = 1, .max_tokens = 21, .hidden = hidden_in_bulk, .rule = only({0}), .seed = 887});
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario, 5000);
      const ucclEpTiles_t tiles = tiles_of(at.handle);
      Exchange exchange(rank, at.comm, scenario, scenario.seed);
      exchange.update(at.handle, at.stream);
      if (rank.rank != 0) exchange.dispatch(at.handle, at.stream);
      if (rank.rank == 0) {
        const ucclEpDeviceGroup group = device_group(at.group);
        const uint64_t header = group.layout.header(group.shape, Kind::dispatch, group.shape.slot_of(1), 1);
        uint64_t* const counts = words_at(group, 0, header + HeaderLayout::counts * sizeof(Packet));
        wait_until("the header of rank 1", [&] { return __atomic_load_n(counts + 1, __ATOMIC_ACQUIRE) == 1; });
        require(*counts == 21, "rank 1 sends " + std::to_string(*counts) + " rows");
        *counts = more > 0 ? 20 : 21 | uint64_t{1} << 32;  // fewer than come, or one of expert 1, too
        exchange.dispatch(at.handle, at.stream);
        require(ucclEpStreamSynchronize(at.comm, at.stream) == ucclEpRemoteError, "the totals were not checked");
        const ucclEpAsyncError_t error = async_error(at.comm);
        const char* const said = more > 0 ? "received 84 rows of an expert, but headers of the sources announced 83"
                                          : "received 0 rows of an expert, but headers of the sources announced 1";
        require(std::string(error.text).find(said) != std::string::npos, error.text);
        wait_until("all tiles to end", [&] { return count_now(tiles, 0) == 0; });
      }
      masked::meet(rank, 0);
    });
  }
}

}  // namespace
}  // namespace ucclep::test

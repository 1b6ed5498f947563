// SPDX-License-Identifier: Apache-2.0
// Consumers of tiles: a kernel that works on each tile when it is there, while others are still on their way.
#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "conformance/exchange.hpp"
#include "conformance/held_back.hpp"
#include "conformance/masked.hpp"
#include "conformance/tile_words.hpp"
#include "initiated_calls.hpp"
#include "launch_user.hpp"
#include "support/graph.hpp"
#include "support/test_env.hpp"
#include "tile_experts.hpp"

namespace ucclep::test {
namespace {

// How results go back: by a combine after the experts, or beside them.
enum class Back { after, beside };

void enqueue_tiles(Exchange& exchange, TileExperts& experts, Back back, ucclEpHandle_t handle, ucclEpStream_t stream) {
  exchange.dispatch_config.send_only = 1;
  exchange.dispatch(handle, stream);
  if (back == Back::beside) {
    exchange.combine_config.send_only = 1;
    exchange.combine_config.done_target = static_cast<int>(experts.times());
    exchange.combine(handle, stream);
  }
  experts.work(handle, stream);
  ok(ucclEpComplete(handle, stream), "ucclEpComplete");
  if (back == Back::after) exchange.combine(handle, stream);
}

void consume_tiles(const Scenario& scenario) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario, 3);
    TileExperts experts(at.comm, at.handle, exchange);
    for (uint64_t round = 0; round < 3; ++round) {
      if (round != 0) exchange.reroute(round + 10);
      experts.prepare(rank.rank);
      enqueue_tiles(exchange, experts, Back::after, at.handle, at.stream);
      at.stream.synchronize();
      check_tile_round(exchange, experts, at.handle, rank.rank);
    }
    no_async_error(at.comm);
  });
}

void replay_tiles(const Scenario& scenario, Back back) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    const auto capturing = Capturing::of(at.comm);
    Exchange exchange(rank, at.comm, scenario, 5);
    TileExperts experts(at.comm, at.handle, exchange);
    const Graph graph(*capturing, at.stream, [&] { enqueue_tiles(exchange, experts, back, at.handle, at.stream); });
    for (uint64_t round = 0; round < (reduced() ? 3 : 8); ++round) {
      exchange.reroute(round + 20);
      experts.prepare(rank.rank);
      graph.launch(at.stream);
      at.stream.synchronize();
      check_tile_round(exchange, experts, at.handle, rank.rank);
    }
    exchange.reroute(50);  // and outside of it
    experts.prepare(rank.rank);
    enqueue_tiles(exchange, experts, back, at.handle, at.stream);
    at.stream.synchronize();
    check_tile_round(exchange, experts, at.handle, rank.rank);
    no_async_error(at.comm);
  });
}

TEST_CASE("tiles: a consumer takes them while others come", "[tiles][reduced][process][room]") {
  for (const int tile_rows : reduced() ? std::vector{16} : std::vector{16, 64}) {
    for (const int64_t hidden : {64, 1024}) consume_tiles(tile_scenario(hidden, tile_rows));
  }
}

TEST_CASE("tiles: results go back while a consumer makes others", "[tiles][reduced][process][room]") {
  for (const int tile_rows : reduced() ? std::vector{16} : std::vector{16, 64}) {
    for (const int64_t hidden : {64, 1024}) {
      const Scenario scenario = tile_scenario(hidden, tile_rows);
      run_ranks(scenario.ranks, [&](Rank& rank) {
        Session at(rank, scenario);
        Exchange exchange(rank, at.comm, scenario, 3);
        TileExperts experts(at.comm, at.handle, exchange);
        for (uint64_t round = 0; round < 4; ++round) {
          if (round != 0) exchange.reroute(round + 10);
          experts.count_as_done(round < 2 ? 1 : 4);
          experts.turn_round();
          experts.prepare(rank.rank);
          enqueue_tiles(exchange, experts, Back::beside, at.handle, at.stream);
          at.stream.synchronize();
          check_tile_round(exchange, experts, at.handle, rank.rank);
        }
        no_async_error(at.comm);
      });
    }
  }
}

// Two kernels take the tiles of a dispatch together.
TEST_CASE("tiles: kernels that join share out tiles and parts of tiles", "[tiles][reduced][process][room]") {
  for (const int64_t hidden : {64, 1024}) {
    Scenario scenario = tile_scenario(hidden, 16);
    scenario.any_bits = true;
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario);
      Stream second(at.comm);
      ucclEpEvent_t begun = nullptr, ended = nullptr;
      for (ucclEpEvent_t* const event : {&begun, &ended}) ok(ucclEpEventCreate(at.comm, event), "ucclEpEventCreate");
      Exchange exchange(rank, at.comm, scenario, 3);
      TileExperts experts(at.comm, at.handle, exchange);
      uint64_t round = 0;
      for (const std::string& scope : tile_scopes_of_run()) {
        for (const uint32_t parts : {1, 3}) {
          if (round++ != 0) exchange.reroute(round + 10);
          experts.prepare(rank.rank);
          exchange.dispatch_config.send_only = 1;
          exchange.dispatch(at.handle, at.stream);
          ok(ucclEpEventRecord(at.comm, begun, at.stream), "ucclEpEventRecord");
          ok(ucclEpStreamWaitEvent(at.comm, second, begun), "ucclEpStreamWaitEvent");
          experts.join(at.handle, scope, parts, second);
          experts.join(at.handle, scope, parts, at.stream);
          ok(ucclEpEventRecord(at.comm, ended, second), "ucclEpEventRecord");
          ok(ucclEpStreamWaitEvent(at.comm, at.stream, ended), "ucclEpStreamWaitEvent");
          ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
          exchange.combine(at.handle, at.stream);
          at.stream.synchronize();
          experts.check_handed(rank.rank, TileWords(at.comm, at.handle, scenario), parts);
          check_tile_round(exchange, experts, at.handle, rank.rank);
        }
      }
      for (const ucclEpEvent_t event : {begun, ended}) ok(ucclEpEventDestroy(at.comm, event), "ucclEpEventDestroy");
      no_async_error(at.comm);
    });
  }
}

// One kernel takes the tiles of a dispatch. parts 0: it asks for tiles by name.
void join_tiles(const Rank& rank, Session& at, Exchange& exchange, TileExperts& experts, const std::string& scope,
                uint32_t parts) {
  experts.prepare(rank.rank);
  exchange.dispatch_config.send_only = 1;
  exchange.dispatch(at.handle, at.stream);
  experts.join(at.handle, scope, parts, at.stream);
  ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
  exchange.combine(at.handle, at.stream);
  at.stream.synchronize();
  experts.check_handed(rank.rank, TileWords(at.comm, at.handle, exchange.scenario()), 1);
  check_tile_round(exchange, experts, at.handle, rank.rank);
}

TEST_CASE("tiles: a kernel that joins asks for tiles by name", "[tiles][reduced][process][room]") {
  for (const int64_t hidden : {64, 1024}) {
    const Scenario scenario = tile_scenario(hidden, 16);
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario, 4);
      TileExperts experts(at.comm, at.handle, exchange);
      uint64_t round = 0;
      for (const std::string& scope : tile_scopes_of_run()) {
        if (round++ != 0) exchange.reroute(round + 10);
        join_tiles(rank, at, exchange, experts, scope, 0);
      }
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("tiles: nothing comes, and one expert gets all", "[tiles][reduced][process][room]") {
  for (const Rule& rule : {uniform(100), only({5})}) {
    Scenario scenario = tile_scenario(64, 16);
    scenario.top_k = 1;
    scenario.rule = rule;
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario, 5);
      TileExperts experts(at.comm, at.handle, exchange);
      join_tiles(rank, at, exchange, experts, "warp", 1);
      no_async_error(at.comm);
    });
  }
}

// Rows of expert 0 are all of a source that holds them back. Those of expert 1 are handed out meanwhile, the last tile
// too.
TEST_CASE("tiles: nobody who asks waits for a source while tiles of others are ready", "[tiles][host][process]") {
  for (const std::string scope : {"thread", "warp", "block"}) {  // lanes of a warp wait for each other's tiles
    constexpr int slow = 3;
    Scenario scenario = tile_scenario(1024, 16);
    scenario.tokens = {40, 40, 40, 40};
    scenario.top_k = 1;
    scenario.rule = [](const Scenario&, uint64_t, int rank, int64_t) {
      return std::vector<int64_t>{rank == slow ? 0 : 1};
    };
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario, 30000);
      Exchange exchange(rank, at.comm, scenario, 6);
      TileExperts experts(at.comm, at.handle, exchange);
      experts.prepare(rank.rank);
      exchange.dispatch_config.send_only = 1;
      const auto begin = [&] {
        exchange.dispatch(at.handle, at.stream);
        at.stream.synchronize();
      };
      if (rank.rank != 0) begin();
      masked::meet(rank, 0);
      if (rank.rank == 0) {
        HeldBack held(device_group(at.group), scenario, [](int source, int64_t) { return source == slow; });
        begin();
        experts.join(at.handle, scope, 1, at.stream);
        wait_until("tiles of rows that are here to be handed out", [&] { return experts.handed_now() == 8; });
        held.let_go();
      } else {
        experts.join(at.handle, scope, 1, at.stream);
      }
      ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      experts.check_handed(rank.rank, TileWords(at.comm, at.handle, scenario), 1);
      check_tile_round(exchange, experts, at.handle, rank.rank);
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("tiles: who asks for tiles hears of a rank that does not come, and of an abort", "[tiles][host][reduced]") {
  for (const bool aborts : {false, true}) {
    for (const uint32_t parts : {1, 0}) {
      const Scenario scenario = tile_scenario(64, 16);
      run_ranks(scenario.ranks, [&](Rank& rank) {
        constexpr int missing = 2;
        Session at(rank, scenario, aborts ? 30000 : 2000);
        Exchange exchange(rank, at.comm, scenario, 7);
        TileExperts experts(at.comm, at.handle, exchange);
        experts.prepare(rank.rank);
        exchange.dispatch_config.send_only = 1;
        masked::meet(rank, 1);
        if (rank.rank != missing) {
          exchange.dispatch(at.handle, at.stream);
          experts.join(at.handle, "warp", parts, at.stream);
        }
        masked::meet(rank, 2);
        if (aborts && rank.rank == 0) ok(ucclEpCommAbort(at.comm), "ucclEpCommAbort");
        if (rank.rank != missing) {
          wait_until("a failure", [&] { return experts.failed_now() != 0; });
          ucclEpStreamSynchronize(at.comm, at.stream);
          const ucclEpResult_t expected = !aborts ? ucclEpTimeout : rank.rank == 0 ? ucclEpAborted : ucclEpRemoteError;
          const ucclEpAsyncError_t error = async_error(at.comm);
          require(error.code == expected && (aborts || error.peer == missing), error.text);
        }
        masked::meet(rank, 0);
      });
    }
  }
}

TEST_CASE("tiles: a kernel joins handles with tiles alone, and begins other operations on handles without",
          "[tiles][process]") {
  const Scenario scenario = tile_scenario(64, 16);
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario, 8);
    TileExperts experts(at.comm, at.handle, exchange);
    experts.prepare(rank.rank);
    Scenario plain = scenario;
    plain.tile_rows = 0;
    const Handle other = make_handle(at.group, handle_config(plain));
    experts.join_as(other, at.stream);
    at.stream.synchronize();
    left_record(at, "shape", "layout is 1, expected 4");
    initiate_dispatch(exchange, at.handle, "warp", 1, at.stream);
    at.stream.synchronize();
    left_record(at, "shape", "layout is 4, expected 1");
  });
}

TEST_CASE("tiles: a consumer of HT takes them while others come", "[tiles][reduced][process][room][nodes]") {
  for (const int tile_rows : reduced() ? std::vector{16} : std::vector{16, 64}) {
    for (const Scenario& scenario : ht_tile_scenarios(1024, tile_rows)) consume_tiles(scenario);
  }
}

TEST_CASE("tiles: a consumer in a graph, replayed with other routing", "[tiles][reduced][process][room]") {
  for (const Back back : {Back::after, Back::beside}) {
    for (const int64_t hidden : {64, 1024}) replay_tiles(tile_scenario(hidden, 16), back);
  }
}

TEST_CASE("tiles: a consumer of HT in a graph, replayed with other routing", "[tiles][reduced][process][room][nodes]") {
  for (const Scenario& scenario : ht_tile_scenarios(64, 16)) replay_tiles(scenario, Back::after);
}

}  // namespace
}  // namespace ucclep::test

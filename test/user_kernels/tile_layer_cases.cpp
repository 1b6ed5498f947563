// SPDX-License-Identifier: Apache-2.0
// Kernels that send tiles, serve them, take them and send results back, in one launch.
#include <catch2/catch.hpp>
#include <functional>

#include "conformance/exchange.hpp"
#include "conformance/masked.hpp"
#include "support/test_env.hpp"
#include "tile_experts.hpp"

namespace ucclep::test {
namespace {

// A round of all ranks: what the kernel is given may be changed before.
struct TileLayer {
  Session& at;
  Exchange& exchange;
  TileExperts& experts;

  void launch(const std::string& scope, const TileLayerArgs& args, unsigned blocks = 4) {
    launch_user(at.handle, "layer_tiles_" + scope, &args, sizeof args, at.stream, {.blocks = blocks, .threads = 128});
  }
  void check(int rank, const TileLayerArgs& args) {
    experts.check(rank);
    experts.check_handed(rank, TileWords(at.comm, at.handle, exchange.scenario()), args.take.parts * args.rounds);
    exchange.take_places(at.handle);
    exchange.check_dispatch();
    if (args.take.shapes.back.hidden != 0) exchange.check_combine();
  }
};

using ChangeLayer = std::function<void(TileLayerArgs&)>;

void run_layer(const Rank& rank, Session& at, const Scenario& scenario, const std::string& scope, uint32_t seed,
               const ChangeLayer& change = {}) {
  Exchange exchange(rank, at.comm, scenario, scenario.seed + seed);
  TileExperts experts(at.comm, at.handle, exchange);
  experts.prepare(rank.rank);
  TileLayer layer{at, exchange, experts};
  TileLayerArgs args = experts.layer(at.handle, seed);
  if (change) change(args);
  layer.launch(scope, args, args.shares == 1 ? 4 : 8);
  at.stream.synchronize();
  layer.check(rank.rank, args);
}

void run_layers(const Scenario& scenario, const ChangeLayer& change = {}) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    uint32_t seed = 0;
    for (const std::string& scope : tile_scopes_of_run()) {
      for (int round = 0; round < 2; ++round) {
        try {
          run_layer(rank, at, scenario, scope, ++seed, change);
        } catch (const Failure& failure) {
          throw Failure(scope + ", round " + std::to_string(seed) + ": " + failure.what());
        }
      }
    }
    no_async_error(at.comm);
  });
}

TEST_CASE("tile layers: rows go out and results come back in one kernel", "[tiles][reduced][process][room]") {
  for (const int64_t hidden : {64, 1024}) run_layers(tile_scenario(hidden, 16));
}

TEST_CASE("tile layers: experts have copies", "[tiles][reduced][process]") {
  Scenario scenario = tile_scenario(64, 16);
  scenario.maps = some_maps(scenario, 13);
  run_layers(scenario);
}

TEST_CASE("tile layers: any bits, fp32 sums, and a bias", "[tiles][process]") {
  for (const int64_t hidden : {72, 1032}) {
    Scenario scenario = tile_scenario(hidden, 32);
    scenario.any_bits = true;
    scenario.combine_dtype = ucclEpFloat32;
    scenario.biases = 2;
    run_layers(scenario);
  }
}

TEST_CASE("tile layers: sums without weights", "[tiles][process]") {
  for (const int64_t hidden : {64, 1024}) {
    Scenario scenario = tile_scenario(hidden, 16);
    scenario.weights = Weights::none;
    run_layers(scenario);
  }
}

TEST_CASE("tile layers: fp8 rows with scales", "[tiles][process]") {
  for (const int64_t hidden : {144, 2048}) {
    Scenario scenario = tile_scenario(hidden, 16);
    scenario.dtype = ucclEpFloat8e4m3;
    scenario.any_bits = true;
    scenario.scales = Scales{.dtype = ucclEpFloat8e8m0, .width = 7};
    run_layers(scenario);
  }
}

TEST_CASE("tile layers: one expert has most, ranks have none, and nothing comes", "[tiles][reduced][process]") {
  for (const Rule& rule : {only({5}), uniform(100)}) {
    for (const int64_t hidden : {64, 1024}) {
      Scenario scenario = tile_scenario(hidden, 16);
      scenario.top_k = 1;
      scenario.tokens = {0, 40, 17, 0};
      scenario.rule = rule;
      run_layers(scenario);
    }
  }
}

TEST_CASE("tile layers: parts of tiles that are done in layers one after the other", "[tiles][reduced][process]") {
  for (const int64_t hidden : {64, 1024}) {
    run_layers(tile_scenario(hidden, 16), [](TileLayerArgs& args) {
      args.by_done = 1;
      args.take.parts = 3;
    });
    run_layers(tile_scenario(hidden, 16), [](TileLayerArgs& args) { args.rounds = 3; });
  }
}

TEST_CASE("tile layers: nothing goes back, in layers one after the other", "[tiles][reduced][process]") {
  for (const int64_t hidden : {64, 1024}) {
    run_layers(tile_scenario(hidden, 16), [](TileLayerArgs& args) {
      args.take.shapes.back.hidden = 0;
      args.rounds = 5;
    });
  }
}

TEST_CASE("tile layers: one rank, and many copies of a row on it", "[tiles][process]") {
  for (const int64_t hidden : {64, 1024}) {
    Scenario scenario = tile_scenario(hidden, 16);
    scenario.ranks = 1;
    scenario.experts = 12;
    scenario.top_k = 9;
    scenario.tokens = {33};
    scenario.combine_dtype = ucclEpFloat32;
    run_layers(scenario);
  }
}

TEST_CASE("tile layers: several warps serve a source", "[tiles][reduced][process]") {
  for (const int64_t hidden : {64, 1024}) {
    run_layers(tile_scenario(hidden, 16), [](TileLayerArgs& args) { args.shares = 3; });
  }
  Scenario scenario = tile_scenario(64, 16);  // more warps than most sources have rows
  scenario.top_k = 1;
  scenario.tokens = {0, 40, 1, 0};
  run_layers(scenario, [](TileLayerArgs& args) { args.shares = 3; });
}

// Rank 3 holds back its last token: tiles of all others go out to the experts meanwhile, though nobody has heard how
// many rows it sends.
TEST_CASE("tile layers: tiles are taken before a source has closed", "[tiles][host][process]") {
  for (const int64_t hidden : {64, 1024}) {
    Scenario scenario = tile_scenario(hidden, 16);
    scenario.tokens = {40, 40, 40, 40};
    scenario.top_k = 1;
    scenario.rule = only({0});
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario, 30000);
      Exchange exchange(rank, at.comm, scenario, scenario.seed);
      TileExperts experts(at.comm, at.handle, exchange);
      experts.prepare(rank.rank);
      TileLayer layer{at, exchange, experts};
      TileLayerArgs args = experts.layer(at.handle, 1);
      uint32_t held = 0;
      if (rank.rank == 3) args.held = &held;
      layer.launch("warp", args);
      // Of the 160 rows of expert 0 all but one.
      if (rank.rank == 0) wait_until("tiles of rows that are here", [&] { return experts.handed_now() == 159 / 16; });
      masked::meet(rank, 0);
      __atomic_store_n(&held, 2, __ATOMIC_RELEASE);
      at.stream.synchronize();
      layer.check(rank.rank, args);
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("tile layers: a rank that does not close, and one that does not come", "[tiles][host][reduced]") {
  for (const bool comes : {true, false}) {
    const Scenario scenario = tile_scenario(64, 16);
    run_ranks(scenario.ranks, [&](Rank& rank) {
      constexpr int missing = 2;
      Session at(rank, scenario, 2000);
      Exchange exchange(rank, at.comm, scenario, scenario.seed);
      TileExperts experts(at.comm, at.handle, exchange);
      experts.prepare(rank.rank);
      TileLayer layer{at, exchange, experts};
      TileLayerArgs args = experts.layer(at.handle, 1);
      args.never_closes = rank.rank == missing ? 1 : 0;
      masked::meet(rank, 1);
      if (comes || rank.rank != missing) {
        layer.launch("warp", args);
        ucclEpStreamSynchronize(at.comm, at.stream);
        const ucclEpAsyncError_t error = async_error(at.comm);
        require(error.code == ucclEpTimeout || error.code == ucclEpRemoteError, error.text);
        require(error.code != ucclEpTimeout || error.peer == missing, error.text);
        require(experts.failed_now() != 0, "no scope heard of it");
      }
      masked::meet(rank, 0);
    });
  }
}

TEST_CASE("tile layers: ranks that differ end without a tile and go on", "[tiles][process]") {
  const Scenario scenario = tile_scenario(64, 16);
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    {
      Exchange exchange(rank, at.comm, scenario, scenario.seed);
      TileExperts experts(at.comm, at.handle, exchange);
      experts.prepare(rank.rank);
      TileLayer layer{at, exchange, experts};
      TileLayerArgs args = experts.layer(at.handle, 1);
      if (rank.rank == 1) args.take.shapes.out.hidden /= 2;
      layer.launch("warp", args);
      at.stream.synchronize();
      left_record(at, "settings", "hidden");
      require(experts.failed_now() != 0, "no scope heard of it");
    }
    run_layer(rank, at, scenario, "block", 2);
    no_async_error(at.comm);
  });
}

}  // namespace
}  // namespace ucclep::test

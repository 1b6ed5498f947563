// SPDX-License-Identifier: Apache-2.0
// Handles of layout TILES: rows lie by expert in the order of their arrival, and words say which are there.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "conformance/exchange.hpp"
#include "conformance/masked.hpp"
#include "conformance/tiled.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// One expert of each rank has most of it, some have nothing.
Rule hot_expert() {
  return [](const Scenario& s, uint64_t seed, int rank, int64_t token) {
    std::vector<int64_t> experts(static_cast<size_t>(s.top_k), -1);
    for (size_t k = 0; k < experts.size(); ++k) {
      const uint64_t draw = mix(seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(token), k);
      const auto expert = static_cast<int64_t>(draw % static_cast<uint64_t>(s.experts));
      const int64_t chosen = k == 0 ? s.experts - 1 : draw % 7 == 0 ? -1 : expert / 3 * 2;
      if (std::find(experts.begin(), experts.end(), chosen) == experts.end()) experts[k] = chosen;
    }
    return experts;
  };
}

void run_in_both_modes(const Scenario& scenario) {
  for (const Scenario& one : in_both_modes(scenario)) run_tiles({one});
}

TEST_CASE("tiles: rows of every expert, each once", "[tiles][process][reduced][driver][checked]") {
  for (const int tile_rows : reduced() ? std::vector{16} : std::vector{16, 32, 64, 128, 256}) {
    for (const int64_t hidden : {hidden_in_lines, hidden_in_bulk}) {
      run_in_both_modes({.experts = 20,
                         .top_k = 4,
                         .max_tokens = 21,
                         .hidden = hidden,
                         .any_bits = true,
                         .biases = 1,
                         .tile_rows = tile_rows,
                         .rule = uniform(20),
                         .seed = 801});
    }
  }
}

TEST_CASE("tiles: whole operations", "[tiles][process][reduced][driver][modes]") {
  for (const int64_t hidden : {hidden_in_lines, hidden_in_bulk}) {
    for (const Scenario& scenario : in_both_modes({.experts = 28,
                                                   .top_k = 3,
                                                   .max_tokens = 24,
                                                   .tokens = {24, 0, 17, 1},
                                                   .hidden = hidden,
                                                   .tile_rows = 32,
                                                   .rule = uniform(20),
                                                   .seed = 805})) {
      run(scenario, 2);
    }
  }
}

TEST_CASE("tiles: one expert has most rows, ranks have none", "[tiles][driver]") {
  for (const int64_t hidden : {hidden_in_lines, hidden_in_bulk}) {
    run_in_both_modes({.experts = 28,
                       .top_k = 5,
                       .max_tokens = 40,
                       .tokens = {0, 40, 17, 0},
                       .hidden = hidden,
                       .tile_rows = 16,
                       .rule = hot_expert(),
                       .seed = 810});
    for (const int64_t expert : {5, -1}) {
      run_in_both_modes({.experts = 12,
                         .top_k = 1,
                         .max_tokens = 64,
                         .hidden = hidden,
                         .tile_rows = 16,
                         .rule = only({expert}),
                         .seed = 811});
    }
  }
}

TEST_CASE("tiles: quantised on the way, and bytes with scales", "[tiles][driver]") {
  for (const int64_t hidden : {256, 1024}) {
    run_in_both_modes({.experts = 16,
                       .top_k = 3,
                       .max_tokens = 12,
                       .hidden = hidden,
                       .scales = Scales{},
                       .quant = UCCLEP_QUANT_FP8_128,
                       .tile_rows = 16,
                       .seed = 820});
    run_in_both_modes({.experts = 16,
                       .top_k = 3,
                       .max_tokens = 12,
                       .hidden = hidden,
                       .dtype = ucclEpFloat8e4m3,
                       .scales = Scales{.width = 4},
                       .tile_rows = 16,
                       .carried = true,
                       .strided = true,
                       .seed = 821});
  }
}

TEST_CASE("tiles: sums without weights", "[tiles][reduced][driver]") {
  for (const int64_t hidden : {hidden_in_lines, hidden_in_bulk}) {
    run_in_both_modes({.experts = 16,
                       .top_k = 4,
                       .max_tokens = 12,
                       .hidden = hidden,
                       .weights = Weights::none,
                       .tile_rows = 16,
                       .seed = 830});
  }
}

void there_and_back_in_phases(const Rank& rank, Session& at, const Scenario& scenario, uint64_t seed) {
  tiles_in_phases(rank, at.comm, at.handle, at.stream, scenario, seed);
  const TileWords forward(at.comm, at.handle, scenario);
  Exchange gradients(rank, at.comm, backward_of(scenario), seed);
  gradients.dispatch_config.send_only = 1;
  gradients.dispatch(at.handle, at.stream);
  complete_tiles(at.handle, at.stream);
  at.stream.synchronize();
  const TileWords backward(at.comm, at.handle, scenario);
  require(forward.src_info == backward.src_info, "rows of the backward pass lie elsewhere");
  gradients.take_places(at.handle);
  gradients.check_dispatch();
  gradients.combine(at.handle, at.stream);
  at.stream.synchronize();
  gradients.check_combine();
}

TEST_CASE("tiles: the backward pass takes the places of the forward one", "[tiles][reduced][driver]") {
  for (const int64_t hidden : {hidden_in_lines, hidden_in_bulk}) {
    for (const Scenario& scenario : in_both_modes({.experts = 16,
                                                   .top_k = 3,
                                                   .max_tokens = 21,
                                                   .tokens = {21, 4, 0, 13},
                                                   .hidden = hidden,
                                                   .tile_rows = 16,
                                                   .rule = uniform(20),
                                                   .seed = 840})) {
      run_ranks(scenario.ranks, [&](Rank& rank) {
        Session at(rank, scenario);
        for (uint64_t round = 0; round < 2; ++round) {
          there_and_back(rank, at.comm, at.handle, at.stream, scenario, scenario.seed + round);
          there_and_back_in_phases(rank, at, scenario, scenario.seed + round + 10);
        }
        no_async_error(at.comm);
      });
    }
  }
}

void handles_beside_each_other(const Scenario& scenario) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Handle other = make_handle(at.group, handle_config(scenario));
    Scenario plain = scenario;
    plain.tile_rows = 0;
    plain.carried = true;
    Handle third = make_handle(at.group, handle_config(plain));
    Exchange exchange(rank, at.comm, scenario, scenario.seed), second(rank, at.comm, scenario, scenario.seed + 1);
    for (uint64_t round = 0; round < 3; ++round) {
      if (round != 0) {
        exchange.refresh(round);
        second.refresh(round + 10);
      }
      begin_tiles(exchange, at.handle, at.stream);
      begin_tiles(second, other, at.stream);
      complete_tiles(other, at.stream);
      Exchange between(rank, at.comm, plain, round + 30);
      complete_tiles(at.handle, at.stream);
      between.dispatch(third, at.stream);
      between.combine(third, at.stream);
      at.stream.synchronize();
      exchange.take_places(at.handle);
      exchange.check_dispatch();
      between.check_all();
      check_tiles_and_combine(second, other, at.stream);

      exchange.refresh(round + 5);
      begin_tiles(exchange, at.handle, at.stream);
      exchange.combine(at.handle, at.stream);  // with rows that were made before, wherever these lie
      at.stream.synchronize();
      exchange.take_places(at.handle);
      exchange.check_dispatch();
      complete_tiles(at.handle, at.stream);  // nothing is pending
    }
    no_async_error(at.comm);
  });
}

TEST_CASE("tiles: a whole combine ends the dispatch, and other handles go on meanwhile", "[tiles][process][driver]") {
  const Scenario scenario{.experts = 16,
                          .top_k = 3,
                          .max_tokens = 21,
                          .hidden = hidden_in_lines,
                          .tile_rows = 16,
                          .num_sms = 2,  // two services are resident at once, beside those of ranks on the same GPU
                          .seed = 850};
  for (const Scenario& one : in_both_modes(scenario)) handles_beside_each_other(one);
}

TEST_CASE("tiles: calls that are refused", "[tiles][process][driver]") {
  const Scenario scenario = in_tiles({.experts = 16, .top_k = 3, .max_tokens = 9, .seed = 890});
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    ucclEpHandleConfig_t config = handle_config(scenario);
    const auto is_no_handle = [&](ucclEpResult_t code, const std::vector<std::string>& words) {
      ucclEpHandle_t handle = nullptr;
      refused(ucclEpHandleCreate(&handle, at.group, &config), code, "ucclEpHandleCreate", words);
      config = handle_config(scenario);
    };
    for (const int rows : {-1, 1, 8, 48, 512}) {
      config.tile_rows = rows;
      is_no_handle(ucclEpInvalidArgument, {"config.tile_rows is " + std::to_string(rows), "16 to 256"});
    }
    config.layout = UCCLEP_LAYOUT_EXPERT_MAJOR;
    is_no_handle(ucclEpInvalidArgument, {"config.tile_rows is 16", "UCCLEP_LAYOUT_TILES"});
    config.expert_alignment = 1;
    is_no_handle(ucclEpInvalidArgument, {"config.expert_alignment is 1", "TILES"});
    config.waves = 2;
    is_no_handle(ucclEpInvalidArgument, {"config.waves is 2", "EXPERT_MAJOR"});
    config.layout = 5;
    is_no_handle(ucclEpInvalidArgument, {"config.layout is 5"});

    ucclEpTiles_t tiles = UCCLEP_TILES_INIT;
    Scenario plain = scenario;
    plain.tile_rows = 0;
    const Handle other = make_handle(at.group, handle_config(plain));
    refused(ucclEpHandleGetTiles(other, &tiles), ucclEpInvalidUsage, "ucclEpHandleGetTiles", {"UCCLEP_LAYOUT_TILES"});
    refused(ucclEpHandleGetTiles(at.handle, nullptr), ucclEpInvalidArgument, "ucclEpHandleGetTiles", {"out"});
    tiles.magic = 0;
    refused(ucclEpHandleGetTiles(at.handle, &tiles), ucclEpInvalidArgument, "ucclEpHandleGetTiles",
            {"UCCLEP_TILES_INIT"});

    Exchange exchange(rank, at.comm, scenario, scenario.seed);
    exchange.update(at.handle, at.stream);
    Exchange gradients(rank, at.comm, backward_of(scenario), scenario.seed);
    refused(gradients.try_dispatch(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpDispatch", {"TILES", "forward"});
    ucclEpTensor_t narrow = *exchange.dispatch_out.tokens;
    narrow.sizes[1] = scenario.ranks * scenario.max_rows();
    exchange.dispatch_out.tokens = &narrow;
    refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch", {"tile_rows"});
    exchange.dispatch_out.tokens = nullptr;
    refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch", {"outputs.tokens"});
    exchange.dispatch_out.tokens = exchange.tokens_out().get();
    begin_tiles(exchange, at.handle, at.stream);
    refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpDispatch", {"pending"});
    refused(exchange.try_update(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpHandleUpdate", {"pending"});
    Scenario late = scenario;
    late.weights = Weights::with_combine;
    Exchange weighted(rank, at.comm, late, scenario.seed);
    refused(weighted.try_combine(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpCombine",
            {"inputs.topk_weights", "TILES"});
    complete_tiles(at.handle, at.stream);
    check_tiles_and_combine(exchange, at.handle, at.stream);
    masked::meet(rank, 0);
  });
}

TEST_CASE("tiles: groups with masks have none yet", "[tiles]") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .ranks = 2, .experts = 4, .tile_rows = 16, .masked = true};
  Scenario plain = scenario;
  plain.tile_rows = 0;
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, plain);
    for (const Scenario& one : in_both_modes(scenario)) {
      const ucclEpHandleConfig_t config = handle_config(one);
      ucclEpHandle_t handle = nullptr;
      refused(ucclEpHandleCreate(&handle, at.group, &config), ucclEpNotSupported, "ucclEpHandleCreate",
              {"TILES", "enable_mask"});
    }
    masked::meet(rank, 0);
  });
}

}  // namespace
}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// Consumers of tiles: a kernel that works on each tile when it is there, while others are still on their way.
#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "conformance/exchange.hpp"
#include "conformance/masked.hpp"
#include "conformance/tile_words.hpp"
#include "launch_user.hpp"
#include "support/graph.hpp"
#include "support/test_env.hpp"
#include "tile_kernels.hpp"

namespace ucclep::test {
namespace {

Scenario tile_scenario(int64_t hidden, int tile_rows) {
  return {.layout = Layout::ll_expert_major,
          .experts = 20,
          .top_k = 3,
          .max_tokens = 40,
          .tokens = {40, 0, 17, 33},
          .hidden = hidden,
          .tile_rows = tile_rows,
          .carried = true,
          .num_sms = 2,  // the others are the consumer's
          .rule = uniform(20)};
}

// The same in HT, in one round, and in more than there are slots.
std::vector<Scenario> ht_tile_scenarios(int64_t hidden, int tile_rows) {
  Scenario scenario = tile_scenario(hidden, tile_rows);
  scenario.layout = Layout::ht_expert_major;
  scenario.alignment = tile_rows;
  scenario.fixed_capacity = 90 * scenario.top_k + scenario.local_experts() * tile_rows;
  Scenario in_rounds = scenario;
  in_rounds.round = 9;
  return {scenario, in_rounds};
}

// A rank's experts, which see a row and answer.
class TileExperts {
 public:
  TileExperts(ucclEpComm_t comm, ucclEpHandle_t handle, Exchange& exchange)
      : exchange_(exchange),
        seen_(comm, "rows that the consumer saw", exchange.scenario().dtype, shape(exchange.scenario().hidden)),
        answers_(comm, "answers", exchange.scenario().combine_dtype, shape(exchange.scenario().combined_hidden())),
        late_(comm, "late", ucclEpInt32, {1}) {
    const Scenario& scenario = exchange.scenario();
    ucclEpTiles_t tiles = UCCLEP_TILES_INIT;
    ok(ucclEpHandleGetTiles(handle, &tiles), "ucclEpHandleGetTiles");
    const auto data = [](const Tensor& tensor) { return static_cast<char*>(tensor.get()->data); };
    args_ = {tiles,
             static_cast<uint32_t>(scenario.tile_rows),
             static_cast<uint32_t>(scenario.max_rows()),
             bytes_of(scenario.dtype, scenario.hidden),
             bytes_of(scenario.combine_dtype, scenario.combined_hidden()),
             data(seen_),
             data(answers_),
             static_cast<char*>(exchange.combine_in.tokens->data),
             static_cast<uint64_t>(slots()),
             reinterpret_cast<uint32_t*>(data(late_)),
             30'000'000'000,
             1,
             false};
    late_.set_integers({0});
    late_.upload();
  }

  // Before a dispatch, while nothing runs.
  void prepare(int rank) {
    const Contents& contents = exchange_.contents();
    seen_.poison();
    for (const reference::Slot& slot : contents.placed(rank).slots) {
      const int64_t row = slot.expert * slots() + slot.source * exchange_.scenario().max_rows() + slot.token;
      seen_.fill_row(row, contents.received(slot.source, slot.token).bytes.data());
      for (int64_t column = 0; column < exchange_.scenario().combined_hidden(); ++column) {
        reference::store(exchange_.scenario().combine_dtype, answers_.element(row, column),
                         contents.combine_input(rank, slot.row, column));
      }
    }
    answers_.upload();
    exchange_.hide_rows_back();
  }
  void count_as_done(uint32_t times) { args_.times = times; }
  uint32_t times() const { return args_.times; }
  void turn_round() { args_.backwards = !args_.backwards; }
  void work(ucclEpHandle_t handle, ucclEpStream_t stream) {
    launch_user(handle, "tile_consumer", &args_, sizeof args_, stream, {.blocks = 3, .threads = 128});
  }
  void check(int rank) {
    late_.verify(rank);
    seen_.verify(rank);
  }

 private:
  static uint64_t bytes_of(ucclEpDataType_t dtype, int64_t elements) {
    return reference::element_bytes(dtype) * static_cast<uint64_t>(elements);
  }
  int64_t slots() const { return exchange_.scenario().ranks * exchange_.scenario().max_rows(); }
  Tensor::Shape shape(int64_t width) const { return {exchange_.scenario().local_experts(), slots(), width}; }

  Exchange& exchange_;
  Tensor seen_, answers_, late_;
  TileConsumerArgs args_{};
};

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

void check_tile_round(Exchange& exchange, TileExperts& experts, ucclEpHandle_t handle, int rank) {
  experts.check(rank);
  const TileWords words(exchange.comm(), handle, exchange.scenario());
  for (size_t t = 0; t < words.done.size(); ++t) {
    require(words.done[t] == (words.ready[t] == 1 ? experts.times() : 0u),
            "tile_done of tile " + std::to_string(t) + " is " + std::to_string(words.done[t]) + ", tile_ready is " +
                std::to_string(words.ready[t]));
  }
  exchange.take_places(handle);
  exchange.check_counters();
  exchange.check_dispatch();
  exchange.check_combine();
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

// SPDX-License-Identifier: Apache-2.0
// Combine beside a pending dispatch of tiles: partial rows leave as tiles are done. Experts are on the host, which
// makes results where the host device reads them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <string>

#include "conformance/late_stores.hpp"
#include "conformance/tiled.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

int64_t words_now(const ucclEpTiles_t& tiles, uint32_t word) {
  return std::count_if(tiles.tile_ready, tiles.tile_ready + tiles.tiles,
                       [&](uint32_t& one) { return __atomic_load_n(&one, __ATOMIC_ACQUIRE) == word; });
}

// Before the consumers: dispatch and combine, of which the stream goes on.
void begin_both(Exchange& exchange, ucclEpHandle_t handle, Stream& stream, int done_target = 0) {
  if (exchange.scenario().pass == UCCLEP_PASS_FORWARD) {
    begin_tiles(exchange, handle, stream);
  } else {
    exchange.dispatch_config.send_only = 1;
    exchange.dispatch(handle, stream);
  }
  exchange.combine_config.send_only = 1;
  exchange.combine_config.done_target = done_target;
  exchange.combine(handle, stream);
  stream.synchronize();
}

// Results of a rank's experts, tile by tile. All rows have come, and no result is there.
class HostExperts {
 public:
  HostExperts(Exchange& exchange, ucclEpHandle_t handle) {
    ok(ucclEpHandleGetTiles(handle, &tiles_), "ucclEpHandleGetTiles");
    wait_until("all rows", [&] { return words_now(tiles_, 0) == 0; });
    exchange.take_places(handle);
    const Scenario& scenario = exchange.scenario();
    hide(rows_, *exchange.combine_in.tokens,
         reference::element_bytes(scenario.combine_dtype) * static_cast<size_t>(scenario.combined_hidden()));
    if (exchange.combine_in.topk_weights != nullptr && scenario.pass == UCCLEP_PASS_BACKWARD)
      hide(weights_, *exchange.combine_in.topk_weights, sizeof(float));
  }

  // Those that have rows, in the order of their numbers.
  std::vector<int64_t> tiles() const {
    std::vector<int64_t> all;
    for (int64_t t = 0; t < tiles_.tiles; ++t) {
      if (__atomic_load_n(tiles_.tile_ready + t, __ATOMIC_ACQUIRE) == 1) all.push_back(t);
    }
    return all;
  }
  int64_t expert_of(int64_t tile) const { return tiles_.tile_expert[tile]; }

  // times: how often the tile counts as done; but for the last of them nothing is made yet.
  void work(int64_t tile, uint32_t times = 1) {
    if (times > 1) __atomic_fetch_add(tiles_.tile_done + tile, times - 1, __ATOMIC_RELEASE);
    make(rows_, tile);
    make(weights_, tile);
    __atomic_fetch_add(tiles_.tile_done + tile, 1, __ATOMIC_RELEASE);
  }

 private:
  struct Made {
    char* to = nullptr;
    size_t bytes = 0;  // of a row
    std::vector<char> all;
  };

  void hide(Made& made, const ucclEpTensor_t& tensor, size_t bytes) {
    made.to = static_cast<char*>(tensor.data);
    made.bytes = bytes;
    made.all.assign(made.to, made.to + bytes * static_cast<size_t>(tiles_.capacity));
    std::memset(made.to, 0xff, made.all.size());  // NaN
  }
  void make(const Made& made, int64_t tile) const {
    const size_t bytes = made.bytes * static_cast<size_t>(tiles_.capacity / tiles_.tiles),
                 at = bytes * static_cast<size_t>(tile);
    if (bytes != 0) std::memcpy(made.to + at, made.all.data() + at, bytes);
  }

  ucclEpTiles_t tiles_ = UCCLEP_TILES_INIT;
  Made rows_, weights_;
};

enum class Order { ascending, reverse, mixed };

void work_in(Order order, HostExperts& experts, uint32_t times, uint64_t seed) {
  std::vector<int64_t> tiles = experts.tiles();
  if (order == Order::reverse) std::ranges::reverse(tiles);
  if (order == Order::mixed)
    std::ranges::sort(tiles, {}, [&](int64_t t) { return mix(seed, static_cast<uint64_t>(t)); });
  for (const int64_t tile : tiles) experts.work(tile, times);
}

void check_back(Exchange& exchange, ucclEpHandle_t handle, Stream& stream) {
  complete_tiles(handle, stream);
  stream.synchronize();
  exchange.check_dispatch();
  exchange.check_combine();
}

void send_and_return(const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream,
                     const Scenario& scenario, Order order, int done_target, uint64_t seed) {
  Exchange exchange(rank, comm, scenario, seed);
  begin_both(exchange, handle, stream, done_target);
  HostExperts experts(exchange, handle);
  work_in(order, experts, static_cast<uint32_t>(std::max(1, done_target)), seed);
  check_back(exchange, handle, stream);
}

void run_back(const Scenario& scenario) {
  run_each(
      {scenario},
      [](const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream, const Scenario& s, uint64_t seed) {
        for (const Order order : {Order::ascending, Order::reverse, Order::mixed}) {
          for (const int target : {0, 4}) send_and_return(rank, comm, handle, stream, s, order, target, seed + 7);
        }
        round_trip(rank, comm, handle, stream, s, seed + 100);  // whole operations of the same handle
      },
      2);
}

TEST_CASE("tiles back: sums of rows whose tiles are done in any order", "[tiles][host][process][reduced][checked]") {
  for (const int tile_rows : reduced() ? std::vector{16} : std::vector{16, 64}) {
    for (const int64_t hidden : {hidden_in_lines, hidden_in_bulk}) {
      run_back(in_tiles({.experts = 20,
                         .top_k = 4,
                         .max_tokens = 21,
                         .tokens = {21, 4, 0, 13},
                         .hidden = hidden,
                         .biases = 1,
                         .rule = uniform(20),
                         .seed = 901},
                        tile_rows));
    }
  }
}

TEST_CASE("tiles back: one expert has most rows", "[tiles][host]") {
  const Rule hot = [](const Scenario& s, uint64_t seed, int rank, int64_t token) {
    const uint64_t draw = mix(seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(token));
    return std::vector<int64_t>{5, draw % 3 == 0 ? -1 : static_cast<int64_t>(6 + draw % 2),
                                draw % 5 == 0 ? s.experts - 1 : 0};
  };
  for (const int64_t hidden : {hidden_in_lines, hidden_in_bulk}) {
    run_back(in_tiles({.experts = 12, .top_k = 3, .max_tokens = 64, .hidden = hidden, .rule = hot, .seed = 905}));
  }
}

TEST_CASE("tiles back: no rows, no weights, few blocks", "[tiles][host][reduced]") {
  run_back(in_tiles({.experts = 8, .top_k = 2, .max_tokens = 16, .rule = only({-1, -1}), .seed = 910}));
  for (const int64_t hidden : {hidden_in_lines, hidden_in_bulk}) {
    run_back(in_tiles({.experts = 16,
                       .top_k = 4,
                       .max_tokens = 40,
                       .hidden = hidden,
                       .combine_dtype = ucclEpFloat32,
                       .weights = Weights::none,
                       .num_sms = 1,
                       .seed = 911}));
  }
}

TEST_CASE("tiles back: gradients, and rows of weights", "[tiles][host][reduced]") {
  for (const int64_t hidden : {hidden_in_lines, hidden_in_bulk}) {
    const Scenario scenario =
        in_tiles({.experts = 16, .top_k = 3, .max_tokens = 21, .hidden = hidden, .rule = uniform(20), .seed = 920});
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario);
      for (uint64_t round = 0; round < 2; ++round) {
        send_and_return(rank, at.comm, at.handle, at.stream, scenario, Order::mixed, 0, scenario.seed + round);
        send_and_return(rank, at.comm, at.handle, at.stream, backward_of(scenario), Order::reverse, 0,
                        scenario.seed + round);
      }
      no_async_error(at.comm);
    });
  }
}

// Of the group's first combine: which partial rows from a rank have come.
class PartialRows {
 public:
  PartialRows(ucclEpGroup_t group, int64_t row_bytes, int64_t most_rows)
      : group_(device_group(group)),
        packets_(ceil_div(static_cast<uint64_t>(row_bytes), 8)),
        parts_(ceil_div(static_cast<uint64_t>(row_bytes), ll_part_bytes)),
        lines_(static_cast<uint64_t>(most_rows) * packets_ * sizeof(Packet) <= group_.shape.line_capacity) {}

  bool here(uint32_t from, int64_t place) const {
    const uint32_t slot = group_.shape.slot_of(seq);
    const auto row = static_cast<uint64_t>(place);
    const uint64_t first = lines_ ? group_.layout.back_lines_of(slot, from) + row * packets_ * sizeof(Packet) + 8
                                  : group_.layout.back_epochs_of(slot, from) + row * parts_ * 8;
    for (uint64_t i = 0; i < (lines_ ? packets_ : parts_); ++i) {
      uint64_t* const word = words_at(group_, group_.rank, first + i * (lines_ ? sizeof(Packet) : 8));
      if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != seq) return false;
    }
    return true;
  }

 private:
  static constexpr uint64_t seq = 1;
  const ucclEpDeviceGroup group_;
  const uint64_t packets_, parts_;
  const bool lines_;
};

// Of rank 0's experts the one of the early tokens has done its tiles: their results have come home while tiles of the
// other, of later tokens, and of those that have both, are not done.
TEST_CASE("tiles back: results come home while other tiles are not done", "[tiles][host][process][room]") {
  constexpr int64_t tokens = 40, early = 16, both = 24;  // below early: expert 0; below both: experts 0 and 1; then 1
  const Rule rule = [](const Scenario&, uint64_t, int, int64_t token) {
    return std::vector<int64_t>{token < both ? 0 : -1, token >= early ? 1 : -1};
  };
  for (const int num_sms : {1, 4}) {
    for (const int64_t hidden : {hidden_in_lines, hidden_in_bulk}) {
      const Scenario scenario = in_tiles({.experts = 8,
                                          .top_k = 2,
                                          .max_tokens = tokens,
                                          .hidden = hidden,
                                          .num_sms = num_sms,
                                          .rule = rule,
                                          .seed = 930});
      run_ranks(scenario.ranks, [&](Rank& rank) {
        Session at(rank, scenario, 30000);
        Exchange exchange(rank, at.comm, scenario, scenario.seed);
        begin_both(exchange, at.handle, at.stream);
        HostExperts experts(exchange, at.handle);
        const PartialRows partials(at.group, 2 * hidden, tokens);
        for (const int64_t tile : experts.tiles()) {
          if (experts.expert_of(tile) == 0) experts.work(tile);
        }
        for (int64_t token = 0; token < early; ++token) {
          wait_until("results of an early token", [&] { return partials.here(0, token); });
        }
        for (int64_t token = early; token < tokens; ++token) {
          require(!partials.here(0, token), "token " + std::to_string(token) + " came before all its tiles were done");
        }
        masked::meet(rank, 0);
        for (const int64_t tile : experts.tiles()) {
          if (experts.expert_of(tile) == 1) experts.work(tile);
        }
        check_back(exchange, at.handle, at.stream);
        no_async_error(at.comm);
      });
    }
  }
}

TEST_CASE("tiles back: other handles go on meanwhile", "[tiles][host][process]") {
  Scenario scenario = in_tiles({.experts = 16, .top_k = 3, .max_tokens = 21, .seed = 940});
  scenario.num_sms = 2;
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Scenario plain = scenario;
    plain.tile_rows = 0;
    const Handle other = make_handle(at.group, handle_config(plain));
    for (uint64_t round = 0; round < 3; ++round) {
      Exchange exchange(rank, at.comm, scenario, round), between(rank, at.comm, plain, round + 10);
      begin_both(exchange, at.handle, at.stream);
      between.update(other, at.stream);
      between.dispatch(other, at.stream);
      between.combine(other, at.stream);
      HostExperts experts(exchange, at.handle);
      work_in(Order::mixed, experts, 1, round);
      at.stream.synchronize();
      between.check_all();
      check_back(exchange, at.handle, at.stream);
    }
    no_async_error(at.comm);
  });
}

// Rank 1 leaves out a tile, or all of them.
TEST_CASE("tiles back: a consumer that does not end", "[tiles][host][process][room]") {
  for (const bool some : {false, true}) {
    const Scenario scenario = in_tiles({.experts = 8, .top_k = 2, .max_tokens = 40, .seed = 950});
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario, 3000);
      Exchange exchange(rank, at.comm, scenario, scenario.seed);
      masked::meet(rank, 2);
      begin_both(exchange, at.handle, at.stream, 2);
      HostExperts experts(exchange, at.handle);
      const std::vector<int64_t> tiles = experts.tiles();
      masked::meet(rank, 0);
      for (const int64_t tile : tiles) {
        if (rank.rank != 1 || (some && tile != tiles.back())) experts.work(tile, 2);
      }
      ucclEpResult_t result = ucclEpComplete(at.handle, at.stream);
      if (result == ucclEpSuccess) result = ucclEpStreamSynchronize(at.comm, at.stream);
      // Rows take places as they arrive: the tile may have none of a rank.
      const bool may_end = some && rank.rank != 1;
      require(result == ucclEpTimeout || result == ucclEpRemoteError || (may_end && result == ucclEpSuccess),
              "the combine did not fail");
      if (result == ucclEpSuccess) exchange.check_combine();
      if (rank.rank == 1) {
        const ucclEpAsyncError_t error = async_error(at.comm);
        const std::string text = error.text;
        const std::string tile =
            some ? "tile_done of tile " + std::to_string(tiles.back()) + " is 0" : "tile_done of tile";
        const bool said = text.find(tile) != std::string::npos && text.find("expected at least 2") != std::string::npos;
        // A peer whose own wait was over first has ended it all.
        require(said || error.code == ucclEpRemoteError, text);
      }
      masked::meet(rank, 1);
    });
  }
}

// A dispatch that fails ends the combine beside it.
TEST_CASE("tiles back: a dispatch that fails", "[tiles][host][process][room]") {
  constexpr int missing = 2;
  const Scenario scenario = in_tiles({.experts = 8, .top_k = 2, .max_tokens = 21, .seed = 960});
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario, 3000);
    Exchange exchange(rank, at.comm, scenario, scenario.seed);
    exchange.update(at.handle, at.stream);
    at.stream.synchronize();
    masked::meet(rank, 1);
    if (rank.rank != missing) {
      exchange.dispatch_config.send_only = exchange.combine_config.send_only = 1;
      exchange.dispatch(at.handle, at.stream);
      ucclEpResult_t result = exchange.try_combine(at.handle, at.stream);
      if (result == ucclEpSuccess) result = ucclEpComplete(at.handle, at.stream);
      if (result == ucclEpSuccess) result = ucclEpStreamSynchronize(at.comm, at.stream);
      const ucclEpAsyncError_t error = async_error(at.comm);
      require(result == ucclEpTimeout && error.code == ucclEpTimeout && error.peer == missing &&
                  std::string(error.op) == "dispatch",
              error.text);
    }
    masked::meet(rank, 0);
  });
}

TEST_CASE("tiles back: ranks that differ", "[tiles][host][process]") {
  run_ranks(4, [&](Rank& rank) {
    Scenario scenario = in_tiles({.experts = 8, .top_k = 2, .max_tokens = 21, .seed = 965});
    if (rank.rank == 2) scenario.weights = Weights::none;
    Session at(rank, scenario, 20000);
    Exchange exchange(rank, at.comm, scenario, scenario.seed);
    begin_both(exchange, at.handle, at.stream);
    complete_tiles(at.handle, at.stream);
    at.stream.synchronize();
    const ucclEpAsyncError_t error = async_error(at.comm);
    require(error.code == ucclEpInvalidArgument && std::string(error.text).find("topk_weights") != std::string::npos,
            error.text);
    ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
    masked::meet(rank, 0);
    scenario.weights = Weights::with_dispatch;
    send_and_return(rank, at.comm, at.handle, at.stream, scenario, Order::mixed, 0, 3);
    no_async_error(at.comm);
  });
}

TEST_CASE("tiles back: calls that are refused", "[tiles][host][process]") {
  const Scenario scenario = in_tiles({.experts = 16, .top_k = 3, .max_tokens = 9, .seed = 970});
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario, scenario.seed);
    begin_tiles(exchange, at.handle, at.stream);
    ucclEpCombineConfig_t& config = exchange.combine_config;
    config.send_only = 1;
    const auto is_refused = [&](ucclEpResult_t code, const std::vector<std::string>& words) {
      refused(exchange.try_combine(at.handle, at.stream), code, "ucclEpCombine", words);
      config.done_target = config.quant = 0;
    };
    config.done_target = -1;
    is_refused(ucclEpInvalidArgument, {"config.done_target is -1"});
    config.quant = UCCLEP_QUANT_FP8_128;
    is_refused(ucclEpNotSupported, {"config.quant"});
    config.quant = 9;
    is_refused(ucclEpInvalidArgument, {"config.quant is 9"});
    const Stream second(at.comm);
    ok(ucclEpStreamBeginCapture(at.comm, second), "ucclEpStreamBeginCapture");
    refused(exchange.try_combine(at.handle, second), ucclEpInvalidUsage, "ucclEpCombine", {"not captured"});
    ucclEpGraph_t graph = nullptr;
    ok(ucclEpStreamEndCapture(at.comm, second, &graph), "ucclEpStreamEndCapture");
    ok(ucclEpGraphDestroy(at.comm, graph), "ucclEpGraphDestroy");
    exchange.combine(at.handle, at.stream);
    is_refused(ucclEpInvalidUsage, {"pending"});
    HostExperts experts(exchange, at.handle);
    work_in(Order::ascending, experts, 1, 0);
    check_back(exchange, at.handle, at.stream);

    Scenario plain = scenario;
    plain.tile_rows = 0;
    const Handle other = make_handle(at.group, handle_config(plain));
    Exchange sums(rank, at.comm, plain, scenario.seed);
    sums.update(other, at.stream);
    sums.dispatch(other, at.stream);
    sums.combine_config.done_target = 1;
    refused(sums.try_combine(other, at.stream), ucclEpInvalidArgument, "ucclEpCombine",
            {"config.done_target is 1", "UCCLEP_LAYOUT_TILES"});
    at.stream.synchronize();
    masked::meet(rank, 0);
  });
}

}  // namespace
}  // namespace ucclep::test

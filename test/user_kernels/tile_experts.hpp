// SPDX-License-Identifier: Apache-2.0
// What cases of consumers of tiles share: a rank's experts, and what came of them.
#pragma once
#include <string>
#include <vector>

#include "conformance/exchange.hpp"
#include "conformance/tile_words.hpp"
#include "initiated_calls.hpp"
#include "launch_user.hpp"
#include "support/test_env.hpp"
#include "tile_kernels.hpp"

namespace ucclep::test {

inline Scenario tile_scenario(int64_t hidden, int tile_rows) {
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
inline std::vector<Scenario> ht_tile_scenarios(int64_t hidden, int tile_rows) {
  Scenario scenario = tile_scenario(hidden, tile_rows);
  scenario.layout = Layout::ht_expert_major;
  scenario.alignment = tile_rows;
  scenario.fixed_capacity = 90 * scenario.top_k + scenario.local_experts() * tile_rows;
  Scenario in_rounds = scenario;
  in_rounds.round = 9;
  return {scenario, in_rounds};
}

inline ucclEpTiles_t tiles_of(ucclEpHandle_t handle) {
  ucclEpTiles_t tiles = UCCLEP_TILES_INIT;
  ok(ucclEpHandleGetTiles(handle, &tiles), "ucclEpHandleGetTiles");
  return tiles;
}

// A rank's experts, which see a row and answer.
class TileExperts {
 public:
  TileExperts(ucclEpComm_t comm, ucclEpHandle_t handle, Exchange& exchange)
      : exchange_(exchange),
        seen_(comm, "rows that the consumer saw", exchange.scenario().dtype, shape(exchange.scenario().hidden)),
        answers_(comm, "answers", exchange.scenario().combine_dtype, shape(exchange.scenario().combined_hidden())),
        late_(comm, "late", ucclEpInt32, {1}),
        handed_(comm, "parts handed out", ucclEpInt32, {tiles_of(handle).tiles}),
        failed_(comm, "scopes that failed", ucclEpInt32, {1}),
        scratch_(comm, "results on their way", exchange.scenario().combine_dtype,
                 {1024, exchange.scenario().combined_hidden()}) {
    const Scenario& scenario = exchange.scenario();
    const auto data = [](const Tensor& tensor) { return static_cast<char*>(tensor.get()->data); };
    args_ = {tiles_of(handle),
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
    load_user(handle, "tile_consumer");
    late_.set_integers({0});
    late_.upload();
    joined_.experts = args_;
    ok(ucclEpHandleGetDevice(handle, &joined_.handle), "ucclEpHandleGetDevice");
    joined_.shapes.out = {static_cast<uint32_t>(scenario.hidden), scenario.dtype};
    joined_.handed = reinterpret_cast<uint32_t*>(data(handed_));
    joined_.failed = reinterpret_cast<uint32_t*>(data(failed_));
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
    for (Tensor* const words : {&handed_, &failed_}) {
      words->set_integers(std::vector<int64_t>(static_cast<size_t>(words->get()->sizes[0]), 0));
      words->upload();
    }
  }
  void count_as_done(uint32_t times) { args_.times = times; }
  uint32_t times() const { return args_.times; }
  void turn_round() { args_.backwards = !args_.backwards; }
  void work(ucclEpHandle_t handle, ucclEpStream_t stream) {
    launch_user(handle, "tile_consumer", &args_, sizeof args_, stream, {.blocks = 3, .threads = 128});
  }
  // A kernel that joins. parts 0: it asks for tiles by name.
  void join(ucclEpHandle_t handle, const std::string& scope, uint32_t parts, ucclEpStream_t stream) {
    joined_.parts = parts == 0 ? 1 : parts;
    joined_.in_order = parts == 0 ? 1 : 0;
    launch_user(handle, "joined_tiles_" + scope, &joined_, sizeof joined_, stream, {.blocks = 2, .threads = 64});
  }
  // What a kernel that does all of it needs. seed: of the order in which it sends.
  TileLayerArgs layer(ucclEpHandle_t handle, uint32_t seed) {
    ucclEpDispatchOutputs_t& out = exchange_.dispatch_out;
    out.cumulative_tokens_per_expert = nullptr;  // what no kernel writes is not expected
    const auto data = [](const ucclEpTensor_t* tensor) { return tensor == nullptr ? nullptr : tensor->data; };
    TileLayerArgs args{};
    args.send = dispatch_args(exchange_, handle, seed);
    const InitiatedCombineArgs back = combine_args(exchange_, handle, seed);
    args.take = joined_;
    args.take.parts = 1;
    args.take.shapes = {args.send.shape, back.shape, 0, data(out.tokens), data(out.scales), args_.results};
    args.out = {data(exchange_.combine_out.tokens), data(exchange_.combine_in.bias), data(exchange_.combine_in.bias2)};
    args.src_info = static_cast<int64_t*>(data(out.src_info));
    args.topk_weights = static_cast<float*>(data(out.topk_weights));
    args.scratch = static_cast<char*>(scratch_.get()->data);
    args.rounds = 1;
    return args;
  }
  // As if the other handle's dispatch were the one.
  void join_as(ucclEpHandle_t other, ucclEpStream_t stream) {
    JoinedTilesArgs args = joined_;
    ok(ucclEpHandleGetDevice(other, &args.handle), "ucclEpHandleGetDevice");
    launch_user(other, "joined_tiles_warp", &args, sizeof args, stream, {.blocks = 2, .threads = 64});
  }
  // As the host device's kernels have counted so far.
  int64_t handed_now() const {
    int64_t sum = 0;
    for (int64_t t = 0; t < handed_.get()->sizes[0]; ++t) sum += __atomic_load_n(joined_.handed + t, __ATOMIC_ACQUIRE);
    return sum;
  }
  uint32_t failed_now() const { return __atomic_load_n(joined_.failed, __ATOMIC_ACQUIRE); }
  // After kernels that joined: each part of each tile was handed out once.
  void check_handed(int rank, const TileWords& words, uint32_t parts) {
    std::vector<int64_t> expected;
    for (const uint32_t ready : words.ready) expected.push_back(ready == 1 ? parts : 0);
    handed_.set_integers(expected);
    handed_.verify(rank);
    failed_.verify(rank);
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
  Tensor seen_, answers_, late_, handed_, failed_, scratch_;
  TileConsumerArgs args_{};
  JoinedTilesArgs joined_{};
};

inline std::vector<std::string> tile_scopes_of_run() {
  if (reduced()) return {"lanes4", "block"};
  return {std::begin(tile_scopes), std::end(tile_scopes)};
}

inline void check_tile_round(Exchange& exchange, TileExperts& experts, ucclEpHandle_t handle, int rank) {
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

}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// Whole operations that a user's kernel runs: the same bytes as ucclEpDispatch and ucclEpCombine, one after the other
// in one kernel, on grids of any size.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "conformance/exchange.hpp"
#include "initiated_calls.hpp"
#include "launch_user.hpp"
#include "support/test_env.hpp"
#include "whole_kernels.hpp"

namespace ucclep::test {
namespace {

// Of an exchange, with another handle of the group.
class Whole {
 public:
  Whole(const Rank& rank, Session& at, const Scenario& scenario, uint64_t seed)
      : at_(at),
        handle_(make_handle(at.group, handle_config(scenario))),
        exchange(rank, at.comm, scenario, scenario.seed + seed) {
    exchange.dispatch_out.cumulative_tokens_per_expert = nullptr;  // rounds add to it
    if (!scenario.ll()) exchange.update(handle_, at.stream);
  }

  ucclEpDeviceDispatch dispatch() {
    ucclEpDeviceDispatch out;
    ok(ucclEpDispatchGetDevice(handle_, &exchange.dispatch_in, &exchange.dispatch_out, &exchange.dispatch_config, &out),
       "ucclEpDispatchGetDevice");
    return out;
  }
  ucclEpDeviceCombine combine() {
    ucclEpDeviceCombine out;
    ok(ucclEpCombineGetDevice(handle_, &exchange.combine_in, &exchange.combine_out, &exchange.combine_config, &out),
       "ucclEpCombineGetDevice");
    return out;
  }
  void call_dispatch() { exchange.dispatch(handle_, at_.stream); }
  void call_combine() { exchange.combine(handle_, at_.stream); }
  ucclEpHandle_t handle() const { return handle_; }

 private:
  Session& at_;
  Handle handle_;

 public:
  Exchange exchange;
};

// What a kernel runs, and where it counts blocks in which an operation failed.
struct Run {
  WholeArgs args{};
  Tensor failed;

  Run(const Session& at, Whole& one, Whole& other, uint32_t rounds)
      : failed(at.comm, "blocks in which an operation failed", ucclEpInt32, {1}) {
    failed.set_integers({0});
    failed.upload();
    Whole* const all[] = {&one, &other};
    for (int i = 0; i < 2; ++i) {
      args.dispatch[i] = all[i]->dispatch();
      args.combine[i] = all[i]->combine();
    }
    args.rounds = rounds;
    args.parts = WholeParts::both;
    args.failed = static_cast<uint32_t*>(failed.get()->data);
  }
  // lines: by the code that knows no other form, where the group has no other.
  void launch(const Session& at, const Scenario& scenario, uint32_t parts, UserGrid grid, bool lines = false) {
    args.parts = parts;
    for (const ucclEpDeviceDispatch& each : args.dispatch) {
      grid.shared_bytes = std::max(grid.shared_bytes, size_t{each.shared_bytes});
      grid.threads = std::min(grid.threads, each.block_threads);
    }
    for (const ucclEpDeviceCombine& each : args.combine) {
      grid.shared_bytes = std::max(grid.shared_bytes, size_t{each.shared_bytes});
      grid.threads = std::min(grid.threads, each.block_threads);
    }
    const bool quantised = scenario.quant != UCCLEP_QUANT_NONE;
    const GroupShape& shape = args.combine[0].args.group.shape;
    const bool network = args.dispatch[0].forms == 2, only = lines && args.combine[0].forms == 1;
    require(network == crosses_nodes(scenario.ranks), "a call names the forms of another network");
    require(!lines || network || only == (shape.whole_bytes >= shape.line_bytes), "few rows do not travel as lines");
    const std::string kernel = std::string("whole_") + (scenario.ll() ? "ll" : "ht") + (quantised ? "_quantised" : "") +
                               (network ? "_network" : "") + (only ? "_lines" : "");
    launch_user(at.handle, kernel, &args, sizeof args, at.stream, grid);
  }
};

// How the ranks of a case run their operations; rank 0 may make the host's calls instead.
struct Way {
  uint32_t rounds = 5;
  unsigned blocks = 4;
  bool host = false;
  bool lines = false;
};

void run_whole(const Rank& rank, Session& at, const Scenario& scenario, const Way& way) {
  Whole one(rank, at, scenario, 1), other(rank, at, scenario, 2);
  Whole* const all[] = {&one, &other};
  if (way.host && rank.rank == 0) {
    for (uint32_t round = 0; round < way.rounds; ++round) {
      all[round % 2]->call_dispatch();
      all[round % 2]->call_combine();
    }
  } else {
    Run run(at, one, other, way.rounds);
    run.launch(at, scenario, WholeParts::both, {.blocks = way.blocks}, way.lines);
    at.stream.synchronize();
    run.failed.verify(rank.rank);
  }
  at.stream.synchronize();
  for (Whole* const each : all) {
    each->exchange.check_dispatch();
    each->exchange.check_combine();
  }
  no_async_error(at.comm);
}

void run_whole(Scenario scenario, const Way& way = {}) {
  scenario.carried = scenario.ll();
  run_ranks(scenario.ranks, [&](const Rank& rank) {
    Session at(rank, scenario);
    run_whole(rank, at, scenario, way);
  });
}

Scenario small_rows(Layout layout) {
  return {.layout = layout, .experts = 16, .top_k = 4, .max_tokens = 9, .hidden = 72, .combine_dtype = ucclEpFloat32};
}
Scenario long_rows(Layout layout) {
  return {
      .layout = layout, .experts = 16, .top_k = 4, .max_tokens = 21, .hidden = 1032, .combine_dtype = ucclEpFloat32};
}

TEST_CASE("whole operations in a kernel: rows that travel as lines", "[whole][process][nodes][reduced]") {
  for (const Layout layout : all_layouts) run_whole(small_rows(layout));
  for (const Layout layout : {Layout::ll_expert_major, Layout::ll_rank_major}) {
    Scenario few = small_rows(layout);
    few.max_tokens = 4;
    run_whole(few, {.lines = true});
  }
}

TEST_CASE("whole operations in a kernel: rows that travel in bulk", "[whole][process][nodes][reduced]") {
  for (const Layout layout : all_layouts) run_whole(long_rows(layout));
}

TEST_CASE("whole operations in a kernel: one block, and many", "[whole][process][nodes]") {
  for (const Layout layout : all_layouts) {
    for (const unsigned blocks : {1u, 12u}) {
      Scenario scenario = small_rows(layout);
      scenario.max_tokens = 2;
      scenario.top_k = 2;
      run_whole(scenario, {.rounds = 3, .blocks = blocks});
    }
  }
}

TEST_CASE("whole operations in a kernel: quantised on the way", "[whole][process][nodes]") {
  for (const Layout layout : all_layouts) {
    run_whole({.layout = layout, .max_tokens = 6, .hidden = 256, .scales = Scales{}, .quant = UCCLEP_QUANT_FP8_128},
              {.rounds = 3});
  }
}

TEST_CASE("whole operations in a kernel: ranks without tokens, ids that are -1, biases", "[whole][process][nodes]") {
  for (const Layout layout : all_layouts) {
    Scenario scenario = small_rows(layout);
    scenario.tokens = {9, 0, 3, 1};
    scenario.biases = 2;
    run_whole(scenario, {.rounds = 3});
  }
}

TEST_CASE("whole operations in a kernel: experts have copies", "[whole][process][nodes][reduced]") {
  for (const Layout layout : all_layouts) {
    Scenario scenario = small_rows(layout);
    scenario.maps = some_maps(scenario, 11);
    run_whole(scenario);
  }
}

TEST_CASE("whole operations in a kernel: beside a rank that makes the host's calls", "[whole][process][nodes]") {
  for (const Layout layout : all_layouts) {
    run_whole(small_rows(layout), {.host = true});
    run_whole(long_rows(layout), {.host = true});
  }
}

TEST_CASE("whole operations in a kernel: HT in several rounds", "[whole][process]") {
  Scenario scenario = small_rows(Layout::ht_flat);
  scenario.max_tokens = 24;
  scenario.round = 8;
  run_whole(scenario, {.rounds = 3});
}

TEST_CASE("whole operations in a kernel: one half each, the other is the host's", "[whole][process][nodes]") {
  for (const Layout layout : all_layouts) {
    Scenario scenario = small_rows(layout);
    scenario.carried = scenario.ll();
    run_ranks(scenario.ranks, [&](const Rank& rank) {
      Session at(rank, scenario);
      Whole one(rank, at, scenario, 1), other(rank, at, scenario, 2);
      for (const uint32_t parts : {WholeParts::dispatch, WholeParts::combine}) {
        Run run(at, one, other, 2);
        const auto kernel = [&] { run.launch(at, scenario, parts, {}); };
        const auto host = [&](void (Whole::*call)()) { (one.*call)(), (other.*call)(); };
        parts == WholeParts::dispatch ? kernel() : host(&Whole::call_dispatch);
        parts == WholeParts::combine ? kernel() : host(&Whole::call_combine);
        at.stream.synchronize();
        run.failed.verify(rank.rank);
        for (Whole* const each : {&one, &other}) {
          each->exchange.check_dispatch();
          each->exchange.check_combine();
          each->exchange.refresh(parts + 1);
        }
      }
      no_async_error(at.comm);
    });
  }
}

// Launches a kernel that the operation or the grid does not fit: the call is false in all blocks, and the group goes
// on.
void run_unfit(const Scenario& scenario, const std::string& kernel, const UserGrid& shape, const char* words) {
  run_ranks(scenario.ranks, [&](const Rank& rank) {
    Session at(rank, scenario);
    Whole one(rank, at, scenario, 1), other(rank, at, scenario, 2);
    Run run(at, one, other, 1);
    UserGrid grid = shape;
    grid.shared_bytes = std::max(run.args.dispatch[0].shared_bytes, run.args.combine[0].shared_bytes);
    launch_user(at.handle, kernel, &run.args, sizeof run.args, at.stream, grid);
    at.stream.synchronize();
    left_record(at, "shape", words);
    run.failed.set_integers({static_cast<int64_t>(grid.blocks)});
    run.failed.verify(rank.rank);
    one.call_dispatch();
    one.call_combine();
    at.stream.synchronize();
    one.exchange.check_all();
    no_async_error(at.comm);
  });
}

TEST_CASE("whole operations in a kernel: grids and kernels that do not fit are named", "[whole][process]") {
  Scenario ll = small_rows(Layout::ll_expert_major), ht = small_rows(Layout::ht_flat);
  ll.carried = true;
  run_unfit(ll, "whole_ht", {}, "mode");
  run_unfit(ht, "whole_ll", {}, "mode");
  run_unfit(ll, "whole_ll_quantised", {}, "quant");
  run_unfit(ht, "whole_ht_quantised", {}, "quant");
  run_unfit(ll, "whole_ll_network", {}, "forms of the operation");
  run_unfit(ht, "whole_ht_network", {}, "forms of the operation");
  if (test_gpus() == 0) {  // a GPU has room for more rows as lines, and its driver knows the threads of a kernel
    Scenario bulk = long_rows(Layout::ll_expert_major);
    bulk.carried = true;
    run_unfit(bulk, "whole_ll_lines", {}, "forms of the operation");
    run_unfit(ll, "whole_ll", {.threads = 512}, "threads of a block is 512, expected");
  }
  // Of the two operations the dispatch fits, and runs.
  ll.combine_dtype = ucclEpBfloat16;
  run_ranks(ll.ranks, [&](const Rank& rank) {
    Session at(rank, ll);
    Whole one(rank, at, ll, 1), other(rank, at, ll, 2);
    Run run(at, one, other, 1);
    run.launch(at, ll, WholeParts::both, {});
    at.stream.synchronize();
    left_record(at, "shape", "dtype");
    one.exchange.check_dispatch();
    one.call_combine();
    at.stream.synchronize();
    one.exchange.check_combine();
  });
}

TEST_CASE("whole operations in a kernel: a rank that does not come is named", "[whole][process][nodes]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_flat}) {
    Scenario scenario = small_rows(layout);
    scenario.carried = scenario.ll();
    run_ranks(scenario.ranks, [&](const Rank& rank) {
      Session at(rank, scenario, 1000);
      Whole one(rank, at, scenario, 1), other(rank, at, scenario, 2);
      Run run(at, one, other, 3);
      at.stream.synchronize();  // HT: all have exchanged their routing
      if (rank.rank == 1) return rank.board.wait(0, scenario.ranks - 1);
      run.launch(at, scenario, WholeParts::both, {});
      answered(ucclEpStreamSynchronize(at.comm, at.stream), ucclEpTimeout, at.comm, "ucclEpStreamSynchronize");
      const ucclEpAsyncError_t error = async_error(at.comm);
      require(std::string(error.text).find("rank 1") != std::string::npos,
              std::string("it does not name rank 1: ") + error.text);
      rank.board.add(0);
    });
  }
}

// What the host answers for both operations of a handle, after changes of their arguments.
using Change = std::function<void(Exchange&, ucclEpDeviceDispatch&, ucclEpDeviceCombine&)>;
void run_refused(const Scenario& scenario, ucclEpResult_t code, const char* words, const Change& change) {
  run_ranks(scenario.ranks, [&](const Rank& rank) {
    Session at(rank, scenario);
    Whole whole(rank, at, scenario, 1);
    Exchange& exchange = whole.exchange;
    whole.call_dispatch();
    at.stream.synchronize();
    ucclEpDeviceDispatch dispatch;
    ucclEpDeviceCombine combine;
    change(exchange, dispatch, combine);
    refused(ucclEpDispatchGetDevice(whole.handle(), &exchange.dispatch_in, &exchange.dispatch_out,
                                    &exchange.dispatch_config, &dispatch),
            code, "ucclEpDispatchGetDevice", {words});
    refused(ucclEpCombineGetDevice(whole.handle(), &exchange.combine_in, &exchange.combine_out,
                                   &exchange.combine_config, &combine),
            code, "ucclEpCombineGetDevice", {words});
  });
}

TEST_CASE("whole operations in a kernel: what the host refuses", "[whole][process]") {
  Scenario scenario = small_rows(Layout::ll_expert_major);
  scenario.carried = true;
  const auto nothing = [](Exchange&, ucclEpDeviceDispatch&, ucclEpDeviceCombine&) {};
  run_refused(
      scenario, ucclEpInvalidArgument, "ABI",
      [](Exchange&, ucclEpDeviceDispatch& dispatch, ucclEpDeviceCombine& combine) { dispatch.abi = combine.abi = 1; });
  run_refused(scenario, ucclEpInvalidArgument, "send_only",
              [](Exchange& exchange, ucclEpDeviceDispatch&, ucclEpDeviceCombine&) {
                exchange.dispatch_config.send_only = exchange.combine_config.send_only = 1;
              });
  Scenario masked = scenario;
  masked.masked = true;
  run_refused(masked, ucclEpNotSupported, "enable_mask", nothing);
  Scenario ht = small_rows(Layout::ht_flat);
  run_ranks(ht.ranks, [&](const Rank& rank) {
    Session at(rank, ht);
    Whole whole(rank, at, ht, 1);
    Exchange& exchange = whole.exchange;
    ucclEpDeviceDispatch dispatch;
    exchange.dispatch_in.topk_idx = exchange.topk_idx().get();
    refused(ucclEpDispatchGetDevice(whole.handle(), &exchange.dispatch_in, &exchange.dispatch_out,
                                    &exchange.dispatch_config, &dispatch),
            ucclEpInvalidArgument, "ucclEpDispatchGetDevice", {"ucclEpHandleUpdate"});
    at.stream.synchronize();
  });
  scenario.waves = 2;
  run_ranks(scenario.ranks, [&](const Rank& rank) {
    Session at(rank, scenario);
    Whole whole(rank, at, scenario, 1);
    Exchange& exchange = whole.exchange;
    ucclEpDeviceDispatch dispatch;
    refused(ucclEpDispatchGetDevice(whole.handle(), &exchange.dispatch_in, &exchange.dispatch_out,
                                    &exchange.dispatch_config, &dispatch),
            ucclEpNotSupported, "ucclEpDispatchGetDevice", {"2 waves"});
  });
}

}  // namespace
}  // namespace ucclep::test

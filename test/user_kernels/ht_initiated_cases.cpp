// SPDX-License-Identifier: Apache-2.0
// Device-initiated operations of HT: the same bytes as ucclEpDispatch and ucclEpCombine, from every scope, in
// both passes.
#include <catch2/catch.hpp>

#include "initiated_calls.hpp"

namespace ucclep::test {
namespace {

void run_ht_initiated(const Scenario& scenario, bool records = false) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    from_every_scope([&](const std::string& scope, uint32_t seed, const DeviceInitiated& device_initiated) {
      routed_round(rank, at, scenario, scope, seed, device_initiated);
      if (!records) no_async_error(at.comm);
    });
  });
}

void run_ht_initiated_layouts(Scenario scenario, bool records = false) {
  for (const Layout layout : {Layout::ht_flat, Layout::ht_expert_major}) {
    scenario.layout = layout;
    run_ht_initiated(scenario, records);
  }
}

TEST_CASE("user kernels in HT: rows and sums, forward and backward", "[process][nodes][reduced]") {
  run_ht_initiated({.layout = Layout::ht_flat, .experts = 16, .top_k = 4, .max_tokens = 21, .hidden = 72});
}

TEST_CASE("user kernels in HT: rows by expert, with pads", "[process][nodes][reduced]") {
  run_ht_initiated({.layout = Layout::ht_expert_major,
                    .experts = 16,
                    .top_k = 4,
                    .max_tokens = 13,
                    .tokens = {13, 12, 1, 0},
                    .alignment = 8,
                    .rule = uniform(20)});
}

TEST_CASE("user kernels in HT: many copies of a row on one rank, every type of combine", "[process][nodes]") {
  for (const ucclEpDataType_t dtype : {ucclEpBfloat16, ucclEpFloat16, ucclEpFloat32}) {
    run_ht_initiated_layouts(
        {.ranks = 2, .experts = 16, .top_k = 12, .max_tokens = 4, .dtype = dtype, .combine_dtype = dtype, .biases = 2});
  }
}

TEST_CASE("user kernels in HT: fp8 rows with scales of any width", "[process][nodes][reduced]") {
  run_ht_initiated_layouts({.max_tokens = 6,
                            .hidden = 144,
                            .dtype = ucclEpFloat8e4m3,
                            .any_bits = true,
                            .scales = Scales{.dtype = ucclEpFloat32, .width = 7}});
}

TEST_CASE("user kernels in HT: tokens differ between ranks, entries are -1, rows are strided",
          "[process][nodes][reduced]") {
  run_ht_initiated({.layout = Layout::ht_flat,
                    .experts = 16,
                    .top_k = 3,
                    .max_tokens = 20,
                    .tokens = {20, 7, 1, 0},
                    .idx = ucclEpInt32,
                    .strided = true,
                    .rule = uniform(40)});
}

TEST_CASE("user kernels in HT: no weights, and one rank alone", "[process][nodes]") {
  run_ht_initiated_layouts({.ranks = 1, .experts = 4, .max_tokens = 5, .weights = Weights::none});
}

void run_short(Layout layout) {
  Scenario scenario{.layout = layout, .experts = 16, .top_k = 4, .max_tokens = 12};
  scenario.slack = -7;
  run_ht_initiated(scenario, true);
  scenario.slack = 0;
  scenario.max_recv = 19;
  scenario.overflow = UCCLEP_OVERFLOW_DROP;
  run_ht_initiated(scenario);
}

TEST_CASE("user kernels in HT: rows that the output has no room for count as zero", "[process][nodes][reduced]") {
  run_short(Layout::ht_flat);
}

TEST_CASE("user kernels in HT: copies that the output has no room for are missing in their sums", "[process][nodes]") {
  run_short(Layout::ht_expert_major);
}

// Copies of rows wait for the last of them in memory that all handles of a group use.
TEST_CASE("user kernels in HT: two handles by expert, with other pads, in turn", "[process][nodes][reduced]") {
  const Scenario scenario{
      .layout = Layout::ht_expert_major, .experts = 12, .top_k = 5, .max_tokens = 9, .alignment = 4};
  Scenario padded = scenario;
  padded.alignment = 16;
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Handle other = make_handle(at.group, handle_config(padded));
    for (uint32_t seed = 1; seed < 4; ++seed) {
      routed_round(rank, at, scenario, "lanes4", seed, {});
      std::swap(at.handle, other);
      routed_round(rank, at, padded, "warp", seed, {});
      std::swap(at.handle, other);
    }
    no_async_error(at.comm);
  });
}

TEST_CASE("user kernels in HT: what does not fit is named, and the group stays usable", "[process][nodes][reduced]") {
  const Scenario scenario{.layout = Layout::ht_flat, .max_tokens = 4};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    const auto refuse = [&](const char* phase, const char* words, auto&& spoil) {
      InitiatedDispatchArgs args = dispatch_args(exchange, at.handle, 1);
      spoil(args);
      launch_initiated(exchange, at.handle, "warp", args, at.stream);
      at.stream.synchronize();
      left_record(at, phase, words);
    };
    refuse("shape", "top_k is 2, expected 0", [](InitiatedDispatchArgs&) {});  // no Update, no K
    refuse("unrouted", "call ucclEpHandleUpdate first", [](InitiatedDispatchArgs& args) { args.shape.top_k = 0; });
    refused(ucclEpCompleteDispatch(at.handle, &exchange.dispatch_out, &exchange.dispatch_config, at.stream),
            ucclEpInvalidUsage, "ucclEpCompleteDispatch", {"ucclEpHandleUpdate"});
    exchange.update(at.handle, at.stream);
    refuse("shape", "hidden", [](InitiatedDispatchArgs& args) { args.shape.hidden = 1 << 20; });
    refuse("shape", "pass is 2", [](InitiatedDispatchArgs& args) { args.shape.pass = 2; });
    // Nothing is open: the receive phases do nothing.
    ok(ucclEpCompleteDispatch(at.handle, &exchange.dispatch_out, &exchange.dispatch_config, at.stream),
       "ucclEpCompleteDispatch");
    at.stream.synchronize();
    exchange.check_untouched();
    routed_round(rank, at, scenario, "warp", 1, {});
    no_async_error(at.comm);
  });
}

TEST_CASE("user kernels in HT: more tokens than a round are refused with the limit", "[process][nodes][reduced]") {
  const Scenario scenario{.layout = Layout::ht_flat, .max_tokens = 9, .round = 4};
  Scenario few = scenario;
  few.tokens = {4, 0, 3, 1};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    launch_initiated(exchange, at.handle, "warp", dispatch_args(exchange, at.handle, 1), at.stream);
    at.stream.synchronize();
    left_record(at, "shape", "a rank has 9 tokens, but operations of user kernels have one round of at most 4");
    exchange.check_untouched();
    round_trip(rank, at.comm, at.handle, at.stream, scenario, 2);
    routed_round(rank, at, few, "warp", 3, {});
    no_async_error(at.comm);
  });
}

TEST_CASE("user kernels in HT: a combine of what was not dispatched is named", "[process][nodes][reduced]") {
  const Scenario scenario{.layout = Layout::ht_flat, .max_tokens = 4};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    for (int round = 0; round < 2; ++round) {  // nor does the dispatch of an earlier routing count
      exchange.update(at.handle, at.stream);
      const InitiatedCombineArgs args = combine_args(exchange, at.handle, 1);
      launch_initiated(exchange, at.handle, "warp", args, at.stream);
      at.stream.synchronize();
      left_record(at, "unrouted", "dispatched nothing since its last ucclEpHandleUpdate");
      there_and_home(exchange, at, "warp", 1, {});
      exchange.refresh(2);
    }
  });
}

// docs/decisions.md: who opens an operation sends nothing into another's tensor.
TEST_CASE("user kernels in HT: a rank that exposes its output hears for whom it waits", "[process][reduced]") {
  const Scenario scenario{.layout = Layout::ht_flat, .ranks = 2, .max_tokens = 4};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario, 1000);
    Exchange exchange(rank, at.comm, scenario);
    const ucclEpTensor_t& output = *exchange.dispatch_out.tokens;
    const auto bytes = static_cast<size_t>(output.sizes[0] * output.sizes[1]) * reference::element_bytes(output.dtype);
    ucclEpWindow_t window = nullptr;
    ok(ucclEpWindowRegister(at.comm, output.data, bytes, &window), "ucclEpWindowRegister");
    exchange.update(at.handle, at.stream);
    at.stream.synchronize();
    if (rank.rank == 1) {
      initiate_dispatch(exchange, at.handle, "warp", 1, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
      rank.board.post(0);
    } else {
      exchange.dispatch(at.handle, at.stream);
      answered(ucclEpStreamSynchronize(at.comm, at.stream), ucclEpTimeout, at.comm, "ucclEpStreamSynchronize");
      const ucclEpAsyncError_t error = async_error(at.comm);
      require(error.peer == 1 && std::string(error.text).find("rank 1") != std::string::npos,
              std::string("it does not name rank 1: ") + error.text);
      rank.board.wait(0, 1);
    }
  });
}

TEST_CASE("user kernels in HT: another number of tokens than was routed is named", "[process][nodes]") {
  const Scenario scenario{.layout = Layout::ht_flat, .max_tokens = 4};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    InitiatedDispatchArgs args = dispatch_args(exchange, at.handle, 1);
    args.said = 3;
    initiate_dispatch(exchange, at.handle, "warp", args, at.stream);
    at.stream.synchronize();
    left_record(at, "shape", "tokens is 3, expected 4");
    exchange.check_dispatch();  // all were sent
  });
}

TEST_CASE("user kernels in HT: ranks that disagree on the shape end without a row", "[process][nodes][reduced]") {
  const Scenario scenario{.layout = Layout::ht_flat, .max_tokens = 4};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    InitiatedDispatchArgs args = dispatch_args(exchange, at.handle, 1);
    if (rank.rank == 1) args.shape.hidden /= 2;
    initiate_dispatch(exchange, at.handle, "warp", args, at.stream);
    at.stream.synchronize();
    left_record(at, "settings", "hidden");
    exchange.check_untouched();
    routed_round(rank, at, scenario, "block", 2, {});
  });
}

TEST_CASE("user kernels in HT: what the host refuses", "[process][nodes][reduced]") {
  const Scenario scenario{.layout = Layout::ht_expert_major, .max_tokens = 4};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    ucclEpDeviceHandle device;
    const auto capture = [&](auto&& body) {
      ok(ucclEpStreamBeginCapture(at.comm, at.stream), "ucclEpStreamBeginCapture");
      body();
      ucclEpGraph_t graph = nullptr;
      ok(ucclEpStreamEndCapture(at.comm, at.stream, &graph), "ucclEpStreamEndCapture");
      ok(ucclEpGraphDestroy(at.comm, graph), "ucclEpGraphDestroy");
    };
    if (test_gpus() == 0) {
      capture([&] {  // it makes room for copies of rows
        refused(ucclEpHandleGetDevice(at.handle, &device), ucclEpInvalidUsage, "ucclEpHandleGetDevice", {"captur"});
      });
    }
    ok(ucclEpHandleGetDevice(at.handle, &device), "ucclEpHandleGetDevice");
    if (test_gpus() == 0) {
      capture([&] { ok(ucclEpHandleGetDevice(at.handle, &device), "ucclEpHandleGetDevice"); });
    }
    Exchange exchange(rank, at.comm, backward_of(scenario));
    exchange.update(at.handle, at.stream);
    exchange.dispatch(at.handle, at.stream);
    at.stream.synchronize();
    ucclEpCombineInputs_t nothing = UCCLEP_COMBINE_INPUTS_INIT;
    const auto refuse = [&](const char* words) {
      refused(ucclEpCompleteCombine(at.handle, &nothing, &exchange.combine_out, &exchange.combine_config, at.stream),
              ucclEpInvalidArgument, "ucclEpCompleteCombine", {words});
    };
    refuse("outputs.topk_weights");
    nothing.tokens = exchange.combine_in.tokens;
    refuse("inputs.tokens");
    exchange.combine(at.handle, at.stream);
    at.stream.synchronize();
    exchange.check_combine();
  });
}

}  // namespace
}  // namespace ucclep::test

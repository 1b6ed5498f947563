// SPDX-License-Identifier: Apache-2.0
// Device-initiated operations of LL: the same bytes as ucclEpDispatch and ucclEpCombine, from every scope.
#include <catch2/catch.hpp>

#include "initiated_calls.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

void initiated_round(const Rank& rank, Session& at, const Scenario& scenario, const std::string& scope, uint32_t seed,
                     const DeviceInitiated& device_initiated = {}) {
  Exchange exchange(rank, at.comm, scenario, scenario.seed + seed);
  there_and_home(exchange, at, scope, seed, device_initiated);
  exchange.check_counters();
  no_async_error(at.comm);
}

void run_ll_initiated(Scenario scenario) {
  scenario.carried = true;  // counters come with the dispatch
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    from_every_scope([&](const std::string& scope, uint32_t seed, const DeviceInitiated& device_initiated) {
      initiated_round(rank, at, scenario, scope, seed, device_initiated);
    });
  });
}

void run_ll_initiated_layouts(Scenario scenario) {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ll_rank_major}) {
    scenario.layout = layout;
    run_ll_initiated(scenario);
  }
}

TEST_CASE("user kernels: rows that travel as lines", "[process][nodes][reduced]") {
  run_ll_initiated_layouts({.experts = 16, .top_k = 4, .max_tokens = 9, .hidden = 72});
}

TEST_CASE("user kernels: rows that travel in bulk", "[process][nodes][reduced]") {
  run_ll_initiated_layouts({.experts = 16, .top_k = 4, .max_tokens = 21, .hidden = 1032});
}

TEST_CASE("user kernels: many copies of a row on one rank, every type of combine", "[process][nodes][reduced]") {
  for (const ucclEpDataType_t dtype : {ucclEpBfloat16, ucclEpFloat16, ucclEpFloat32}) {
    run_ll_initiated_layouts(
        {.ranks = 2, .experts = 16, .top_k = 12, .max_tokens = 7, .dtype = dtype, .combine_dtype = dtype, .biases = 2});
  }
}

TEST_CASE("user kernels: fp8 rows with scales of any width", "[process][nodes]") {
  for (const ucclEpDataType_t scale : {ucclEpFloat32, ucclEpFloat8e8m0}) {
    run_ll_initiated_layouts({.max_tokens = 6,
                              .hidden = 144,
                              .dtype = ucclEpFloat8e4m3,
                              .any_bits = true,
                              .scales = Scales{.dtype = scale, .width = 7}});
  }
}

TEST_CASE("user kernels: tokens differ between ranks, entries are -1, ids are int32", "[process][nodes][reduced]") {
  run_ll_initiated_layouts(
      {.experts = 16, .top_k = 3, .max_tokens = 20, .tokens = {20, 7, 1, 0}, .idx = ucclEpInt32, .rule = uniform(40)});
}

TEST_CASE("user kernels: experts have copies", "[process][nodes][reduced]") {
  Scenario scenario{.experts = 16, .top_k = 3, .max_tokens = 20, .tokens = {20, 7, 1, 0}, .rule = uniform(20)};
  scenario.maps = some_maps(scenario, 10);
  run_ll_initiated_layouts(scenario);
  scenario.nearest = true;
  scenario.idx = ucclEpInt32;
  run_ll_initiated_layouts(scenario);
}

TEST_CASE("user kernels: strided rows", "[process][nodes]") {
  run_ll_initiated_layouts({.max_tokens = 5, .hidden = 48, .strided = true});
}

TEST_CASE("user kernels: one rank alone", "[process][nodes]") {
  run_ll_initiated_layouts({.ranks = 1, .experts = 4, .top_k = 2, .max_tokens = 5});
}

TEST_CASE("user kernels: ids that are out of range or there twice leave a data record", "[process][nodes][reduced]") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .max_tokens = 6, .carried = true, .rule = bad_ids()};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    for (const char* scope : scopes) {
      Exchange exchange(rank, at.comm, scenario);
      initiate_dispatch(exchange, at.handle, scope, 1, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
      left_record(at, "routing", "out of range");
    }
  });
}

TEST_CASE("user kernels: a shape that does not fit is named, and the group stays usable", "[process][nodes]") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .max_tokens = 4, .carried = true};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    const auto refuse = [&](const char* field, auto&& spoil, UserGrid grid = {}) {
      InitiatedDispatchArgs args = dispatch_args(exchange, at.handle, 1);
      spoil(args);
      initiate_dispatch(exchange, at.handle, "warp", args, at.stream, grid);
      at.stream.synchronize();
      left_record(at, "shape", field);
      exchange.check_untouched();
    };
    refuse("hidden", [](InitiatedDispatchArgs& args) { args.shape.hidden = 1 << 20; });
    refuse("hidden", [](InitiatedDispatchArgs& args) { args.shape.hidden = 1u << 31; });  // twice that is 0 in 32 bits
    refuse("hidden", [](InitiatedDispatchArgs& args) { args.shape.hidden = 7; });
    refuse("top_k", [](InitiatedDispatchArgs& args) { args.shape.top_k = 1; });
    refuse("pass", [](InitiatedDispatchArgs& args) { args.shape.pass = UCCLEP_PASS_BACKWARD; });
    if (test_gpus() == 0) {  // a GPU's driver knows for how many threads a kernel was compiled
      refuse("threads of a block is 1024, expected 512", [](InitiatedDispatchArgs&) {}, {.threads = 1024});
    }

    exchange.dispatch(at.handle, at.stream);
    InitiatedCombineArgs bytes = combine_args(exchange, at.handle, 1);
    bytes.shape.dtype = ucclEpFloat8e4m3;
    launch_initiated(exchange, at.handle, "warp", bytes, at.stream);
    at.stream.synchronize();
    left_record(at, "shape", "tokens.dtype");
    initiated_round(rank, at, scenario, "warp", 1);
  });
}

TEST_CASE("user kernels: combine wants the weights that EXPERT_MAJOR multiplies with", "[process][nodes]") {
  const Scenario scenario{
      .layout = Layout::ll_expert_major, .max_tokens = 4, .weights = Weights::with_combine, .carried = true};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    exchange.dispatch(at.handle, at.stream);
    const InitiatedCombineArgs args = combine_args(exchange, at.handle, 1);
    launch_initiated(exchange, at.handle, "warp", args, at.stream);
    at.stream.synchronize();
    left_record(at, "shape", "topk_weights given with dispatch");
    exchange.combine(at.handle, at.stream);
    at.stream.synchronize();
    exchange.check_combine();
  });
}

// Blocks are counted as they end, and so are those that failed: neither count runs into the other.
TEST_CASE("user kernels: more blocks than 16 bits can count", "[process][nodes]") {
  const Scenario scenario{
      .layout = Layout::ll_expert_major, .ranks = 1, .experts = 4, .max_tokens = 4, .carried = true};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    initiate_dispatch(exchange, at.handle, "warp", dispatch_args(exchange, at.handle, 1), at.stream,
                      {.blocks = 65600, .threads = 64});
    at.stream.synchronize();
    exchange.check_dispatch();
  });
}

TEST_CASE("user kernels: more tokens than there may be are named", "[process][nodes]") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .max_tokens = 4, .carried = true};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    InitiatedDispatchArgs args = dispatch_args(exchange, at.handle, 1);
    args.said = 5;
    initiate_dispatch(exchange, at.handle, "warp", args, at.stream);
    at.stream.synchronize();
    left_record(at, "shape", "tokens is 5, expected 4");
    exchange.check_dispatch();
  });
}

TEST_CASE("user kernels: ranks that disagree on the shape end without a row", "[process][nodes]") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .max_tokens = 4, .carried = true};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    InitiatedDispatchArgs args = dispatch_args(exchange, at.handle, 1);
    if (rank.rank == 1) args.shape.hidden /= 2;
    initiate_dispatch(exchange, at.handle, "warp", args, at.stream);
    at.stream.synchronize();
    left_record(at, "settings", "hidden");
    exchange.check_untouched();
    initiated_round(rank, at, scenario, "block", 2);
  });
}

TEST_CASE("user kernels: an output with too few rows for what a kernel dispatched", "[process][nodes][reduced]") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .max_tokens = 6, .carried = true};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    initiate_dispatch(exchange, at.handle, "warp", 1, at.stream);
    ucclEpTensor_t fewer = *exchange.combine_out.tokens;
    fewer.sizes[0] = 5;
    exchange.combine_out.tokens = &fewer;
    exchange.combine(at.handle, at.stream);
    at.stream.synchronize();
    left_record(at, "tokens", "dispatched 6 tokens, its output tensor has 5 rows");
  });
}

TEST_CASE("user kernels: what the host refuses", "[process][nodes]") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .max_tokens = 4, .carried = true};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    ucclEpDeviceHandle device;
    device.abi += 1;
    refused(ucclEpHandleGetDevice(at.handle, &device), ucclEpInvalidArgument, "ucclEpHandleGetDevice", {"ABI"});
    refused(ucclEpHandleGetDevice(at.handle, nullptr), ucclEpInvalidArgument, "ucclEpHandleGetDevice", {"out"});
    refused(ucclEpHandleGetDevice(nullptr, &device), ucclEpInvalidArgument, "ucclEpHandleGetDevice", {"handle"});
    ucclEpDeviceGroup group;
    ok(ucclEpGroupGetDevice(at.group, &group), "ucclEpGroupGetDevice");
    require(group.rank == rank.rank && group.shape.ranks == static_cast<uint32_t>(rank.count), "the group's ranks");
    group.magic = 0;
    refused(ucclEpGroupGetDevice(at.group, &group), ucclEpInvalidArgument, "ucclEpGroupGetDevice", {"magic"});

    ucclEpDispatchConfig_t quantise = UCCLEP_DISPATCH_CONFIG_INIT;
    quantise.quant = UCCLEP_QUANT_FP8_128;
    refused(ucclEpCompleteDispatch(at.handle, &exchange.dispatch_out, &quantise, at.stream), ucclEpInvalidArgument,
            "ucclEpCompleteDispatch", {"config.quant"});
    refused(ucclEpCompleteCombine(at.handle, &exchange.combine_in, &exchange.combine_out, &exchange.combine_config,
                                  at.stream),
            ucclEpInvalidArgument, "ucclEpCompleteCombine", {"inputs.tokens"});
    // Nothing is open: the receive phase does nothing.
    ok(ucclEpCompleteDispatch(at.handle, &exchange.dispatch_out, &exchange.dispatch_config, at.stream),
       "ucclEpCompleteDispatch");
    at.stream.synchronize();
    exchange.check_untouched();

    exchange.dispatch_config.pass = UCCLEP_PASS_BACKWARD;
    refused(ucclEpCompleteDispatch(at.handle, &exchange.dispatch_out, &exchange.dispatch_config, at.stream),
            ucclEpInvalidArgument, "ucclEpCompleteDispatch", {"config.pass"});
  });
}

}  // namespace
}  // namespace ucclep::test

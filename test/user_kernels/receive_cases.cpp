// SPDX-License-Identifier: Apache-2.0
// Operations that a user's kernel sends and receives, in LL and HT: the same bytes as ucclEpDispatch and ucclEpCombine,
// from every scope, a few rows at a time and in any order; one after the other in one kernel, too.
#include <catch2/catch.hpp>

#include "open_calls.hpp"

namespace ucclep::test {
namespace {

void* data_of(const ucclEpTensor_t* tensor) {
  return tensor == nullptr ? nullptr : tensor->data;
}

// What kernels need besides the exchange.
struct Words {
  Tensor zone_rows, barrier;

  Words(const Exchange& exchange, ucclEpComm_t comm)
      : zone_rows(comm, "rows of zones", ucclEpInt32, {exchange.dispatch_out.tokens->sizes[0]}),
        barrier(comm, "barrier", ucclEpInt32, {sizeof(GridBarrier) / sizeof(int32_t)}) {
    barrier.set_integers({0, 0});
    barrier.upload();
  }
};

ReceiveDispatchArgs received_dispatch(Exchange& exchange, ucclEpHandle_t handle, uint32_t seed, const Words& words) {
  ucclEpDispatchOutputs_t& out = exchange.dispatch_out;
  out.cumulative_tokens_per_expert = nullptr;  // what no kernel writes is not expected
  ReceiveDispatchArgs args{};
  args.send = dispatch_args(exchange, handle, seed);
  args.out = {data_of(out.tokens), data_of(out.scales), static_cast<int32_t*>(data_of(out.topk_idx)),
              static_cast<float*>(data_of(out.topk_weights)), static_cast<int64_t*>(data_of(out.src_info))};
  args.zones = args.rows = static_cast<uint32_t>(out.tokens->sizes[0]);
  if (exchange.scenario().ll()) args.rows *= static_cast<uint32_t>(out.tokens->sizes[1]);
  args.tile = 1 + seed * 11 % 48;
  args.zone_rows = static_cast<int32_t*>(words.zone_rows.get()->data);
  return args;
}

ReceiveCombineArgs received_combine(Exchange& exchange, ucclEpHandle_t handle, uint32_t seed) {
  ReceiveCombineArgs args{};
  args.send = combine_args(exchange, handle, seed);
  args.out = {data_of(exchange.combine_out.tokens), data_of(exchange.combine_in.bias),
              data_of(exchange.combine_in.bias2)};
  args.tokens = static_cast<uint32_t>(exchange.combine_out.tokens->sizes[0]);
  args.tile = 1 + seed * 3 % 5;
  return args;
}

void check_zone_rows(const Exchange& exchange, int rank, Words& words) {
  const reference::Counters counts =
      reference::counters(exchange.contents().world(), exchange.scenario().shape(), rank);
  words.zone_rows.set_integers(exchange.scenario().by_expert() ? counts.tokens_per_expert_unpadded
                                                               : counts.tokens_per_rank);
  words.zone_rows.verify(rank);
}

void launch_round(Exchange& exchange, Session& at, const std::string& scope, const RoundArgs& args) {
  const char* kernel = exchange.scenario().ll() ? "round_" : "round_ht_";
  launch_user(at.handle, kernel + scope, &args, sizeof args, at.stream);
}

// Which operations of a round kernels receive; the others are the host's calls. one_kernel: both in the same.
struct Received {
  bool dispatch = true, combine = true, one_kernel = false;
};

void receive_round(const Rank& rank, Session& at, Exchange& exchange, const std::string& scope, uint32_t seed,
                   const Received& received) {
  const bool ll = exchange.scenario().ll();
  Words words(exchange, at.comm);
  RoundArgs args{RoundParts::both, received_dispatch(exchange, at.handle, seed, words),
                 received_combine(exchange, at.handle, seed), static_cast<GridBarrier*>(words.barrier.get()->data)};
  if (!received.one_kernel) args.parts = RoundParts::dispatch;
  if (received.dispatch) {
    launch_round(exchange, at, scope, args);
  } else {
    exchange.dispatch(at.handle, at.stream);
  }
  at.stream.synchronize();
  exchange.check_dispatch();
  if (ll && received.dispatch) check_zone_rows(exchange, rank.rank, words);
  if (!received.one_kernel && received.combine) {
    args.parts = RoundParts::combine;
    launch_round(exchange, at, scope, args);
  } else if (!received.one_kernel) {
    if (!ll && received.dispatch) {  // so that the host knows of the dispatch; there is nothing left to do
      ok(ucclEpCompleteDispatch(at.handle, &exchange.dispatch_out, &exchange.dispatch_config, at.stream),
         "ucclEpCompleteDispatch");
    }
    exchange.combine(at.handle, at.stream);
  }
  at.stream.synchronize();
  exchange.check_combine();
  no_async_error(at.comm);
}

// One routing; in HT forward and backward.
void receive_routing(const Rank& rank, Session& at, const Scenario& scenario, const std::string& scope, uint32_t seed,
                     const Received& received) {
  Exchange exchange(rank, at.comm, scenario, scenario.seed + seed);
  if (!scenario.ll()) exchange.update(at.handle, at.stream);
  receive_round(rank, at, exchange, scope, seed, received);
  if (scenario.ll()) return;
  Scenario backward = backward_of(scenario);
  backward.weight_rows = false;
  Exchange gradients(rank, at.comm, backward, scenario.seed + seed);
  gradients.refresh(seed + 1000);
  receive_round(rank, at, gradients, scope, seed + 1, received);
}

void run_received(Scenario scenario) {
  scenario.carried = scenario.ll();
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    uint32_t seed = 0;
    for (const std::string& scope : scopes_of_run()) {
      constexpr Received apart[] = {{}, {.dispatch = false}, {.combine = false}};
      for (const Received& received : {Received{.one_kernel = true}, apart[seed / 2 % 3]}) {
        try {
          receive_routing(rank, at, scenario, scope, ++seed, received);
        } catch (const Failure& failure) {
          throw Failure(scope + ", round " + std::to_string(seed) + ": " + failure.what());
        }
      }
    }
  });
}

void run_received_layouts(Scenario scenario) {
  for (const Layout layout : all_layouts) {
    scenario.layout = layout;
    run_received(scenario);
  }
}

TEST_CASE("user kernels receive: rows that travel as lines", "[process][reduced]") {
  run_received_layouts({.experts = 16, .top_k = 4, .max_tokens = 9, .hidden = 72});
}

TEST_CASE("user kernels receive: rows that travel in bulk", "[process][reduced]") {
  run_received_layouts({.experts = 16, .top_k = 4, .max_tokens = 21, .hidden = 1032});
}

TEST_CASE("user kernels receive: many copies of a row on one rank, every type of combine", "[process][long]") {
  for (const ucclEpDataType_t dtype : {ucclEpBfloat16, ucclEpFloat16, ucclEpFloat32}) {
    run_received_layouts(
        {.ranks = 2, .experts = 16, .top_k = 12, .max_tokens = 7, .dtype = dtype, .combine_dtype = dtype, .biases = 2});
  }
}

TEST_CASE("user kernels receive: fp8 rows with scales", "[process]") {
  run_received_layouts({.max_tokens = 6,
                        .hidden = 144,
                        .dtype = ucclEpFloat8e4m3,
                        .any_bits = true,
                        .scales = Scales{.dtype = ucclEpFloat8e8m0, .width = 7}});
}

TEST_CASE("user kernels receive: tokens differ between ranks, entries are -1", "[process][reduced]") {
  run_received_layouts({.experts = 16, .top_k = 3, .max_tokens = 20, .tokens = {20, 7, 1, 0}, .rule = uniform(40)});
}

TEST_CASE("user kernels receive: nothing comes, and one rank alone", "[process]") {
  run_received_layouts({.experts = 8, .top_k = 2, .max_tokens = 5, .rule = uniform(100)});
  run_received_layouts({.ranks = 1, .experts = 4, .top_k = 2, .max_tokens = 5});
}

TEST_CASE("user kernels receive: rows for which a group has no room", "[process]") {
  for (const Layout layout : {Layout::ht_flat, Layout::ht_expert_major}) {
    Scenario scenario{.layout = layout, .experts = 8, .top_k = 3, .max_tokens = 7, .max_recv = 9};
    if (scenario.by_expert()) scenario.alignment = 2;
    scenario.overflow = UCCLEP_OVERFLOW_DROP;
    run_received(scenario);
    scenario.overflow = UCCLEP_OVERFLOW_ERROR;
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario);
      const Words words(exchange, at.comm);
      exchange.update(at.handle, at.stream);
      launch_round(exchange, at, "warp",
                   {RoundParts::dispatch, received_dispatch(exchange, at.handle, 1, words), {}, nullptr});
      at.stream.synchronize();
      exchange.check_dispatch();
      const ucclEpAsyncError_t error = async_error(at.comm);
      require(error.code == ucclEpOverflow, std::string("another record: ") + error.text);
    });
  }
}

TEST_CASE("user kernels receive: what a kernel did not ask for, the second half brings", "[process][reduced]") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .max_tokens = 6, .carried = true};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    for (uint32_t seed = 1; seed < 4; ++seed) {
      Exchange exchange(rank, at.comm, scenario, seed);
      const Words words(exchange, at.comm);
      const ucclEpTensor_t* cumulative = exchange.dispatch_out.cumulative_tokens_per_expert;
      RoundArgs args{RoundParts::dispatch, received_dispatch(exchange, at.handle, seed, words), {}, nullptr};
      args.dispatch.rows /= 2;
      exchange.dispatch_out.cumulative_tokens_per_expert = cumulative;
      launch_round(exchange, at, "warp", args);
      ok(ucclEpCompleteDispatch(at.handle, &exchange.dispatch_out, &exchange.dispatch_config, at.stream),
         "ucclEpCompleteDispatch");
      at.stream.synchronize();
      exchange.check_dispatch();
      exchange.check_counters();
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_combine();
    }
    no_async_error(at.comm);
  });
}

TEST_CASE("user kernels receive: ranks that disagree on the shape end without a row", "[process]") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .max_tokens = 4, .carried = true};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    const Words words(exchange, at.comm);
    RoundArgs args{RoundParts::dispatch, received_dispatch(exchange, at.handle, 1, words), {}, nullptr};
    if (rank.rank == 1) args.dispatch.send.shape.hidden /= 2;
    launch_round(exchange, at, "warp", args);
    at.stream.synchronize();
    left_record(at, "settings", "hidden");
    exchange.check_untouched();
    receive_routing(rank, at, scenario, "block", 2, {});
  });
}

TEST_CASE("user kernels receive: a peer that sends nothing is named in time", "[process]") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .ranks = 2, .max_tokens = 4, .carried = true};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario, 300);
    if (rank.rank == 0) {
      Exchange exchange(rank, at.comm, scenario);
      const Words words(exchange, at.comm);
      launch_round(exchange, at, "lanes4",
                   {RoundParts::dispatch, received_dispatch(exchange, at.handle, 1, words), {}, nullptr});
      ucclEpStreamSynchronize(at.comm, at.stream);
      const ucclEpAsyncError_t error = async_error(at.comm);
      require(error.code == ucclEpTimeout && error.peer == 1, std::string("another record: ") + error.text);
    }
    rank.board.add(0);
    rank.board.wait(0, 2);
  });
}

}  // namespace
}  // namespace ucclep::test

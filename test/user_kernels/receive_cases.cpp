// SPDX-License-Identifier: Apache-2.0
// Operations that a user's kernel sends and receives, in LL and HT: the same bytes as ucclEpDispatch and ucclEpCombine,
// from every scope, a few rows at a time and in any order; one after the other in one kernel, too.
#include <catch2/catch.hpp>

#include "receive_calls.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

void run_received(Scenario scenario) {
  scenario.carried = scenario.ll();
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    receive_rounds(rank, at, scenario);
  });
}

void run_received_layouts(Scenario scenario) {
  for (const Layout layout : all_layouts) {
    scenario.layout = layout;
    run_received(scenario);
  }
}

// Of fp32 sums with several terms every change of the order shows.
TEST_CASE("user kernels receive: rows that travel as lines", "[process][nodes][reduced]") {
  run_received_layouts({.experts = 16, .top_k = 4, .max_tokens = 9, .hidden = 72, .combine_dtype = ucclEpFloat32});
}

TEST_CASE("user kernels receive: rows that travel in bulk", "[process][nodes][reduced]") {
  run_received_layouts({.experts = 16, .top_k = 4, .max_tokens = 21, .hidden = 1032});
}

// Rank 0 makes the host's calls, with one SM; the others receive in kernels, in one or in two.
void run_beside_the_host(Scenario scenario, bool late) {
  scenario.carried = scenario.ll();
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    const bool host = rank.rank == 0;
    Scenario own = scenario;
    own.num_sms = host ? 1 : 0;
    uint32_t seed = 0;
    for (const std::string& scope : scopes_of_run()) {
      ++seed;
      receive_routing(
          rank, at, own, scope, seed,
          {.dispatch = !host, .combine = !host, .one_kernel = !host && seed % 2 == 0, .late = host && late});
    }
  });
}

TEST_CASE("user kernels receive: beside a rank that makes the host's calls", "[process][nodes]") {
  for (const Layout layout : all_layouts) {
    run_beside_the_host({.layout = layout, .experts = 16, .top_k = 4, .max_tokens = 9, .hidden = 1032}, false);
  }
}

// Rank 0 says how many before it sends them, while the others wait.
TEST_CASE("user kernels receive: many rows that come long after their header", "[process][nodes][reduced]") {
  run_beside_the_host({.layout = Layout::ll_rank_major,
                       .experts = 16,
                       .top_k = 4,
                       .max_tokens = 128,
                       .tokens = {reduced() ? 32 : 128, 1, 0, 1},
                       .hidden = 4104},
                      true);
}

void run_many_copies(ucclEpDataType_t dtype) {
  run_received_layouts(
      {.ranks = 2, .experts = 16, .top_k = 12, .max_tokens = 7, .dtype = dtype, .combine_dtype = dtype, .biases = 2});
}

TEST_CASE("user kernels receive: many copies of a row on one rank", "[process][nodes]") {
  run_many_copies(ucclEpFloat32);
}

TEST_CASE("user kernels receive: many copies of a row on one rank, the other types of combine",
          "[process][nodes][long]") {
  for (const ucclEpDataType_t dtype : {ucclEpBfloat16, ucclEpFloat16}) run_many_copies(dtype);
}

TEST_CASE("user kernels receive: fp8 rows with scales", "[process][nodes]") {
  run_received_layouts({.max_tokens = 6,
                        .hidden = 144,
                        .dtype = ucclEpFloat8e4m3,
                        .any_bits = true,
                        .scales = Scales{.dtype = ucclEpFloat8e8m0, .width = 7}});
}

TEST_CASE("user kernels receive: tokens differ between ranks, entries are -1", "[process][nodes][reduced]") {
  run_received_layouts({.experts = 16, .top_k = 3, .max_tokens = 20, .tokens = {20, 7, 1, 0}, .rule = uniform(40)});
}

TEST_CASE("user kernels receive: nothing comes, and one rank alone", "[process][nodes]") {
  run_received_layouts({.experts = 8, .top_k = 2, .max_tokens = 5, .rule = uniform(100)});
  run_received_layouts({.ranks = 1, .experts = 4, .top_k = 2, .max_tokens = 5});
}

TEST_CASE("user kernels receive: rows for which a group has no room", "[process][nodes]") {
  for (const Layout layout : {Layout::ht_flat, Layout::ht_expert_major}) {
    Scenario scenario{.layout = layout, .experts = 8, .top_k = 3, .max_tokens = 7, .max_recv = 9};
    if (scenario.by_expert()) scenario.alignment = 2;
    scenario.overflow = UCCLEP_OVERFLOW_DROP;
    run_received(scenario);
    scenario.overflow = UCCLEP_OVERFLOW_ERROR;
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario);
      exchange.update(at.handle, at.stream);
      receive_dispatch(exchange, at, "warp", 1);
      exchange.check_dispatch();
      const ucclEpAsyncError_t error = async_error(at.comm);
      require(error.code == ucclEpOverflow, std::string("another record: ") + error.text);
    });
  }
}

TEST_CASE("user kernels receive: what a kernel did not ask for, the receive phase brings",
          "[process][nodes][reduced]") {
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
      launch_round(exchange, at.handle, "warp", args, at.stream);
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

TEST_CASE("user kernels receive: ranks that disagree on the shape end without a row", "[process][nodes]") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .max_tokens = 4, .carried = true};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    const Words words(exchange, at.comm);
    RoundArgs args{RoundParts::dispatch, received_dispatch(exchange, at.handle, 1, words), {}, nullptr};
    if (rank.rank == 1) args.dispatch.send.shape.hidden /= 2;
    launch_round(exchange, at.handle, "warp", args, at.stream);
    at.stream.synchronize();
    left_record(at, "settings", "hidden");
    exchange.check_untouched();
    receive_routing(rank, at, scenario, "block", 2, {});
  });
}

TEST_CASE("user kernels receive: a peer that sends nothing is named in time", "[process][nodes]") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .ranks = 2, .max_tokens = 4, .carried = true};
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario, 300);
    if (rank.rank == 0) {
      Exchange exchange(rank, at.comm, scenario);
      const Words words(exchange, at.comm);
      launch_round(exchange, at.handle, "lanes4",
                   {RoundParts::dispatch, received_dispatch(exchange, at.handle, 1, words), {}, nullptr}, at.stream);
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

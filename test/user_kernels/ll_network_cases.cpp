// SPDX-License-Identifier: Apache-2.0
// Device-initiated operations of LL, between domains: what the cases of one domain do not have. Those run
// between virtual nodes as well (tag [nodes]).
#include <catch2/catch.hpp>
#include <string>

#include "between_domains.hpp"
#include "receive_calls.hpp"
#include "support/environment.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

void run_ll_across(const Nodes& nodes, const std::string& transport, const Scenario& scenario, const SessionBody& body,
                   int timeout_ms = 0) {
  run_between_domains(nodes, transport, scenario, {Layout::ll_expert_major, Layout::ll_rank_major}, body, timeout_ms);
}

void initiated_rounds(const Rank& rank, Session& at, const Scenario& scenario) {
  uint32_t seed = 0;
  for (const std::string& scope : scopes_of_run()) {
    Exchange exchange(rank, at.comm, scenario, scenario.seed + ++seed);
    there_and_home(exchange, at, scope, seed, {});
    exchange.check_counters();
  }
  no_async_error(at.comm);
}

TEST_CASE("user kernels between domains: some ranks begin operations in kernels, others do not", "[process][reduced]") {
  for (uint32_t seed = 1; seed <= seeds(); ++seed) {
    const Nodes nodes = seed % 2 == 0 ? Nodes{2, 2} : Nodes{1, 3};
    run_ll_across(nodes, reordering(seed), {.experts = 16, .top_k = 4, .max_tokens = 11, .biases = 1},
                  [&](Rank& rank, Session& at, const Scenario& scenario) {
                    for (uint32_t round = 1; round <= 6; ++round) {
                      const uint32_t mine = round + static_cast<uint32_t>(rank.rank);
                      Exchange exchange(rank, at.comm, scenario, scenario.seed + round);
                      there_and_home(exchange, at, scopes[mine % 4], round,
                                     {.dispatch = mine % 2 == 0, .combine = mine % 3 != 0});
                      exchange.check_counters();
                    }
                    no_async_error(at.comm);
                  });
  }
}

// Rows of user kernels are not counted before they leave, and go to each rank. All ranks may open an operation of a
// group whose rows go to each node once, or none.
TEST_CASE("user kernels between domains: where rows of the host's calls cross once for each node",
          "[process][reduced]") {
  const Environment asked("UCCLEP_LL_COPIES", "node");
  run_ll_across({2, 2}, reordering(7), {.experts = 16, .top_k = 4, .max_tokens = 9},
                [&](Rank& rank, Session& at, const Scenario& scenario) {
                  for (uint32_t round = 1; round <= 4; ++round) {
                    Exchange exchange(rank, at.comm, scenario, scenario.seed + round);
                    there_and_home(exchange, at, scopes[round % 4], round,
                                   {.dispatch = round % 2 == 0, .combine = round > 2});
                  }
                  Exchange mixed(rank, at.comm, scenario);
                  if (rank.rank == 1) {
                    initiate_dispatch(mixed, at.handle, "warp", 1, at.stream);
                  } else {
                    mixed.dispatch(at.handle, at.stream);
                  }
                  at.stream.synchronize();
                  left_record(at, "settings", "UCCLEP_LL_COPIES");
                  mixed.check_untouched();
                  Exchange again(rank, at.comm, scenario, 9);
                  there_and_home(again, at, "block", 9, {.dispatch = false, .combine = false});
                  no_async_error(at.comm);
                });
}

TEST_CASE("user kernels between domains: received in the kernel", "[process][reduced]") {
  run_ll_across({2, 2}, reordering(6), {.experts = 16, .top_k = 4, .max_tokens = 9}, receive_rounds);
}

TEST_CASE("user kernels between domains: a node of three ranks and one of five, tokens of several chunks and of none",
          "[process]") {
  run_ll_across({3, 5}, reordering(2),
                {.experts = 16, .top_k = 5, .max_tokens = 9, .tokens = {9, 0, 4, 9, 1, 0, 7, 2}, .rule = uniform(30)},
                initiated_rounds);
  run_ll_across({1, 1}, reordering(3), {.experts = 4, .top_k = 2, .max_tokens = 130, .hidden = 2048}, initiated_rounds);
}

TEST_CASE("user kernels between domains: one expert for a token, and 32", "[process]") {
  run_ll_across({1, 1}, reordering(4), {.experts = 8, .top_k = 1, .max_tokens = 7}, initiated_rounds);
  run_ll_across({1, 2}, reordering(5), {.experts = 66, .top_k = 32, .max_tokens = 5}, initiated_rounds);
}

TEST_CASE("user kernels between domains: what dispatch_end does not count does not come", "[process][reduced]") {
  run_ll_across({1, 1}, reordering(1), {.experts = 4, .max_tokens = 6},
                [](Rank& rank, Session& at, const Scenario& scenario) {
                  Exchange nothing(rank, at.comm, scenario);
                  InitiatedDispatchArgs args = dispatch_args(nothing, at.handle, 1);
                  args.said = 0;
                  initiate_dispatch(nothing, at.handle, "warp", args, at.stream);
                  at.stream.synchronize();
                  nothing.check_untouched();
                  initiated_rounds(rank, at, scenario);
                });
}

TEST_CASE("user kernels between domains: a token that is sent twice", "[process]") {
  run_ll_across({1, 1}, reordering(1), {.experts = 2, .top_k = 2, .max_tokens = 6, .tokens = {4, 4}},
                [](Rank& rank, Session& at, const Scenario& scenario) {
                  const auto again = [&](uint32_t tokens) {
                    Exchange exchange(rank, at.comm, scenario);
                    InitiatedDispatchArgs args = dispatch_args(exchange, at.handle, 1);
                    args.again = tokens;
                    initiate_dispatch(exchange, at.handle, "block", args, at.stream, {.blocks = 1, .threads = 64});
                    at.stream.synchronize();
                    if (tokens == 1) exchange.check_dispatch();
                  };
                  again(1);
                  no_async_error(at.comm);
                  again(4);
                  left_record(at, "shape", "tokens is 7, expected 6");
                  initiated_rounds(rank, at, scenario);
                });
}

// In the send phase, or in the second.
TEST_CASE("user kernels between domains: a rank that does not come is named in time", "[process][reduced]") {
  const Scenario scenario{.experts = 4, .max_tokens = 4};
  run_ll_across(
      {1, 1}, "loopback", scenario,
      [&](Rank& rank, Session& at, const Scenario& in_layout) {
        Exchange exchange(rank, at.comm, in_layout);
        if (rank.rank == 0) initiate_dispatch(exchange, at.handle, "warp", 1, at.stream);
        is_named_in_time(rank, at);
      },
      150);
  run_ll_across(
      {1, 1}, "loopback", scenario,
      [&](Rank& rank, Session& at, const Scenario& in_layout) {
        Exchange exchange(rank, at.comm, in_layout);
        initiate_dispatch(exchange, at.handle, "warp", 1, at.stream);
        at.stream.synchronize();
        if (rank.rank == 0) initiate_combine(exchange, at.handle, "warp", 1, at.stream);
        is_named_in_time(rank, at);
      },
      ms_for_the_first);
}

}  // namespace
}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// max_recv_tokens_per_rank and overflow: what HT drops, what the counters say of it, what combine makes of it, and who
// hears of it.
#include <catch2/catch.hpp>
#include <string>

#include "conformance/exchange.hpp"
#include "conformance/overflow.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

constexpr int policies[] = {UCCLEP_OVERFLOW_ERROR, UCCLEP_OVERFLOW_DROP};

// Both layouts of HT, with zones that are padded.
std::vector<Scenario> in_layouts_of_ht(const Scenario& scenario) {
  std::vector<Scenario> scenarios;
  for (const Scenario& one : in_all_layouts(scenario)) {
    if (!one.ll()) scenarios.push_back(one);
  }
  return scenarios;
}

std::vector<int64_t> totals(const Scenario& scenario, uint64_t routing_seed) {
  const Contents contents(scenario, routing_seed, 1);
  std::vector<int64_t> rows;
  for (int rank = 0; rank < scenario.ranks; ++rank) rows.push_back(contents.placed(rank).total);
  return rows;
}

// The most rows that any rank receives.
int64_t max_rows(const Scenario& scenario, uint64_t routing_seed) {
  const std::vector<int64_t> rows = totals(scenario, routing_seed);
  return *std::max_element(rows.begin(), rows.end());
}

// Each trip leaves the record that it should.
void run_limited(const std::vector<Scenario>& scenarios, const Trip& trip = round_trip, int rounds = 1) {
  const auto with_record = [&](const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream,
                               const Scenario& scenario, uint64_t seed) {
    trip(rank, comm, handle, stream, scenario, seed);
    check_overflow_record(comm, scenario, {seed}, rank.rank);
  };
  run_each(scenarios, with_record, rounds);
}

TEST_CASE("overflow: limits around N, both policies, there and back",
          "[process][reduced][driver][checked][nodes][modes]") {
  std::vector<Scenario> scenarios;
  for (const Scenario& base : in_layouts_of_ht({.top_k = 3, .max_tokens = 11, .alignment = 4, .seed = 201})) {
    const int64_t max = max_rows(base, base.seed);
    for (const int64_t limit : {max + 1, max, max - 1, max / 2, int64_t{1}}) {
      scenarios.push_back(base);
      scenarios.back().max_recv = limit;
      scenarios.back().overflow = policies[limit % 2];
    }
  }
  run_limited(scenarios, there_and_back);
}

TEST_CASE("overflow: the lower of the tensor and the limit holds", "[process][reduced][nodes]") {
  std::vector<Scenario> scenarios;
  for (const Scenario& base : in_layouts_of_ht({.top_k = 2, .max_tokens = 9, .alignment = 2, .seed = 211})) {
    for (const int policy : policies) {
      for (const int64_t rows : {5, 12, 13, 200}) {
        scenarios.push_back(base);
        scenarios.back().max_recv = 12;
        scenarios.back().fixed_capacity = rows;
        scenarios.back().overflow = policy;
      }
    }
  }
  run_limited(scenarios);
}

TEST_CASE("overflow: ranks without tokens, one that receives all, and others that receive nothing",
          "[process][nodes]") {
  std::vector<Scenario> scenarios;
  for (Scenario& base : in_layouts_of_ht({.top_k = 2, .tokens = {8, 0, 3, 5}, .alignment = 8, .seed = 221})) {
    base.rule = only({2, 3});  // of rank 1
    for (const int64_t limit : {1, 7, 8, 15, 16, 24, 31, 32}) {
      base.max_recv = limit;
      base.overflow = policies[limit / 2 % 2];
      scenarios.push_back(base);
    }
  }
  run_limited(scenarios, there_and_back);
}

TEST_CASE("overflow: only the rank that overflows has a record", "[process][nodes]") {
  for (Scenario& scenario : in_layouts_of_ht({.top_k = 2, .max_tokens = 12, .seed = 231})) {
    const std::vector<int64_t> rows = totals(scenario, scenario.seed);
    scenario.max_recv = *std::max_element(rows.begin(), rows.end()) - 1;
    REQUIRE(*std::min_element(rows.begin(), rows.end()) <= scenario.max_recv);
    run_limited({scenario});
  }
}

TEST_CASE("overflow: many routings of one handle, some of which overflow", "[process][nodes]") {
  for (Scenario& scenario :
       in_layouts_of_ht({.top_k = 3, .max_tokens = 9, .alignment = 2, .rule = uniform(30), .seed = 241})) {
    const std::vector<int64_t> rows = totals(scenario, scenario.seed);
    scenario.max_recv = rows.front();
    run_limited({scenario}, round_trip, 6);
    scenario.carried = true;
    scenario.overflow = UCCLEP_OVERFLOW_DROP;
    run_limited({scenario}, round_trip, 3);
  }
}

TEST_CASE("overflow: scales, quantisation, long rows apart and biases", "[nodes]") {
  std::vector<Scenario> scenarios;
  for (Scenario& scenario :
       in_layouts_of_ht({.top_k = 3, .max_tokens = 9, .hidden = 640, .alignment = 4, .seed = 251})) {
    scenario.max_recv = max_rows(scenario, scenario.seed) * 2 / 3;
    scenario.overflow = UCCLEP_OVERFLOW_DROP;
    scenario.biases = 2;
    scenario.strided = true;
    scenario.global_ids = true;
    scenario.counter = ucclEpInt64;
    scenario.offsets_with_total = true;
    scenarios.push_back(scenario);
    scenario.quant = UCCLEP_QUANT_FP8_128;
    scenario.scales = Scales{ucclEpFloat32, 0, true};
    scenarios.push_back(scenario);
  }
  run_limited(scenarios);
}

TEST_CASE("overflow: LL has room for all rows and no limit", "[process][nodes]") {
  std::vector<Scenario> scenarios;
  for (Scenario& scenario : in_all_layouts({.top_k = 3, .max_recv = 1, .seed = 261})) {
    if (scenario.ll()) scenarios.push_back(scenario);
  }
  run_limited(scenarios);
}

// HT's pool lies where rows of LL land.
TEST_CASE("overflow: one group with a limit serves LL and HT in turn", "[process][nodes]") {
  const std::vector<Scenario> scenarios = in_all_layouts(
      {.top_k = 3, .max_tokens = 9, .hidden = 4096, .max_recv = 7, .overflow = UCCLEP_OVERFLOW_DROP, .seed = 281});
  run_ranks(4, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    Group group = make_group(comm, group_config(scenarios));
    std::vector<Handle> handles;
    for (const Scenario& scenario : scenarios) handles.push_back(make_handle(group, handle_config(scenario)));
    for (uint64_t seed = 281; seed < 284; ++seed) {
      for (size_t i = 0; i < handles.size(); ++i) round_trip(rank, comm, handles[i], stream, scenarios[i], seed);
    }
    no_async_error(comm);
  });
}

// The host knows N, and what the group keeps of it: less room than that is a mistake.
TEST_CASE("overflow: what HandleWaitCounts says, and how small a tensor may be then", "[process][reduced]") {
  for (Scenario& scenario :
       in_layouts_of_ht({.top_k = 3, .alignment = 4, .max_recv = 9, .overflow = UCCLEP_OVERFLOW_DROP})) {
    Scenario small = scenario;
    small.fixed_capacity = 8;
    scenario.fixed_capacity = 9;
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario), too_small(rank, at.comm, small);
      exchange.update(at.handle, at.stream);
      const reference::Counters counts = reference::counters(exchange.contents().world(), scenario.shape(), rank.rank);
      int64_t total = 0;
      std::vector<int64_t> of_experts(static_cast<size_t>(scenario.local_experts()));
      ok(ucclEpHandleWaitCounts(at.handle, &total, of_experts.data()), "ucclEpHandleWaitCounts");
      require(total == counts.recv_total && total > 9, "HandleWaitCounts says " + std::to_string(total) + " rows");
      require(of_experts == counts.tokens_per_expert, "HandleWaitCounts does not say what the counters say");
      refused(too_small.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch",
              {"outputs.tokens.sizes[0] is 8", std::to_string(total)});
      exchange.dispatch(at.handle, at.stream);
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_counters();
      exchange.check_dispatch();
      exchange.check_combine();
      too_small.check_untouched();
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("overflow: the backward pass on saved memory drops the same rows", "[process][reduced][nodes]") {
  for (Scenario& scenario : in_layouts_of_ht({.top_k = 3, .max_tokens = 9, .alignment = 4, .seed = 271})) {
    scenario.max_recv = max_rows(scenario, scenario.seed) / 2;
    scenario.overflow = UCCLEP_OVERFLOW_DROP;
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Comm comm(rank);
      Stream stream(comm);
      Group group = make_group(comm, group_config({scenario}));
      ucclEpHandleConfig_t config = handle_config(scenario);
      size_t bytes = 0;
      ok(ucclEpHandleMemSize(group, &config, &bytes), "ucclEpHandleMemSize");
      const Tensor memory(comm, "handle_mem", ucclEpUint8, {static_cast<int64_t>(bytes)});
      config.handle_mem = memory.get();
      {
        Handle forward = make_handle(group, config);
        round_trip(rank, comm, forward, stream, scenario, scenario.seed);
      }
      Handle backward = make_handle(group, config);
      Exchange gradients(rank, comm, backward_of(scenario), scenario.seed);
      gradients.refresh(scenario.seed + 1000);
      gradients.dispatch(backward, stream);
      gradients.combine(backward, stream);
      stream.synchronize();
      gradients.check_dispatch();
      gradients.check_combine();
      no_async_error(comm);
    });
  }
}

}  // namespace
}  // namespace ucclep::test

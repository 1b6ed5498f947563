// SPDX-License-Identifier: Apache-2.0
// Device-initiated operations of HT, between virtual nodes: the same rows as in one domain, and the sums of the
// plain reference with the same nodes, over networks that keep an order and such that do not.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "between_domains.hpp"
#include "receive_calls.hpp"
#include "support/environment.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

void run_ht_across(const Nodes& nodes, const std::string& transport, const Scenario& scenario, const SessionBody& body,
                   int timeout_ms = 0) {
  run_between_domains(nodes, transport, scenario, {Layout::ht_flat, Layout::ht_expert_major}, body, timeout_ms);
}

void run_ht_initiated_across(const Nodes& nodes, const std::string& transport, const Scenario& asked,
                             bool records = false) {
  run_ht_across(nodes, transport, asked, [records](Rank& rank, Session& at, const Scenario& scenario) {
    from_every_scope([&](const std::string& scope, uint32_t seed, const DeviceInitiated& device_initiated) {
      routed_round(rank, at, scenario, scope, seed, device_initiated);
    });
    if (!records) no_async_error(at.comm);
  });
}

void run_received(const Nodes& nodes, const std::string& transport, const Scenario& scenario) {
  run_ht_across(nodes, transport, scenario, receive_rounds);
}

Scenario usual(int ranks) {
  return {.experts = 4 * ranks, .top_k = 5, .max_tokens = 9, .hidden = 72, .biases = 1, .rule = uniform(10)};
}

TEST_CASE("user kernels in HT between domains: rows and sums, forward and backward", "[process][reduced][host]") {
  run_ht_initiated_across({2, 2}, reordering(1), usual(4));
}

TEST_CASE("user kernels in HT between domains: received, too", "[process][reduced][host][apart]") {
  run_received({2, 2}, reordering(2), usual(4));
}

TEST_CASE("user kernels in HT between domains: networks that reorder, repeat and withhold", "[process][host]") {
  const std::vector<Nodes> worlds{{2, 2}, {1, 3}, {1, 1, 1, 1}};
  for (unsigned seed = 1; seed <= seeds(); ++seed) {
    run_ht_initiated_across(worlds[seed % worlds.size()], reordering(seed), usual(4));
    run_received(worlds[(seed + 1) % worlds.size()], reordering(seed), usual(4));
  }
}

TEST_CASE("user kernels in HT between domains: a node of three ranks and one of five", "[process][host]") {
  Scenario scenario{.experts = 32, .top_k = 4, .max_tokens = 12, .hidden = 136, .alignment = 8, .rule = uniform(30)};
  scenario.tokens = {12, 0, 1, 12, 0, 1, 12, 7};
  run_ht_initiated_across({3, 5}, "loopback", scenario);
  run_received({3, 5}, reordering(3), scenario);
}

TEST_CASE("user kernels in HT between domains: a node relays for all ranks of a larger one", "[process][host]") {
  run_ht_initiated_across({1, 3}, "loopback", usual(4));
  run_received({3, 1}, reordering(4), usual(4));
}

// Of fp32 sums with many terms every change of the order shows.
TEST_CASE("user kernels in HT between domains: many terms, every type of combine", "[process][host]") {
  for (const ucclEpDataType_t dtype : {ucclEpFloat32, ucclEpFloat16}) {
    Scenario scenario{.experts = 16, .top_k = 12, .max_tokens = 5, .dtype = dtype, .combine_dtype = dtype};
    scenario.biases = 2;
    run_ht_initiated_across({2, 2}, "loopback", scenario);
    run_received({2, 1, 1}, reordering(5), scenario);
  }
}

TEST_CASE("user kernels in HT between domains: fp8 rows with scales of any width", "[process][host]") {
  const Scenario scenario{.max_tokens = 6,
                          .hidden = 144,
                          .dtype = ucclEpFloat8e4m3,
                          .any_bits = true,
                          .scales = Scales{.dtype = ucclEpFloat32, .width = 7}};
  run_ht_initiated_across({2, 2}, "loopback", scenario);
  run_received({1, 3}, "loopback", scenario);
}

TEST_CASE("user kernels in HT between domains: nothing comes, and one expert for a token", "[process][host]") {
  run_received({2, 2}, "loopback", {.experts = 8, .top_k = 2, .max_tokens = 5, .rule = uniform(100)});
  run_ht_initiated_across({1, 1, 2}, reordering(7), {.experts = 8, .top_k = 1, .max_tokens = 33, .rule = only({5})});
}

void run_without_room(bool masked) {
  Scenario scenario{.experts = 16, .top_k = 4, .max_tokens = 12, .slack = -7};
  scenario.masked = masked;
  run_ht_initiated_across({2, 2}, "loopback", scenario, true);
  scenario.slack = 0;
  scenario.max_recv = 19;
  scenario.overflow = UCCLEP_OVERFLOW_DROP;
  run_ht_initiated_across({2, 2}, reordering(8), scenario);
  run_received({1, 3}, reordering(9), scenario);
}
TEST_CASE("user kernels in HT between domains: rows for which there is no room", "[process][reduced][host]") {
  run_without_room(false);
}
TEST_CASE("user kernels in HT between domains: with masks, rows for which there is no room",
          "[process][host][masked]") {
  run_without_room(true);
}

// Rows that no relay brings, and partial rows that leave one by one.
TEST_CASE("user kernels in HT between domains: with masks, while nobody is lost", "[process][host][masked]") {
  Scenario scenario = usual(4);
  scenario.masked = true;
  for (unsigned seed = 1; seed <= seeds(); seed += 3) {
    run_ht_initiated_across({2, 2}, reordering(seed), scenario);
    run_received({1, 3}, reordering(seed + 1), scenario);
  }
}

// A rank's way to do its operations: a kernel begins them, or receives them as well; or the host's calls.
enum class Way { device_initiated, received, phases, whole };

void go(const Rank& rank, Session& at, const Scenario& scenario, uint32_t round, Way way) {
  Exchange exchange(rank, at.comm, scenario, scenario.seed + round);
  const std::string scope = scopes[(round + static_cast<uint32_t>(rank.rank)) % 4];
  exchange.update(at.handle, at.stream);
  if (way == Way::received) return receive_round(rank, at, exchange, scope, round, {.one_kernel = round % 2 == 0});
  if (way == Way::device_initiated) return there_and_home(exchange, at, scope, round, {});
  if (way == Way::whole) return there_and_home(exchange, at, scope, round, {.dispatch = false, .combine = false});
  exchange.dispatch_config.send_only = exchange.combine_config.send_only = 1;
  exchange.dispatch(at.handle, at.stream);
  ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
  at.stream.synchronize();
  exchange.check_dispatch();
  exchange.combine(at.handle, at.stream);
  ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
  at.stream.synchronize();
  exchange.check_combine();
}

TEST_CASE("user kernels in HT between domains: every rank goes its own way", "[process][reduced][host][apart]") {
  for (unsigned seed = 1; seed <= seeds(); seed += 2) {
    Scenario scenario = usual(4);
    scenario.masked = seed % 4 == 3;
    run_ht_across(seed % 3 == 0 ? Nodes{1, 3} : Nodes{2, 2}, reordering(seed), scenario,
                  [](Rank& rank, Session& at, const Scenario& scenario) {
                    for (uint32_t round = 1; round <= 8; ++round) {
                      const auto way =
                          static_cast<Way>(mix(scenario.seed, round, static_cast<uint64_t>(rank.rank)) % 4);
                      go(rank, at, scenario, round, way);
                    }
                    no_async_error(at.comm);
                  });
  }
}

TEST_CASE("user kernels in HT between domains: rows of many chunks", "[process][host]") {
  run_ht_across({1, 1}, reordering(6), {.experts = 4, .top_k = 2, .max_tokens = 24, .hidden = 7168},
                [](Rank& rank, Session& at, const Scenario& scenario) {
                  for (uint32_t round = 1; round <= 3; ++round) go(rank, at, scenario, round, Way(round % 2));
                  no_async_error(at.comm);
                });
}

// Five of these rows are a chunk, or one.
TEST_CASE("user kernels in HT between domains: long rows that relays stage", "[process][reduced][host][apart]") {
  for (const Scenario& rows : {Scenario{.experts = 8, .top_k = 4, .max_tokens = 32, .hidden = 7168},
                               Scenario{.experts = 4, .top_k = 2, .max_tokens = 8, .hidden = 32768}}) {
    run_ht_across({2, 2}, reordering(6), rows, [](Rank& rank, Session& at, const Scenario& scenario) {
      for (uint32_t round = 1; round <= 4; ++round) {
        const auto way = static_cast<Way>(mix(scenario.seed, round, static_cast<uint64_t>(rank.rank)) % 4);
        go(rank, at, scenario, round, way);
      }
      no_async_error(at.comm);
    });
  }
}

// A rank that has read what a kernel began, but not yet the phase before it, says so: who sends the next one waits.
TEST_CASE("user kernels in HT between domains: operations while a phase is pending", "[process][reduced][host]") {
  run_ht_across({2, 2}, reordering(1), usual(4), [](Rank& rank, Session& at, const Scenario& scenario) {
    const Handle other = make_handle(at.group, handle_config(scenario));
    for (uint32_t round = 1; round <= 4; ++round) {
      Exchange half(rank, at.comm, scenario, scenario.seed + round);
      Exchange device_initiated(rank, at.comm, scenario, scenario.seed + 100 + round);
      half.update(other, at.stream);
      device_initiated.update(at.handle, at.stream);
      half.dispatch_config.send_only = 1;
      half.dispatch(other, at.stream);
      if (round % 2 == 0) {
        receive_dispatch(device_initiated, at, "warp", round);
      } else {
        initiate_dispatch(device_initiated, at.handle, "thread", round, at.stream);
      }
      at.stream.synchronize();
      device_initiated.check_dispatch();
      if (rank.rank == static_cast<int>(round) - 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      ok(ucclEpComplete(other, at.stream), "ucclEpComplete");
      device_initiated.refresh(round);
      there_and_home(device_initiated, at, "lanes4", round, {});
      half.check_dispatch();
      half.combine(other, at.stream);
      at.stream.synchronize();
      half.check_combine();
    }
    no_async_error(at.comm);
  });
}

TEST_CASE("user kernels in HT between domains: ranks that disagree on the shape end without a row",
          "[process][reduced][host]") {
  run_ht_across({2, 2}, reordering(2), usual(4), [](Rank& rank, Session& at, const Scenario& scenario) {
    for (uint32_t round = 1; round <= 3; ++round) {
      Exchange exchange(rank, at.comm, scenario, round);
      exchange.update(at.handle, at.stream);
      InitiatedDispatchArgs dispatch = dispatch_args(exchange, at.handle, round);
      if (rank.rank == 1) dispatch.shape.hidden /= 3;
      initiate_dispatch(exchange, at.handle, "warp", dispatch, at.stream);
      at.stream.synchronize();
      left_record(at, "settings", "hidden");
      exchange.check_untouched();
      initiate_dispatch(exchange, at.handle, "lanes4", round, at.stream);
      InitiatedCombineArgs combine = combine_args(exchange, at.handle, round);
      if (rank.rank == 1) combine.shape.hidden /= 3;
      initiate_combine(exchange, at.handle, "warp", combine, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
      left_record(at, "settings", "hidden");
      exchange.combined().verify(rank.rank);  // as it was
    }
    routed_round(rank, at, scenario, "block", 4, {});
    no_async_error(at.comm);
  });
}

// In dispatch_end, which relays, or in combine_begin, where slots are used again.
TEST_CASE("user kernels in HT between domains: a rank that does not come is named in time",
          "[process][reduced][host]") {
  for (const bool dispatches : {false, true}) {
    run_ht_across(
        {1, 1}, "loopback", {.experts = 4, .max_tokens = 4},
        [dispatches](Rank& rank, Session& at, const Scenario& scenario) {
          Exchange exchange(rank, at.comm, scenario);
          exchange.update(at.handle, at.stream);
          at.stream.synchronize();
          if (rank.rank == 0 || dispatches) initiate_dispatch(exchange, at.handle, "thread", 1, at.stream);
          if (dispatches) at.stream.synchronize();
          if (rank.rank == 0 && dispatches) initiate_combine(exchange, at.handle, "warp", 1, at.stream);
          is_named_in_time(rank, at);
        },
        dispatches ? ms_for_the_first : 300);
  }
}

}  // namespace
}  // namespace ucclep::test

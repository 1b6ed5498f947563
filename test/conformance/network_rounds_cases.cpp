// SPDX-License-Identifier: Apache-2.0
// HT operations in rounds between virtual nodes: relays forward the rows of a round, and add up what goes home of it,
// while its slot is held by those who have not read it. The same rows and sums as in one round.
#include <catch2/catch.hpp>
#include <chrono>

#include "conformance/exchange.hpp"
#include "conformance/in_nodes.hpp"
#include "conformance/network_scenarios.hpp"
#include "conformance/nodes.hpp"
#include "support/environment.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

constexpr InNodes in_rounds{.ll = false, .gradients = true, .tokens_per_round = 2};

std::vector<Scenario> in_layouts_of_ht(const Scenario& scenario) {
  return in_layouts_of(false, scenario);
}

// All rows go to both nodes, in eight rounds.
Scenario to_the_other_node() {
  return {
      .layout = Layout::ht_flat, .ranks = 4, .experts = 4, .top_k = 4, .max_tokens = 24, .round = 3, .nodes = {2, 2}};
}

// ---- Rows and sums

TEST_CASE("rounds between nodes: rows and sums, there and back, in nodes of all sorts", "[rounds][reduced]") {
  run_in_worlds({{2, 2}, {2, 2, 2, 2}, {4, 4}, {1, 1, 1, 1, 1, 1, 1, 1}, {3, 5}}, in_rounds);
}

TEST_CASE("rounds between nodes: bytes with scales, nobody and everybody, limits", "[rounds]") {
  run_in_nodes({2, 3}, transport_under_test(), the_rest(5), in_rounds);
  run_in_nodes({2, 3}, transport_under_test(), {with_limits(5)[1]}, in_rounds);
}

// Of two ranks that relay for several each, and one that relays for all.
TEST_CASE("rounds between nodes: a node of one rank, and one block that does it all", "[rounds][reduced]") {
  InNodes how = in_rounds;
  run_in_nodes({1, 4}, transport_under_test(), {some_of_everything(5).front()}, how);
  how.num_sms = 1;
  run_in_nodes({3, 2}, transport_under_test(), {some_of_everything(5).front()}, how);
  if (!reduced()) run_in_nodes({1, 1, 1, 1, 1, 1, 1, 1}, transport_under_test(), {some_of_everything(8)[2]}, how);
}

// A round of 16 of these rows has four chunks.
TEST_CASE("rounds between nodes: of several chunks, and more slots", "[rounds][longer]") {
  for (const int slots : {2, 8}) {
    run_ranks(4, [&](Rank& rank) {
      const Nodes nodes{2, 2};
      Comm comm(rank, in_nodes(rank, nodes, "faulty:seed=2:loopback"));
      Stream stream(comm);
      Scenario rows{.ranks = 4, .experts = 8, .top_k = 3, .max_tokens = 70, .hidden = 7168, .nodes = nodes};
      rows.round = 16;
      for (const Scenario& scenario : in_layouts_of_ht(rows)) {
        ucclEpGroupConfig_t config = group_config({scenario});
        config.max_in_flight = slots;
        const Group group = make_group(comm, config);
        const Handle handle = make_handle(group, handle_config(scenario));
        for (uint64_t seed = 1; seed <= 2; ++seed) there_and_back(rank, comm, handle, stream, scenario, seed);
      }
      no_async_error(comm);
    });
  }
}

// Numbers of rounds go past those that immediates tell apart.
TEST_CASE("rounds between nodes: epochs that wrap", "[rounds][wrap]") {
  InNodes how = in_rounds;
  how.rounds = 12;
  run_in_nodes({2, 2}, "faulty:delay=300,seed=7:" + transport_under_test(),
               {{.experts = 8, .top_k = 3, .max_tokens = 12, .hidden = 16}}, how);
}

TEST_CASE("rounds between nodes: a network that reorders, repeats and withholds", "[rounds][reduced][reordered]") {
  for (unsigned seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    InNodes how = in_rounds;
    how.tokens_per_round = 1 + static_cast<int>(seed % 3);
    run_reordered(seed, how);
  }
}

// ---- Phases, and other operations

// phases: of this rank's operations.
void trip(const Rank& rank, Session& at, const Scenario& scenario, uint64_t seed, bool phases) {
  Exchange exchange(rank, at.comm, scenario, seed);
  exchange.dispatch_config.send_only = exchange.combine_config.send_only = phases ? 1 : 0;
  const auto complete = [&] { ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete"); };
  exchange.update(at.handle, at.stream);
  exchange.dispatch(at.handle, at.stream);
  complete();
  at.stream.synchronize();
  exchange.check_dispatch();
  exchange.combine(at.handle, at.stream);
  complete();
  at.stream.synchronize();
  exchange.check_combine();
}

TEST_CASE("rounds between nodes: phases, on all ranks and on some, quantised rows", "[rounds][reduced][reordered]") {
  for (unsigned seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    const std::string transport = "faulty:delay=400,seed=" + std::to_string(seed) + ":" + transport_under_test();
    for (const size_t which : {size_t{0}, size_t{3}}) {
      for (Scenario scenario : in_layouts_of_ht(some_of_everything(5)[which])) {
        scenario.ranks = 5;
        scenario.nodes = {3, 2};
        scenario.round = 2;
        run_ranks(5, [&](Rank& rank) {
          Session at(rank, in_nodes(rank, scenario.nodes, transport.c_str()), scenario);
          for (uint64_t round = 0; round < 3; ++round) {
            trip(rank, at, scenario, seed + round, round == 0 || (rank.rank + static_cast<int>(round)) % 2 == 0);
          }
          no_async_error(at.comm);
        });
      }
    }
  }
}

TEST_CASE("rounds between nodes: LL and HT take turns on one group", "[rounds][reduced]") {
  for (const char* copies : {"node", "rank"}) {
    const Environment of_ll("UCCLEP_LL_COPIES", copies);
    run_ranks(4, [&](Rank& rank) {
      std::vector<Scenario> scenarios =
          in_all_layouts({.experts = 16, .top_k = 4, .max_tokens = 11, .ll_max_tokens = 19, .nodes = {2, 2}});
      for (Scenario& scenario : scenarios) {
        if (!scenario.ll()) scenario.round = 3;
      }
      Comm comm(rank, in_nodes(rank, {2, 2}, "faulty:seed=3:loopback"));
      Stream stream(comm);
      ucclEpGroupConfig_t config = group_config(scenarios);
      config.max_tokens_per_rank = 3;
      const Group group = make_group(comm, config);
      std::vector<Handle> handles;
      for (const Scenario& scenario : scenarios) handles.push_back(make_handle(group, handle_config(scenario)));
      for (uint64_t round = 1; round <= 3; ++round) {
        for (size_t i = 0; i < scenarios.size(); ++i) round_trip(rank, comm, handles[i], stream, scenarios[i], round);
      }
      no_async_error(comm);
    });
    if (reduced()) break;
  }
}

// ---- What ends operations

// One rank expects longer rows, and then longer sums. All end in the first round.
TEST_CASE("rounds between nodes: the settings of one rank differ: refused on all, and the group works on",
          "[rounds][reduced]") {
  const Scenario common{.layout = Layout::ht_flat, .max_tokens = 16, .round = 3, .hidden = 64, .nodes = {2, 2}};
  Scenario other = common;
  other.hidden = 136;
  ucclEpGroupConfig_t config = group_config({common});
  config.max_token_bytes = 1 << 10;
  run_where_one_differs(common, other, config, [&](const AmongThem& at) {
    Exchange combined(at.rank, at.comm, common);
    combined.update(at.handle, at.stream);
    combined.dispatch(at.handle, at.stream);
    at.stream.synchronize();
    combined.check_dispatch();
    if (at.rank.rank == at.wrong) combined.combine_config.pass = UCCLEP_PASS_BACKWARD;
    require(combined.try_combine(at.handle, at.stream) == ucclEpSuccess, "a combine was refused at once");
    at.stream.synchronize();
    require(async_error(at.comm).code == ucclEpInvalidArgument, "another record");
    at.rank.board.add(10 + at.wrong);
    at.rank.board.wait(10 + at.wrong, static_cast<uint32_t>(at.rank.count));
    ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
    round_trip(at.rank, at.comm, at.handle, at.stream, common, 4);
  });
}

// 0 and 2 lose their connection while rounds wait for slots; 1 and 3 hear of it. Nobody waits until the time is up.
TEST_CASE("rounds between nodes: a connection that breaks ends operations on all ranks at once", "[rounds][reduced]") {
  for (const int when : {9, 14, 20}) {
    const std::string transport =
        "faulty:delay=0,withhold=0,repeat=0,break=" + std::to_string(when) + ",at=0,peer=0:loopback";
    run_ranks(4, [&](Rank& rank) {
      const Scenario scenario = to_the_other_node();
      Comm comm(rank, by_one_thread(in_nodes(rank, scenario.nodes, transport.c_str())));
      ucclEpGroupConfig_t config = group_config({scenario});
      config.timeout_ms = 120'000;
      Group group = make_group(comm, config);
      Handle handle = make_handle(group, handle_config(scenario));
      Stream stream(comm);
      Exchange exchange(rank, comm, scenario);
      const auto begin = std::chrono::steady_clock::now();
      ucclEpResult_t result = exchange.try_update(handle, stream);
      for (int i = 0; i < 1000 && result == ucclEpSuccess; ++i) {
        result = i % 2 == 0 ? exchange.try_dispatch(handle, stream) : exchange.try_combine(handle, stream);
        if (result == ucclEpSuccess) result = ucclEpStreamSynchronize(comm, stream);
      }
      const ucclEpAsyncError_t error = async_error(comm);
      require(result == ucclEpRemoteError && error.code == result, error.text);
      handle.reset();
      group.reset();
      require(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10), "it took long");
    });
  }
}

// ---- Memory

// In each of two slots, of 65 KiB: rows for the other node, out and in, its sums, out and in, those of the own node,
// what is staged for four homes, and own rows; where NICs do not reach the device the rows that came in once more.
TEST_CASE("rounds between nodes: a group is as large as it says, and as window_bytes says", "[rounds][reduced][host]") {
  if (ranks_are_processes()) return skip_case("it compares sizes that ranks of one process have");
  run_ranks(4, [&](Rank& rank) {
    Scenario scenario = to_the_other_node();
    scenario.max_tokens = 200;
    scenario.round = 4096;  // for which there is no room
    Comm comm(rank, in_nodes(rank, scenario.nodes, "loopback"));
    ucclEpGroupConfig_t config = group_config({scenario});
    config.max_token_bytes = 1 << 16;
    config.ll_max_tokens_per_rank = 1;
    config.window_bytes = 128 << 20;
    ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
    ok(ucclEpGroupQuery(comm, &config, &limits), "ucclEpGroupQuery");
    require(limits.tokens_per_round % 32 == 0 && limits.tokens_per_round >= 64 && limits.tokens_per_round <= 128,
            "a round of " + std::to_string(limits.tokens_per_round) + " tokens");
    const Group group = make_group(comm, config);
    ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
    ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
    const auto windows = static_cast<int64_t>(info.window_bytes);
    require(windows <= config.window_bytes + (1 << 20), "windows of " + std::to_string(windows));
    const Handle handle = make_handle(group, handle_config(scenario));
    Stream stream(comm);
    round_trip(rank, comm, handle, stream, scenario);
    no_async_error(comm);
  });
}

}  // namespace
}  // namespace ucclep::test

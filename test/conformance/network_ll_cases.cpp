// SPDX-License-Identifier: Apache-2.0
// LL between virtual nodes: the same bytes as in one domain, over a network that keeps order and over one that does
// not.
#include <catch2/catch.hpp>
#include <string>

#include "conformance/exchange.hpp"
#include "conformance/network_scenarios.hpp"
#include "conformance/nodes.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// Each scenario in both layouts, with so many routings that all slots are used again.
void run_in(const Nodes& nodes, const std::string& transport, std::vector<Scenario> scenarios, int rounds = 3) {
  if (reduced()) scenarios.resize(1);
  INFO("transport: " << transport);
  const int ranks = ranks_of(nodes);
  run_ranks(ranks, [&](Rank& rank) {
    Comm comm(rank, in_nodes(rank, nodes, transport.c_str()));
    Stream stream(comm);
    for (size_t i = 0; i < scenarios.size(); ++i) {
      for (const Layout layout : {Layout::ll_expert_major, Layout::ll_rank_major}) {
        Scenario scenario = scenarios[i];
        scenario.layout = layout;
        scenario.ranks = ranks;
        if (!exists(scenario)) continue;
        try {
          Group group = make_group(comm, group_config({scenario}));
          Handle handle = make_handle(group, handle_config(scenario));
          for (int round = 0; round < rounds; ++round) {
            round_trip(rank, comm, handle, stream, scenario, scenario.seed + static_cast<uint64_t>(round));
          }
          no_async_error(comm);
        } catch (const Failure& failure) {
          throw Failure(transport + ", scenario " + std::to_string(i) + ": " + failure.what());
        }
      }
    }
  });
}

TEST_CASE("network LL: two nodes of two ranks", "[driver][network][reduced][shapes]") {
  run_in({2, 2}, transport_under_test(), some_of_everything(4));
  run_in({2, 2}, transport_under_test(), the_rest(4));
}
TEST_CASE("network LL: four nodes of two ranks", "[driver][network][shapes]") {
  run_in({2, 2, 2, 2}, transport_under_test(), some_of_everything(8));
}
TEST_CASE("network LL: two nodes of four ranks", "[driver][network][shapes]") {
  run_in({4, 4}, transport_under_test(), some_of_everything(8));
}
TEST_CASE("network LL: eight nodes of one rank", "[driver][network][shapes]") {
  run_in({1, 1, 1, 1, 1, 1, 1, 1}, transport_under_test(), some_of_everything(8));
  run_in({1, 1, 1, 1, 1, 1, 1, 1}, transport_under_test(), the_rest(8));
}
TEST_CASE("network LL: a node of three ranks and one of five", "[driver][network][shapes]") {
  run_in({3, 5}, transport_under_test(), some_of_everything(8));
}

// Rows cross between ranks of one node, too.
TEST_CASE("network LL: domains that are smaller than a node", "[host][reduced]") {
  run_ranks(4, [](Rank& rank) {
    const Scenario scenario{.layout = Layout::ll_expert_major, .ranks = 4, .experts = 8, .top_k = 3};
    ucclEpCommConfig_t config = comm_config(rank);
    config.ranks_per_node = 4;
    config.ranks_per_domain = 3;
    config.transport = "loopback";
    Comm comm(rank, config);
    ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
    ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
    require(info.num_nodes == 1 && info.domain_size == (rank.rank < 3 ? 3 : 1), "nodes and domains");
    const Group group = make_group(comm, group_config({scenario}));
    const Handle handle = make_handle(group, handle_config(scenario));
    Stream stream(comm);
    for (uint64_t round = 1; round <= 3; ++round) round_trip(rank, comm, handle, stream, scenario, round);
    require(stats_of(comm).bytes_sent > 0, "nothing crossed");
  });
}

// Rows of several chunks, and of more bytes than a chunk has.
TEST_CASE("network LL: rows of many chunks", "[driver][network][shapes]") {
  run_in({1, 1}, transport_under_test(),
         {{.experts = 4, .top_k = 2, .max_tokens = 24, .hidden = 7168},
          {.experts = 4, .top_k = 2, .max_tokens = 2, .hidden = 40000}});
}

TEST_CASE("network LL: a network that reorders, repeats and withholds", "[driver][network][reduced]") {
  const std::vector<Nodes> worlds{{2, 2}, {1, 1, 1, 1}, {1, 3}};
  for (unsigned seed = 1; seed <= seeds(); ++seed) {
    const std::string transport = "faulty:seed=" + std::to_string(seed) + ":loopback";
    const std::vector<Scenario> all = some_of_everything(4);
    run_in(worlds[seed % worlds.size()], transport, {all[seed % all.size()], all[(seed / 4 + 1) % all.size()]}, 5);
  }
}

}  // namespace
}  // namespace ucclep::test

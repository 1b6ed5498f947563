// SPDX-License-Identifier: Apache-2.0
// Operations between virtual nodes: the same rows as in one domain, and the sums of the plain reference with the same
// nodes, over a network that keeps order and over one that does not.
#include <catch2/catch.hpp>
#include <string>

#include "conformance/exchange.hpp"
#include "conformance/network_scenarios.hpp"
#include "conformance/nodes.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// Each scenario in all layouts, with so many routings that all slots are used again.
void run_in(const Nodes& nodes, const std::string& transport, std::vector<Scenario> scenarios, int rounds = 3) {
  if (reduced()) scenarios.resize(1);
  INFO("transport: " << transport);
  const int ranks = ranks_of(nodes);
  run_ranks(ranks, [&](Rank& rank) {
    Comm comm(rank, in_nodes(rank, nodes, transport.c_str()));
    Stream stream(comm);
    for (size_t i = 0; i < scenarios.size(); ++i) {
      for (Scenario scenario : in_all_layouts(scenarios[i])) {
        scenario.ranks = ranks;
        scenario.nodes = nodes;
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

TEST_CASE("network: two nodes of two ranks", "[driver][network][reduced][shapes][modes]") {
  run_in({2, 2}, transport_under_test(), some_of_everything(4));
  run_in({2, 2}, transport_under_test(), the_rest(4));
}
TEST_CASE("network: four nodes of two ranks", "[driver][network][shapes]") {
  run_in({2, 2, 2, 2}, transport_under_test(), some_of_everything(8));
}
TEST_CASE("network: two nodes of four ranks", "[driver][network][shapes]") {
  run_in({4, 4}, transport_under_test(), some_of_everything(8));
}
TEST_CASE("network: eight nodes of one rank", "[driver][network][shapes]") {
  run_in({1, 1, 1, 1, 1, 1, 1, 1}, transport_under_test(), some_of_everything(8));
  run_in({1, 1, 1, 1, 1, 1, 1, 1}, transport_under_test(), the_rest(8));
}
TEST_CASE("network: a node of three ranks and one of five", "[driver][network][shapes]") {
  run_in({3, 5}, transport_under_test(), some_of_everything(8));
}

// Rows cross between ranks of one node, too, and HT sums by domains.
TEST_CASE("network: domains that are smaller than a node", "[host][reduced]") {
  run_ranks(4, [](Rank& rank) {
    const std::vector<Scenario> scenarios =
        in_all_layouts({.ranks = 4, .experts = 8, .top_k = 3, .biases = 1, .nodes = {3, 1}});
    ucclEpCommConfig_t config = comm_config(rank);
    config.ranks_per_node = 4;
    config.ranks_per_domain = 3;
    config.transport = "loopback";
    Comm comm(rank, config);
    ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
    ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
    require(info.num_nodes == 1 && info.domain_size == (rank.rank < 3 ? 3 : 1), "nodes and domains");
    const Group group = make_group(comm, group_config(scenarios));
    Stream stream(comm);
    for (const Scenario& scenario : scenarios) {
      const Handle handle = make_handle(group, handle_config(scenario));
      for (uint64_t round = 1; round <= 3; ++round) round_trip(rank, comm, handle, stream, scenario, round);
    }
    require(stats_of(comm).bytes_sent > 0, "nothing crossed");
  });
}

// Rows of several chunks, and of more bytes than a chunk has.
TEST_CASE("network: rows of many chunks", "[driver][network][shapes]") {
  run_in({1, 1}, transport_under_test(),
         {{.experts = 4, .top_k = 2, .max_tokens = 24, .hidden = 7168},
          {.experts = 4, .top_k = 2, .max_tokens = 2, .hidden = 40000}});
}

// Modes take turns in one group: their rows lie in different places, and their operations count together.
TEST_CASE("network: LL and HT take turns on one group", "[driver][network][reduced]") {
  run_ranks(4, [](Rank& rank) {
    const Nodes nodes{2, 2};
    const std::vector<Scenario> scenarios =
        in_all_layouts({.experts = 16, .top_k = 4, .max_tokens = 11, .nodes = nodes});
    Comm comm(rank, in_nodes(rank, nodes, "faulty:seed=3:loopback"));
    Stream stream(comm);
    const Group group = make_group(comm, group_config(scenarios));
    for (uint64_t round = 1; round <= 3; ++round) {
      for (const Scenario& scenario : scenarios) {
        const Handle handle = make_handle(group, handle_config(scenario));
        round_trip(rank, comm, handle, stream, scenario, round);
      }
    }
    no_async_error(comm);
  });
}

TEST_CASE("network: HT with a node of one rank, which relays for all of the other", "[driver][network][shapes]") {
  run_in({1, 4}, transport_under_test(), {some_of_everything(5).front()});
}

// Of a dispatch and a combine: each row once to the other node, and once back, whatever ranks it is for.
TEST_CASE("network: in HT a row goes to a node once, and a sum comes back", "[driver][process][reduced][modes]") {
  run_ranks(4, [](Rank& rank) {
    const Nodes nodes{2, 2};
    const Scenario scenario{.layout = Layout::ht_flat,
                            .ranks = 4,
                            .experts = 4,
                            .top_k = 4,
                            .max_tokens = 16,
                            .hidden = 7168,
                            .nodes = nodes};
    Comm comm(rank, in_nodes(rank, nodes));
    const Group group = make_group(comm, group_config({scenario}));
    const Handle handle = make_handle(group, handle_config(scenario));
    Stream stream(comm);
    round_trip(rank, comm, handle, stream, scenario);
    rank.board.add(0);
    rank.board.wait(0, 4);
    const ucclEpStats_t stats = stats_of(comm);
    constexpr uint64_t row = 7168 * 2, peers = 2, rows = 16, words = 3 + 2 * 8;  // consumed, credits
    require(stats.bytes_sent >= 2 * rows * row, std::to_string(stats.bytes_sent) + " bytes were sent");
    require(stats.bytes_sent < 2 * rows * row * 11 / 10, std::to_string(stats.bytes_sent) + " bytes are many");
    constexpr uint64_t chunks = 1 + rows * row / 65536, operations = 3;
    require(stats.messages <= 2 * chunks + peers * (3 + words), std::to_string(stats.messages) + " messages");
    // A header and `consumed` for each peer; and, of a dispatch and a combine, each chunk.
    require(stats.commands <= 2 * chunks + operations * peers * 2, std::to_string(stats.commands) + " commands");
  });
}

TEST_CASE("network: a network that reorders, repeats and withholds", "[driver][network][reduced]") {
  const std::vector<Nodes> worlds{{2, 2}, {1, 1, 1, 1}, {1, 3}};
  for (unsigned seed = 1; seed <= seeds(); ++seed) {
    const std::string transport = "faulty:seed=" + std::to_string(seed) + ":loopback";
    const std::vector<Scenario> all = some_of_everything(4);
    run_in(worlds[seed % worlds.size()], transport, {all[seed % all.size()], all[(seed / 4 + 1) % all.size()]}, 5);
  }
}

}  // namespace
}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// LL dispatch between virtual nodes whose rows cross once for each node (UCCLEP_LL_COPIES): the same rows and sums as
// ever, and no byte more on the wire than the routing asks for.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

#include "conformance/exchange.hpp"
#include "conformance/in_nodes.hpp"
#include "conformance/network_scenarios.hpp"
#include "conformance/nodes.hpp"
#include "support/environment.hpp"
#include "support/test_env.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep::test {
namespace {

constexpr const char* variable = "UCCLEP_LL_COPIES";

Environment copies_asked(const char* copies) {
  return Environment(variable, copies);
}

std::vector<Scenario> in_layouts_of_ll(const Scenario& scenario) {
  return in_layouts_of(true, scenario);
}

void run_in(const Nodes& nodes, const std::vector<Scenario>& scenarios, int num_sms = 0) {
  run_in_nodes(nodes, transport_under_test(), scenarios, {.num_sms = num_sms});
}

TEST_CASE("node copies: rows and sums, in nodes of all sorts", "[copies][reduced]") {
  const Environment asked = copies_asked("node");
  run_in_worlds({{2, 2}, {2, 2, 2, 2}, {4, 4}, {3, 5}, {1, 4}}, {});
}

TEST_CASE("node copies: bytes with scales, nobody and everybody, one expert for a token, and 32", "[copies]") {
  const Environment asked = copies_asked("node");
  run_in({2, 3}, the_rest(5));
  run_in({2, 2}, {{.experts = 64, .top_k = 32, .max_tokens = 5}});
}

TEST_CASE("node copies: one block does it all", "[copies][reduced]") {
  const Environment asked = copies_asked("node");
  run_in({3, 2}, {some_of_everything(5)[0], some_of_everything(5)[1]}, 1);
}

// The sets of so many experts are counted in rounds, and those of more than that in the handle's memory, by one block.
TEST_CASE("node copies: tokens that are counted in rounds", "[copies]") {
  const Environment asked = copies_asked("node");
  run_in({2, 2}, {{.experts = 1600, .top_k = 4, .max_tokens = 130, .hidden = 16, .rule = uniform(20)},
                  {.experts = 3200, .top_k = 4, .max_tokens = 9, .hidden = 16}});
}

TEST_CASE("node copies: rows longer than what a warp has under way, and of many chunks", "[copies]") {
  const Environment asked = copies_asked("node");
  run_in({2, 2}, {{.experts = 8, .top_k = 3, .max_tokens = 12, .hidden = 7168},
                  {.experts = 8, .top_k = 3, .max_tokens = 2, .hidden = 20000}});
}

TEST_CASE("node copies: a network that reorders, repeats and withholds", "[copies][reduced][reordered]") {
  const Environment asked = copies_asked("node");
  for (unsigned seed = first_seed(); seed < first_seed() + seeds(); ++seed) run_reordered(seed, {});
}

TEST_CASE("node copies: phases, and gradients", "[copies][reduced][reordered]") {
  const Environment asked = copies_asked("node");
  for (unsigned seed = first_seed(); seed < first_seed() + seeds(); ++seed) run_phases(seed, {.short_chunks = true});
}

// Domains that are smaller than nodes are what relays know.
TEST_CASE("node copies: domains inside a node", "[copies][reduced]") {
  const Environment asked = copies_asked("node");
  const Scenario common{.ranks = 5, .experts = 10, .top_k = 3, .biases = 1, .nodes = {2, 2, 1}};
  run_ranks(common.ranks, [&](Rank& rank) {
    ucclEpCommConfig_t config = in_nodes_of(rank, rank.count, "loopback");
    config.ranks_per_domain = 2;
    Comm comm(rank, config);
    Stream stream(comm);
    const Group group = make_group(comm, group_config(in_layouts_of_ll(common)));
    for (const Scenario& scenario : in_layouts_of_ll(common)) {
      const Handle handle = make_handle(group, handle_config(scenario));
      for (uint64_t round = 1; round <= 3; ++round) round_trip(rank, comm, handle, stream, scenario, round);
    }
    require(stats_of(comm).bytes_sent > 0, "nothing crossed");
  });
}

// Rows for nodes of both modes lie in the same places, of which LL may need more.
TEST_CASE("node copies: LL and HT take turns on one group", "[copies][reduced]") {
  const Environment asked = copies_asked("node");
  const Nodes nodes{2, 2};
  for (const int of_ll : {19, 0}) {
    if (of_ll == 0 && reduced()) break;
    const std::vector<Scenario> scenarios =
        in_all_layouts({.experts = 16, .top_k = 4, .max_tokens = 11, .ll_max_tokens = of_ll, .nodes = nodes});
    run_ranks(4, [&](Rank& rank) {
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
}

// Captured once, with the routing of the moment.
TEST_CASE("node copies: a graph is replayed with other routings", "[copies][host]") {
  const Environment asked = copies_asked("node");
  const Nodes nodes{2, 3};
  for (Scenario scenario : in_layouts_of_ll({.ranks = 5, .experts = 10, .top_k = 3, .max_tokens = 6, .nodes = nodes})) {
    scenario.carried = true;
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, in_nodes(rank, nodes, "loopback"), scenario);
      Exchange exchange(rank, at.comm, scenario);
      ucclEpGraph_t graph = nullptr;
      ok(ucclEpStreamBeginCapture(at.comm, at.stream), "ucclEpStreamBeginCapture");
      exchange.dispatch(at.handle, at.stream);
      exchange.combine(at.handle, at.stream);
      ok(ucclEpStreamEndCapture(at.comm, at.stream, &graph), "ucclEpStreamEndCapture");
      for (uint64_t round = 1; round <= 5; ++round) {
        if (round > 1) exchange.reroute(round);
        ok(ucclEpGraphLaunch(at.comm, graph, at.stream), "ucclEpGraphLaunch");
        at.stream.synchronize();
        exchange.check_counters();
        exchange.check_dispatch();
        exchange.check_combine();
      }
      ok(ucclEpGraphDestroy(at.comm, graph), "ucclEpGraphDestroy");
      no_async_error(at.comm);
    });
  }
}

// ---- What crosses ----

struct Crossed {
  uint64_t to_ranks = 0, to_nodes = 0;  // rows
  uint64_t pieces = 0;                  // of 32 KiB, of each destination's rows
};

// Of a rank, by the reference's routing. row_bytes: on the wire.
Crossed crossed(const Exchange& exchange, int rank, bool by_node, uint64_t row_bytes) {
  const reference::World& world = exchange.contents().world();
  const reference::Routing& routing = world.rank[static_cast<size_t>(rank)];
  const std::vector<int> node_of = exchange.scenario().node_of_ranks();
  std::map<int, uint64_t> rows;  // by rank or node
  Crossed all;
  for (int64_t token = 0; token < routing.tokens; ++token) {
    std::set<int> ranks, nodes;
    for (int k = 0; k < routing.k; ++k) {
      const int64_t expert = routing.expert(token, k);
      if (expert < 0) continue;
      const int owner = world.owner(expert), node = node_of[static_cast<size_t>(owner)];
      if (node == node_of[static_cast<size_t>(rank)]) continue;
      ranks.insert(owner);
      nodes.insert(node);
    }
    all.to_ranks += ranks.size();
    all.to_nodes += nodes.size();
    for (const int one : by_node ? nodes : ranks) ++rows[one];
  }
  for (const auto& [to, count] : rows) all.pieces += ceil_div(count * row_bytes, 32 * 1024);
  return all;
}

// A dispatch, of which every byte is accounted for: a row for each (token, node) or (token, rank), and the headers.
void count_bytes(const Nodes& nodes, const Scenario& asked, bool by_node) {
  Scenario scenario = asked;
  scenario.ranks = ranks_of(nodes);
  scenario.nodes = nodes;
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Comm comm(rank, in_nodes(rank, nodes));
    const Group group = make_group(comm, group_config({scenario}));
    const Handle handle = make_handle(group, handle_config(scenario));
    Stream stream(comm);
    Exchange exchange(rank, comm, scenario);
    exchange.update(handle, stream);
    exchange.dispatch(handle, stream);
    stream.synchronize();
    exchange.check_dispatch();
    rank.board.add(0);
    rank.board.wait(0, static_cast<uint32_t>(rank.count));
    const ucclEpStats_t stats = stats_of(comm);
    GroupShape shape{};
    shape.top_k = static_cast<uint32_t>(scenario.top_k);
    const uint64_t data = round_up(static_cast<uint64_t>(scenario.hidden) * 2, 16);
    const uint64_t row_bytes = by_node ? relayed_row_bytes(shape, data) : network_row_bytes(shape, data);
    const Crossed rows = crossed(exchange, rank.rank, by_node, row_bytes);
    const std::vector<int> node_of = scenario.node_of_ranks();
    const auto away = static_cast<uint64_t>(std::count_if(
        node_of.begin(), node_of.end(), [&](int node) { return node != node_of[static_cast<size_t>(rank.rank)]; }));
    const uint64_t headers = 16 * HeaderLayout::packets(static_cast<uint32_t>(scenario.local_experts())) * away;
    const uint64_t bytes = headers + row_bytes * (by_node ? rows.to_nodes : rows.to_ranks);
    require(stats.bytes_sent == bytes, std::to_string(stats.bytes_sent) + " bytes were sent instead of " +
                                           std::to_string(bytes) + ", for " + std::to_string(rows.to_nodes) +
                                           " rows to nodes and " + std::to_string(rows.to_ranks) + " to ranks");
    const uint64_t words = away * (1 + 8);  // consumed, credits
    require(stats.messages <= 2 * away + rows.pieces + words, std::to_string(stats.messages) + " messages");
  });
}

TEST_CASE("node copies: a row crosses once for each node, or for each rank, as it is asked", "[copies][reduced]") {
  const std::vector<Nodes> worlds{{2, 2}, {3, 5}, {2, 2, 1}};
  for (const Nodes& nodes : worlds) {
    const int ranks = ranks_of(nodes);
    const Scenario scenario{.layout = Layout::ll_rank_major,
                            .experts = 4 * ranks,
                            .top_k = 4,
                            .max_tokens = 12,
                            .hidden = 1024,
                            .rule = uniform(10)};
    for (const bool by_node : {true, false}) {
      const Environment asked = copies_asked(by_node ? "node" : "rank");
      count_bytes(nodes, scenario, by_node);
    }
    if (reduced()) break;
  }
}

// With the group's shape alone the rule decides: little goes to each rank, much to each node.
TEST_CASE("node copies: the rule chooses", "[copies]") {
  const Environment asked = copies_asked("auto");
  const Scenario little{.layout = Layout::ll_expert_major, .experts = 8, .top_k = 4, .max_tokens = 4, .hidden = 1024};
  count_bytes({2, 2}, little, false);
  Scenario much = little;
  much.max_tokens = 128;
  much.hidden = 7168;
  for (int rank = 0; rank < 4; ++rank) much.tokens.push_back(3 * rank);  // it looks at what there may be
  count_bytes({2, 2}, much, true);
  const Scenario apart{.layout = Layout::ll_rank_major, .experts = 9, .top_k = 3, .max_tokens = 64, .hidden = 7168};
  count_bytes({1, 1, 1}, apart, false);
}

// ---- What all ranks must agree on ----

TEST_CASE("node copies: the settings of one rank differ: refused on all, no row written, and the group works on",
          "[copies][reduced]") {
  const Environment asked = copies_asked("node");
  const Scenario common{.layout = Layout::ll_rank_major, .hidden = 64, .nodes = {2, 2}};
  Scenario other = common;
  other.hidden = 136;
  run_where_one_differs(common, other, group_config({common, other}));
}

TEST_CASE("node copies: ranks that are asked for different ways make no group", "[copies]") {
  run_where_one_is_asked_for("rank", variable, "node", Layout::ll_rank_major);
}

// Of GPUs the network's window may be the host's.
TEST_CASE("node copies: ucclEpGroupQuery says what rows for nodes take", "[copies][reduced][host]") {
  for (const char* copies : {"rank", "node"}) {
    const Environment asked = copies_asked(copies);
    run_ranks(4, [](Rank& rank) {
      ucclEpGroupConfig_t config = group_config({Scenario{.layout = Layout::ll_rank_major, .hidden = 2048}});
      config.ll_max_tokens_per_rank = 64 * config.max_tokens_per_rank;  // rows of LL for nodes are most of the memory
      Comm comm(rank, in_nodes_of(rank, 2, "loopback"));
      ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
      ok(ucclEpGroupQuery(comm, &config, &limits), "ucclEpGroupQuery");
      const Group group = make_group(comm, config);
      ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
      ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
      const auto real = static_cast<double>(info.window_bytes), said = static_cast<double>(limits.device_bytes);
      require(real > 0.95 * said && real < 1.05 * said,
              std::to_string(said) + " bytes were said, there are " + std::to_string(real));
    });
  }
}

}  // namespace
}  // namespace ucclep::test

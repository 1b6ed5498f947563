// SPDX-License-Identifier: Apache-2.0
// Expert maps (ucclEpGroupSetExpertMap): ids of the caller are logical, all else is physical.
#include <catch2/catch.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "conformance/exchange.hpp"
#include "conformance/nodes.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

using reference::Distance;
using reference::ExpertMap;

constexpr int logical_experts = 10;

Scenario replicated(Layout layout = Layout::ht_flat) {
  Scenario scenario{.layout = layout, .experts = 16, .top_k = 3, .max_tokens = 24, .tokens = {24, 5, 0, 17}};
  scenario.rule = uniform(10);
  scenario.maps = some_maps(scenario, logical_experts);
  return scenario;
}

std::vector<Scenario> replicated_everywhere() {
  std::vector<Scenario> scenarios = in_all_layouts(replicated());
  for (size_t i = 0; i < scenarios.size(); ++i) scenarios[i].nearest = i % 2 == 1;
  Scenario carried = replicated(Layout::ll_expert_major);
  carried.carried = carried.nearest = true;
  scenarios.push_back(carried);
  carried.layout = Layout::ht_expert_major;
  carried.idx = ucclEpInt32;
  carried.nearest = false;
  scenarios.push_back(carried);
  return scenarios;
}

// How often a rank's tokens choose each of so many experts.
std::vector<int64_t> histogram(const reference::World& world, int rank, int experts) {
  std::vector<int64_t> counts(static_cast<size_t>(experts));
  for (const int64_t expert : world.rank[static_cast<size_t>(rank)].experts) {
    if (expert >= 0 && expert < experts) ++counts[static_cast<size_t>(expert)];
  }
  return counts;
}

// ucclEpGetRoutingCounts of a scenario's ids.
class Counted {
 public:
  Counted(const Rank& rank, ucclEpComm_t comm, const Scenario& scenario)
      : rank_(rank.rank),
        logical_(scenario.logical_experts()),
        contents_(scenario, 1, 1),
        ids_(comm, "topk_idx", scenario.idx, {routing().tokens, routing().k}),
        ranks_(comm, "tokens_per_rank", ucclEpInt32, {scenario.ranks}),
        per_expert_(comm, "tokens_per_expert", ucclEpInt64, {scenario.experts}),
        per_logical_(comm, "tokens_per_logical_expert", ucclEpInt32, {logical_}) {
    ids_.set_integers(routing().experts);
    ids_.upload();
  }

  void count(ucclEpGroup_t group, ucclEpStream_t stream) {
    ucclEpRoutingCounts_t out = UCCLEP_ROUTING_COUNTS_INIT;
    out.tokens_per_rank = ranks_.get();
    out.tokens_per_expert = per_expert_.get();
    out.tokens_per_logical_expert = per_logical_.get();
    ok(ucclEpGetRoutingCounts(group, ids_.get(), &out, stream), "ucclEpGetRoutingCounts");
  }
  // physical: where the ids lead.
  void check(const reference::World& physical) {
    const reference::RoutingCounts expected = reference::routing_counts(physical, rank_);
    ranks_.set_integers(expected.tokens_per_rank);
    per_expert_.set_integers(expected.tokens_per_expert);
    reference::World logical = contents_.raw();
    logical.experts = physical_ids_ ? physical.experts : logical_;
    per_logical_.set_integers(histogram(reference::cleaned(logical), rank_, logical_));
    for (const Tensor* tensor : {&ranks_, &per_expert_, &per_logical_}) tensor->verify(rank_);
  }
  void check() { check(contents_.world()); }
  // Without a map.
  void check_physical() {
    physical_ids_ = true;
    check(reference::cleaned(contents_.raw()));
  }
  const Contents& contents() const { return contents_; }

 private:
  const reference::Routing& routing() const { return contents_.raw().rank[static_cast<size_t>(rank_)]; }

  const int rank_, logical_;
  bool physical_ids_ = false;
  const Contents contents_;
  Tensor ids_, ranks_, per_expert_, per_logical_;
};

TEST_CASE("expert map: experts with copies, there and back", "[process][reduced][modes][nodes]") {
  for (const Scenario& scenario : replicated_everywhere()) {
    run_each({scenario}, scenario.layout == Layout::ll_rank_major ? round_trip : there_and_back, 2);
  }
}

TEST_CASE("expert map: waves, tiles, rounds and groups with masks", "[process][reduced][nodes]") {
  Scenario waves = replicated(Layout::ll_expert_major);
  waves.waves = 2;
  Scenario tiles = replicated(Layout::ll_expert_major);
  tiles.tile_rows = 16;
  tiles.nearest = true;
  Scenario zones = replicated(Layout::ht_expert_major);
  zones.tile_rows = zones.alignment = 16;
  Scenario rounds = replicated(Layout::ht_expert_major);
  rounds.round = 4;
  std::vector<Scenario> scenarios{waves, zones, rounds};
  if (!crosses_nodes(tiles.ranks)) scenarios.push_back(tiles);  // LL has them within a domain
  for (Scenario masked : {replicated(Layout::ll_expert_major), replicated(Layout::ht_flat)}) {
    masked.masked = true;
    if (crosses_nodes(masked.ranks)) masked.nodes.assign(4, 1);  // sums are made rank by rank
    scenarios.push_back(masked);
  }
  run_all(scenarios);
}

TEST_CASE("expert map: phases of an operation", "[process][reduced][nodes]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_flat}) {
    const Scenario scenario = replicated(layout);
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario);
      exchange.dispatch_config.send_only = exchange.combine_config.send_only = 1;
      exchange.update(at.handle, at.stream);
      exchange.dispatch(at.handle, at.stream);
      ok(ucclEpGroupSetExpertMap(at.group, nullptr, nullptr, at.stream), "ucclEpGroupSetExpertMap");
      ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
      exchange.combine(at.handle, at.stream);
      ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
      at.stream.synchronize();
      exchange.check_all();
    });
  }
}

TEST_CASE("expert map: it concerns routings after it", "[process][reduced][modes]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_expert_major}) {
    const Scenario before = replicated(layout);
    Scenario after = before, none = before;
    after.maps = some_maps(after, logical_experts, 2);
    none.maps.clear();
    run_ranks(before.ranks, [&](Rank& rank) {
      Session at(rank, before);
      Exchange first(rank, at.comm, before), second(rank, at.comm, after), third(rank, at.comm, none);
      const MapTensors map(at.comm, after.maps[static_cast<size_t>(rank.rank)], 2);
      // All in one stream, which nobody waits for.
      first.update(at.handle, at.stream);
      map.set(at.group, at.stream);
      first.dispatch(at.handle, at.stream);
      first.combine(at.handle, at.stream);
      second.update(at.handle, at.stream);
      second.dispatch(at.handle, at.stream);
      ok(ucclEpGroupSetExpertMap(at.group, nullptr, nullptr, at.stream), "ucclEpGroupSetExpertMap");
      second.combine(at.handle, at.stream);
      third.update(at.handle, at.stream);
      third.dispatch(at.handle, at.stream);
      third.combine(at.handle, at.stream);
      at.stream.synchronize();
      for (Exchange* exchange : {&first, &second, &third}) {
        exchange->check_dispatch();
        exchange->check_combine();
      }
      third.check_counters();
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("expert map: counts of logical and of physical experts", "[process][reduced]") {
  const Scenario scenario = replicated();
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    for (const bool mapped : {true, false}) {
      if (!mapped) ok(ucclEpGroupSetExpertMap(at.group, nullptr, nullptr, at.stream), "ucclEpGroupSetExpertMap");
      Counted counted(rank, at.comm, scenario);
      counted.count(at.group, at.stream);
      at.stream.synchronize();
      mapped ? counted.check() : counted.check_physical();
    }
  });
}

TEST_CASE("expert map: the nearest copy is in the domain before it is on the node", "[network][reduced]") {
  Scenario scenario{.ranks = 8, .experts = 16, .top_k = 2, .max_tokens = 40, .rule = uniform(), .nearest = true};
  scenario.maps = some_maps(scenario, 5);
  run_ranks(scenario.ranks, [&](Rank& rank) {
    ucclEpCommConfig_t config = in_nodes_of(rank, 4, "loopback");
    config.ranks_per_domain = 2;
    Session at(rank, config, scenario);
    Counted counted(rank, at.comm, scenario);
    counted.count(at.group, at.stream);
    at.stream.synchronize();
    counted.check(reference::mapped(counted.contents().raw(), scenario.maps, [](int one, int other) {
      if (one == other) return Distance::own;
      if (one / 2 == other / 2) return Distance::domain;
      return one / 4 == other / 4 ? Distance::node : Distance::far;
    }));
  });
}

TEST_CASE("expert map: between virtual nodes", "[network][reduced]") {
  for (Scenario scenario : replicated_everywhere()) {
    scenario.nodes = {2, 2};
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, in_nodes(rank, scenario.nodes, "loopback"), scenario);
      round_trip(rank, at.comm, at.handle, at.stream, scenario, 1);
      no_async_error(at.comm);
    });
  }
}

// Spoils a map of three logical experts, {0, 1}, {2}, {3}, on eight physical ones.
struct Spoilt {
  const char* what;
  int64_t expert, column;  // column -1: copies
  int64_t value;
  std::vector<std::string> words;
};

TEST_CASE("expert map: a bad one is not taken, and leaves a record", "[process][reduced]") {
  Scenario scenario{.ranks = 2, .experts = 8, .top_k = 2, .max_tokens = 6};
  scenario.maps.assign(2, ExpertMap{{5, 1}, {2}, {7}});
  const std::vector<Spoilt> all{
      {"no copy", 1, -1, 0, {"0 copies of logical expert 1", "expected 1 to"}},
      {"a negative number of copies", 2, -1, -3, {"-3 copies of logical expert 2"}},
      {"more copies than columns", 0, -1, 3, {"3 copies of logical expert 0"}},
      {"an expert that does not exist", 2, 0, 8, {"physical expert 8 for logical expert 2", "0 to num_experts - 1"}},
      {"a negative expert", 0, 1, -1, {"physical expert -1 for logical expert 0"}},
      {"an expert twice in a row", 0, 1, 0, {"physical expert 0 for logical expert 0, and once more"}},
      {"an expert of two rows", 2, 0, 2, {"physical expert 2 for logical expert", "and once more"}},
  };
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    for (const Spoilt& spoilt : all) {
      MapTensors map(at.comm, ExpertMap{{0, 1}, {2}, {3}});
      if (spoilt.column < 0) {
        map.copies.set_integer(0, spoilt.expert, spoilt.value);
      } else {
        map.physical.set_integer(spoilt.expert, spoilt.column, spoilt.value);
      }
      map.physical.upload();
      map.copies.upload();
      map.set(at.group, at.stream);
      round_trip(rank, at.comm, at.handle, at.stream, scenario);  // by the map that it has
      const ucclEpAsyncError_t error = async_error(at.comm);
      require(error.code == ucclEpInvalidArgument, std::string(spoilt.what) + " leaves no record");
      require(std::string(error.op) == "expert map", std::string("the record is of ") + error.op);
      for (const std::string& word : spoilt.words) {
        require(std::string(error.text).find(word) != std::string::npos,
                std::string(spoilt.what) + ": no " + word + " in: " + error.text);
      }
      ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
    }
  });
}

TEST_CASE("expert map: a record says which logical ids there are", "[process][reduced]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_flat}) {
    Scenario scenario = replicated(layout);
    scenario.rule = bad_ids();
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario);
      round_trip(rank, at.comm, at.handle, at.stream, scenario);
      const std::string text = async_error(at.comm).text;
      const bool has_tokens = scenario.tokens_of(rank.rank) > 8;
      require(!has_tokens || text.find("(0 to 9, or -1)") != std::string::npos, "the record says: " + text);
    });
  }
}

TEST_CASE("expert map: what a call and a config may not ask for", "[process][reduced]") {
  Scenario scenario{.ranks = 2, .experts = 8, .top_k = 2, .max_tokens = 4};
  scenario.maps.assign(2, ExpertMap{{5, 1}, {2}, {7}});
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    const MapTensors map(at.comm, scenario.maps.front());
    const auto is_refused = [&](const ucclEpTensor_t* table, const ucclEpTensor_t* copies, const char* word) {
      refused(ucclEpGroupSetExpertMap(at.group, table, copies, at.stream), ucclEpInvalidArgument,
              "ucclEpGroupSetExpertMap", {word});
    };
    is_refused(map.physical.get(), nullptr, "copies is NULL");
    is_refused(nullptr, map.copies.get(), "logical_to_physical is NULL");
    const MapTensors more(at.comm, ExpertMap{{0}, {1}, {2}, {3}});
    is_refused(more.physical.get(), map.copies.get(), "logical_to_physical");
    is_refused(map.physical.get(), more.copies.get(), "copies");
    Tensor wide(at.comm, "logical_to_physical", ucclEpInt64, {3, 2});
    is_refused(wide.get(), map.copies.get(), "ucclEpInt32");
    is_refused(map.copies.get(), map.copies.get(), "logical_to_physical");

    const auto config_is_refused = [&](ucclEpResult_t code, const char* word, auto&& change) {
      ucclEpGroupConfig_t config = group_config({scenario});
      change(config);
      ucclEpGroup_t group = nullptr;
      refused(ucclEpGroupCreate(&group, at.comm, &config), code, "ucclEpGroupCreate", {word});
      ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
      refused(ucclEpGroupQuery(at.comm, &config, &limits), code, "ucclEpGroupQuery", {word});
    };
    config_is_refused(ucclEpInvalidArgument, "num_logical_experts is 9",
                      [](ucclEpGroupConfig_t& config) { config.num_logical_experts = 9; });
    config_is_refused(ucclEpInvalidArgument, "num_logical_experts is -1",
                      [](ucclEpGroupConfig_t& config) { config.num_logical_experts = -1; });
    config_is_refused(ucclEpInvalidArgument, "replica_choice is 2",
                      [](ucclEpGroupConfig_t& config) { config.replica_choice = 2; });
    static const int apart[] = {5, 3}, fewer[] = {3, 3}, negative[] = {9, -1}, equal[] = {4, 4};
    config_is_refused(ucclEpNotSupported, "experts_per_rank[1] is 3",
                      [](ucclEpGroupConfig_t& config) { config.experts_per_rank = apart; });
    config_is_refused(ucclEpInvalidArgument, "expected 6",
                      [](ucclEpGroupConfig_t& config) { config.experts_per_rank = fewer; });
    config_is_refused(ucclEpInvalidArgument, "experts_per_rank[1] is -1",
                      [](ucclEpGroupConfig_t& config) { config.experts_per_rank = negative; });
    ucclEpGroupConfig_t config = group_config({scenario});
    config.experts_per_rank = equal;
    const Group group = make_group(at.comm, config);
    const Handle handle = make_handle(group, handle_config(scenario));
    map.set(group, at.stream);
    round_trip(rank, at.comm, handle, at.stream, scenario);
  });
}

TEST_CASE("expert map: as many logical experts as physical ones, without num_logical_experts", "[process][reduced]") {
  Scenario scenario{.experts = 8, .top_k = 4, .max_tokens = 9};
  scenario.maps = some_maps(scenario, 8);  // they change places
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    ucclEpGroupConfig_t config = group_config({scenario});
    config.num_logical_experts = 0;
    const Group group = make_group(comm, config);
    set_map(rank, comm, group, stream, scenario);
    const Handle handle = make_handle(group, handle_config(scenario));
    round_trip(rank, comm, handle, stream, scenario);
  });
}

TEST_CASE("expert map: many experts, more than a block has threads", "[process]") {
  Scenario scenario{.ranks = 2, .experts = 2048, .top_k = 4, .max_tokens = 12, .hidden = 8};
  scenario.maps = some_maps(scenario, 1500);
  run_each(in_all_layouts(scenario), round_trip);
}

}  // namespace
}  // namespace ucclep::test

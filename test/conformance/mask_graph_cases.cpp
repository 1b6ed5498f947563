// SPDX-License-Identifier: Apache-2.0
// Operations of a group with enable_mask in a graph: a rank is lost between two replays, and the others' replays go on.
#include <catch2/catch.hpp>

#include "conformance/masked.hpp"
#include "support/graph.hpp"

namespace ucclep::test {
namespace {

using namespace masked;

// One replay, after which everything is as it is in a world without `lost`.
void replay(Masked& at, const Graph& graph, Exchange& exchange, uint64_t seed, const std::vector<int>& lost = {}) {
  exchange.reroute(seed);
  for (const int peer : lost) exchange.leave_out(peer);
  graph.launch(at.stream);
  at.stream.synchronize();
  exchange.check_counters();
  exchange.check_dispatch();
  exchange.check_combine();
}

void lost_between_replays(Scenario scenario) {
  scenario.carried = true;
  if (!scenario.ll()) scenario.fixed_capacity = 160;  // of any routing
  run_ranks(ranks, {.seconds = 100}, [&](Rank& rank) {
    Masked at(rank, scenario);
    const auto capturing = Capturing::of(at.comm);
    Exchange exchange(rank, at.comm, scenario);
    Tensor mask(at.comm, "mask", ucclEpInt32, {ranks});
    const auto require_seen = [&](bool masked) {
      mask.set_integers({1, 1, 1, masked ? 0 : 1});
      mask.verify(rank.rank);
    };
    meet(rank, 0);
    const Graph graph(*capturing, at.stream, [&] {
      exchange.dispatch(at.handle, at.stream);
      exchange.combine(at.handle, at.stream);
      ok(ucclEpMaskQuery(at.group, static_cast<int*>(mask.get()->data), at.stream), "ucclEpMaskQuery");
      refused(ucclEpMaskClear(at.group, at.stream), ucclEpInvalidUsage, "ucclEpMaskClear", {"captur"});
    });
    replay(at, graph, exchange, 2);
    require_seen(false);
    meet(rank, 3);
    if (rank.rank != missing) {
      replay(at, graph, exchange, 3, {missing});
      require_record(at);
      require_seen(true);
      for (uint64_t i = 0; i < 3; ++i) {
        replay(at, graph, exchange, 4 + i, {missing});
        no_async_error(at.comm);
      }
      round_without(rank, at, scenario, 10);
    }
    meet(rank, 1);
    if (rank.rank == missing) {
      exchange.reroute(11);
      graph.launch(at.stream);
      at.stream.synchronize();
      exchange.check_untouched();
      has_heard(rank, at, exchange);
    }
    comes_back(rank, at, scenario);
    for (uint64_t i = 0; i < 3; ++i) {
      replay(at, graph, exchange, 20 + i);
      require_seen(false);
    }
    no_async_error(at.comm);
  });
}

TEST_CASE("graph: a rank is masked between replays, and comes back, EXPERT_MAJOR", "[driver][process][graph][masks]") {
  lost_between_replays(lines(Layout::ll_expert_major));
}
TEST_CASE("graph: a rank is masked between replays, and comes back, RANK_MAJOR", "[driver][graph][masks]") {
  lost_between_replays(bulk(Layout::ll_rank_major));
}

TEST_CASE("graph: a rank is masked between replays, and comes back, HT", "[driver][process][graph][masks]") {
  lost_between_replays(lines(Layout::ht_flat));
}
TEST_CASE("graph: a rank is masked between replays, and comes back, HT EXPERT_MAJOR", "[graph][masks]") {
  lost_between_replays(bulk(Layout::ht_expert_major));
}

TEST_CASE("graph: a captured MaskUpdate masks at each replay", "[process][graph][masks]") {
  Scenario scenario = lines(Layout::ll_expert_major);
  scenario.carried = true;
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    const auto capturing = Capturing::of(at.comm);
    const int mask[ranks] = {1, 1, 1, 0};
    const int all[ranks] = {1, 1, 1, 1};
    meet(rank, 0);
    const Graph graph(*capturing, at.stream, [&] {
      const int* wanted = rank.rank == missing ? all : mask;
      ok(ucclEpMaskUpdate(at.group, wanted, at.stream), "ucclEpMaskUpdate");
    });
    ok(ucclEpMaskUpdate(at.group, all, at.stream), "ucclEpMaskUpdate");  // the capture has masked nobody
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    for (int i = 0; i < 2; ++i) {
      meet(rank, 3 + 2 * i);
      graph.launch(at.stream);
      at.stream.synchronize();
      meet(rank, 4 + 2 * i);
      if (rank.rank == missing) {
        hears(rank, at, scenario);
      } else {
        require_masked(at, true);
        refused(ucclEpMaskUpdate(at.group, all, at.stream), ucclEpInvalidUsage, "ucclEpMaskUpdate", {"rank 3"});
        round_without(rank, at, scenario, 2);
      }
      ok(ucclEpMaskClear(at.group, at.stream), "ucclEpMaskClear");
      require_masked(at, false);
    }
    round_trip(rank, at.comm, at.handle, at.stream, scenario, 3);
    no_async_error(at.comm);
  });
}

}  // namespace
}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// HT between virtual nodes whose rows and sums land in rings of chunks (UCCLEP_HT_RING): the same rows and sums as
// ever, in less room, and no ring of two chunks that stands still.
#include <catch2/catch.hpp>

#include "conformance/network_batch.hpp"
#include "conformance/network_scenarios.hpp"
#include "conformance/ring_scenarios.hpp"
#include "support/test_env.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep::test {
namespace {

// ---- Rows and sums ----

TEST_CASE("rings: rows and sums in rings of two chunks, there and back, in nodes of all sorts", "[rings][reduced]") {
  const Environment asked = ring_asked("2");
  run_in_worlds({{2, 2}, {2, 2, 2, 2}, {4, 4}, {1, 1, 1, 1, 1, 1, 1, 1}, {3, 5}}, by_rings);
}

TEST_CASE("rings: bytes with scales, nobody and everybody, one expert for a token", "[rings]") {
  const Environment asked = ring_asked("2");
  run_rings({2, 3}, the_rest(5));
}

// Of two ranks that relay for several each, and one that relays for all.
TEST_CASE("rings: a node of one rank, and one block that does it all", "[rings][reduced]") {
  const Environment asked = ring_asked("2");
  run_rings({1, 4}, {some_of_everything(5).front()});
  run_rings({3, 2}, {some_of_everything(5)[0]}, 1);
  if (!reduced()) run_rings({1, 1, 1, 1, 1, 1, 1, 1}, {some_of_everything(8)[2]}, 1);
}

TEST_CASE("rings: longer ones, and chunks of several rows", "[rings][longer]") {
  for (const char* chunks : {"3", "9"}) {  // of which a sender is told one at a time, or two
    const Environment asked = ring_asked(chunks);
    run_rings({2, 2}, {{.experts = 8, .top_k = 3, .max_tokens = 40, .hidden = 136}});
  }
  // Five rows of these are a chunk, as they are sent.
  const Environment asked = ring_asked("2");
  run_ranks(4, [&](Rank& rank) {
    const Nodes nodes{2, 2};
    Comm comm(rank, in_nodes(rank, nodes, "loopback"));
    Stream stream(comm);
    for (const Scenario& scenario :
         in_layouts_of_ht({.ranks = 4, .experts = 8, .top_k = 3, .max_tokens = 64, .hidden = 7168, .nodes = nodes})) {
      const Group group = make_group(comm, group_config({scenario}));
      const Handle handle = make_handle(group, handle_config(scenario));
      for (uint64_t round = 1; round <= 2; ++round) there_and_back(rank, comm, handle, stream, scenario, round);
    }
    no_async_error(comm);
  });
}

TEST_CASE("rings: groups that keep fewer rows than come", "[rings]") {
  const Environment asked = ring_asked("2");
  const Nodes nodes{2, 2};
  run_ranks(4, [&](Rank& rank) {
    Comm comm(rank, in_nodes(rank, nodes, "faulty:seed=6:loopback"));
    Stream stream(comm);
    for (const Scenario& limited : with_limits(4)) {
      for (Scenario scenario : in_layouts_of_ht(limited)) {
        scenario.ranks = 4;
        scenario.nodes = nodes;
        const Group group = make_group(comm, of_short_chunks(scenario));
        const std::vector<Handle> handles = [&] {
          std::vector<Handle> made;
          for (int i = 0; i < 2; ++i) made.push_back(make_handle(group, handle_config(scenario)));
          return made;
        }();
        for (uint64_t round = 0; round < 3; ++round) {
          Batch batch(rank, comm, handles, scenario, 1 + 2 * round);
          batch.enqueue(stream);
          stream.synchronize();
          batch.check();
        }
      }
    }
  });
}

// Numbers of operations go past those that immediates tell apart, and counts of freed chunks past what their words
// hold.
TEST_CASE("rings: epochs and counts that wrap", "[rings][wrap]") {
  const Environment asked = ring_asked("2");
  const Scenario scenario{.experts = 8, .top_k = 3, .max_tokens = 12, .hidden = 16};
  InNodes how = by_rings;
  how.rounds = 36;
  run_in_nodes({2, 2}, "faulty:delay=300,seed=7:" + transport_under_test(), {scenario}, how);
}

TEST_CASE("rings: a network that reorders, repeats and withholds", "[rings][reduced][reordered]") {
  for (unsigned seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    const Environment asked = ring_asked(seed % 3 == 0 ? "3" : "2");
    run_reordered(seed, by_rings);
  }
}

// Combines are completed in another order than they began, each with a ring of its own.
TEST_CASE("rings: phases, and gradients", "[rings][reduced][reordered]") {
  const Environment asked = ring_asked("2");
  for (unsigned seed = first_seed(); seed < first_seed() + seeds(); ++seed) run_phases(seed, by_rings);
}

TEST_CASE("rings: with send_only a dispatch is over when its send phase is, and is completed all the same", "[rings]") {
  const Environment asked = ring_asked("2");
  const Nodes nodes{2, 2};
  const Scenario scenario{.ranks = 4, .experts = 8, .top_k = 3, .max_tokens = 12, .nodes = nodes};
  run_ranks(4, [&](Rank& rank) {
    Comm comm(rank, in_nodes(rank, nodes, "faulty:seed=8:loopback"));
    Stream stream(comm);
    for (const Scenario& in_layout : in_layouts_of_ht(scenario)) {
      const Group group = make_group(comm, of_short_chunks(in_layout));
      const Handle handle = make_handle(group, handle_config(in_layout));
      Exchange exchange(rank, comm, in_layout);
      exchange.dispatch_config.send_only = 1;
      exchange.update(handle, stream);
      exchange.dispatch(handle, stream);
      stream.synchronize();
      exchange.check_dispatch();
      refused(exchange.try_dispatch(handle, stream), ucclEpInvalidUsage, "ucclEpDispatch", {"pending"});
      ok(ucclEpComplete(handle, stream), "ucclEpComplete");
      ok(ucclEpComplete(handle, stream), "ucclEpComplete of nothing");
      exchange.combine(handle, stream);
      stream.synchronize();
      exchange.check_combine();
    }
    no_async_error(comm);
  });
}

TEST_CASE("rings: LL and HT take turns on one group", "[rings][reduced]") {
  const Environment asked = ring_asked("2");
  run_turns_with_ll();
}

// ---- What is held back ----

TEST_CASE("rings: a sender holds back what has no room yet", "[rings][reduced]") {
  for (const char* ring : {"2", "off"}) {
    const Environment asked = ring_asked(ring), of_relays = relay_ring_asked("off");
    run_held_back(RingsOf::group, std::string(ring) != "off");
  }
}

TEST_CASE("rings: a connection that breaks while a ring is full ends operations on all ranks at once",
          "[rings][reduced]") {
  const Environment asked = ring_asked("2");
  run_broken_while_full(RingsOf::group);
}

// ---- What all ranks must agree on, and what is refused ----

TEST_CASE("rings: the settings of one rank differ: refused on all, no row written, and the group works on",
          "[rings][reduced]") {
  const Environment asked = ring_asked("2");
  run_where_a_ring_differs();
}

TEST_CASE("rings: ranks that are asked for different ones make no group", "[rings]") {
  run_where_one_is_asked_for("3", ring_variable, "2", Layout::ht_flat);
}

TEST_CASE("rings: kernels of users do not receive from them", "[rings]") {
  const Environment asked = ring_asked("2");
  const Nodes nodes{2, 2};
  run_ranks(4, [&](Rank& rank) {
    const Scenario scenario = to_the_other_node(nodes);
    Comm comm(rank, in_nodes(rank, nodes, "loopback"));
    const Group group = make_group(comm, of_short_chunks(scenario));
    const Handle handle = make_handle(group, handle_config(scenario));
    ucclEpDeviceHandle device;
    refused(ucclEpHandleGetDevice(handle, &device), ucclEpNotSupported, "ucclEpHandleGetDevice",
            {"rings of 2 chunks", ring_variable});
    Exchange exchange(rank, comm, scenario);
    Stream stream(comm);
    refused(ucclEpCompleteDispatch(handle, &exchange.dispatch_out, &exchange.dispatch_config, stream),
            ucclEpNotSupported, "ucclEpCompleteDispatch", {"rings"});
    refused(
        ucclEpCompleteCombine(handle, &exchange.combine_in, &exchange.combine_out, &exchange.combine_config, stream),
        ucclEpNotSupported, "ucclEpCompleteCombine", {"rings"});
    Scenario low = scenario;
    low.layout = Layout::ll_rank_major;
    const Handle other = make_handle(group, handle_config(low));
    ok(ucclEpHandleGetDevice(other, &device), "ucclEpHandleGetDevice of LL");
    round_trip(rank, comm, handle, stream, scenario);
  });
}

TEST_CASE("rings: groups with masks have none", "[rings]") {
  const Environment asked = ring_asked("2");
  const Nodes nodes{2, 2};
  run_ranks(4, [&](Rank& rank) {
    Scenario scenario = to_the_other_node({1, 1, 1, 1});  // of which sums are made
    scenario.masked = true;
    Comm comm(rank, in_nodes(rank, nodes, "loopback"));
    const Group group = make_group(comm, of_short_chunks(scenario));
    const Handle handle = make_handle(group, handle_config(scenario));
    ucclEpDeviceHandle device;
    ok(ucclEpHandleGetDevice(handle, &device), "ucclEpHandleGetDevice");
    require(device.group.shape.ring == 0, "there is a ring");
    Stream stream(comm);
    round_trip(rank, comm, handle, stream, scenario);
  });
}

}  // namespace
}  // namespace ucclep::test

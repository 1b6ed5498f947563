// SPDX-License-Identifier: Apache-2.0
// HT between virtual nodes whose NICs do not reach devices: rows land in rings of host memory, which relays empty into
// their devices' memory (UCCLEP_HT_RELAY_RING). The same rows and sums as ever, and nothing of what a group without
// rings can do is missing. [staged]: where NICs reach the device nothing is, and these cases are those of any group.
#include <catch2/catch.hpp>

#include "conformance/network_scenarios.hpp"
#include "conformance/ring_scenarios.hpp"
#include "support/test_env.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep::test {
namespace {

TEST_CASE("relay rings: rows and sums by rings of two chunks, in nodes of all sorts", "[rings][staged][reduced]") {
  const Environment asked = relay_ring_asked("2");
  run_in_worlds({{2, 2}, {2, 2, 2, 2}, {4, 4}, {3, 5}}, by_rings);
}

// Of two ranks that relay for several each, and one that relays for all, with one block.
TEST_CASE("relay rings: a node of one rank, and one block that does it all", "[rings][staged][reduced]") {
  const Environment asked = relay_ring_asked("2");
  run_rings({1, 4}, {some_of_everything(5).front()});
  run_rings({3, 2}, {some_of_everything(5)[0]}, 1);
}

TEST_CASE("relay rings: longer ones, and chunks of several rows", "[rings][staged][longer]") {
  for (const char* chunks : {"3", "9"}) {
    const Environment asked = relay_ring_asked(chunks);
    run_rings({2, 2}, {{.experts = 8, .top_k = 3, .max_tokens = 40, .hidden = 136}});
  }
  const Environment asked = relay_ring_asked("2");
  InNodes long_rows = by_rings;  // five are a chunk
  long_rows.short_chunks = false;
  run_in_nodes({2, 2}, transport_under_test(), {{.experts = 8, .top_k = 3, .max_tokens = 64, .hidden = 7168}},
               long_rows);
}

TEST_CASE("relay rings: epochs and counts that wrap", "[rings][staged][wrap]") {
  const Environment asked = relay_ring_asked("2");
  InNodes how = by_rings;
  how.rounds = 36;
  run_in_nodes({2, 2}, "faulty:delay=300,seed=7:" + transport_under_test(),
               {{.experts = 8, .top_k = 3, .max_tokens = 12, .hidden = 16}}, how);
}

TEST_CASE("relay rings: a network that reorders, repeats and withholds", "[rings][staged][reduced][reordered]") {
  for (unsigned seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    const Environment asked = relay_ring_asked(seed % 3 == 0 ? "3" : "2");
    run_reordered(seed, by_rings);
  }
}

// Both operations have phases, and each of those under way the ring of its slot.
TEST_CASE("relay rings: phases, and gradients", "[rings][staged][reduced][reordered]") {
  const Environment asked = relay_ring_asked("2");
  for (unsigned seed = first_seed(); seed < first_seed() + seeds(); ++seed) run_phases(seed, by_rings);
}

// Send phases send, relay and stage: all ranks have ended theirs before any begins its second.
TEST_CASE("relay rings: send phases stage all rows and sums that were held back", "[rings][staged][reduced]") {
  const Environment asked = relay_ring_asked("2");
  const Nodes nodes{2, 2};
  run_ranks(4, [&](Rank& rank) {
    const Scenario scenario = to_the_other_node(nodes);
    Comm comm(rank, in_nodes(rank, nodes, "loopback"));
    const Group group = make_group(comm, of_short_chunks(scenario));
    const Handle handle = make_handle(group, handle_config(scenario));
    Stream stream(comm);
    uint64_t phases = 0;
    const auto complete = [&] {
      stream.synchronize();
      rank.board.add(++phases);
      rank.board.wait(phases, 4);  // all have ended their send phases
      ok(ucclEpComplete(handle, stream), "ucclEpComplete");
    };
    for (uint64_t round = 1; round <= 3; ++round) {
      Exchange exchange(rank, comm, scenario, round);
      exchange.dispatch_config.send_only = exchange.combine_config.send_only = 1;
      exchange.update(handle, stream);
      exchange.dispatch(handle, stream);
      complete();
      exchange.combine(handle, stream);
      complete();
      stream.synchronize();
      exchange.check_dispatch();
      exchange.check_combine();
    }
    no_async_error(comm);
  });
}

TEST_CASE("relay rings: LL and HT take turns on one group", "[rings][staged][reduced]") {
  const Environment asked = relay_ring_asked("2");
  run_turns_with_ll();
}

TEST_CASE("relay rings: a sender holds back what has no room yet", "[rings][staged][reduced]") {
  for (const char* ring : {"2", "off"}) {
    const Environment asked = relay_ring_asked(ring);
    run_held_back(RingsOf::relays, std::string(ring) != "off");
  }
}

TEST_CASE("relay rings: a connection that breaks while a ring is full ends operations on all ranks at once",
          "[rings][staged][reduced]") {
  const Environment asked = relay_ring_asked("2");
  run_broken_while_full(RingsOf::relays);
}

TEST_CASE("relay rings: the settings of one rank differ: refused on all, no row written, and the group works on",
          "[rings][staged][reduced]") {
  const Environment asked = relay_ring_asked("2");
  run_where_a_ring_differs();
}

TEST_CASE("relay rings: ranks that are asked for different ones make no group", "[rings][staged]") {
  run_where_one_is_asked_for("3", relay_ring_variable, "2", Layout::ht_flat);
}

TEST_CASE("relay rings: handles are given to kernels of users", "[rings][staged]") {
  const Environment asked = relay_ring_asked("2");
  const Nodes nodes{2, 2};
  run_ranks(4, [&](Rank& rank) {
    const Scenario scenario = to_the_other_node(nodes);
    Comm comm(rank, in_nodes(rank, nodes, "loopback"));
    const Group group = make_group(comm, of_short_chunks(scenario));
    const Handle handle = make_handle(group, handle_config(scenario));
    ucclEpDeviceHandle device;
    ok(ucclEpHandleGetDevice(handle, &device), "ucclEpHandleGetDevice");
    require(device.group.shape.ring == 0, "the group has rings");
    require(device.group.shape.relay_ring == 2 * device.group.shape.relay_stages, "relays have other rings");
    Stream stream(comm);
    round_trip(rank, comm, handle, stream, scenario);
  });
}

}  // namespace
}  // namespace ucclep::test

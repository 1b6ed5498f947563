// SPDX-License-Identifier: Apache-2.0
// HT between virtual nodes whose rows and sums land in rings of chunks (UCCLEP_HT_RING): the same rows and sums as
// ever, in less room, and no ring of two chunks that stands still.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <thread>

#include "conformance/exchange.hpp"
#include "conformance/in_nodes.hpp"
#include "conformance/network_batch.hpp"
#include "conformance/network_scenarios.hpp"
#include "conformance/nodes.hpp"
#include "support/environment.hpp"
#include "support/test_env.hpp"
#include "ucclep/device/objects.hpp"

namespace ucclep::test {
namespace {

constexpr const char* ring_variable = "UCCLEP_HT_RING";

Environment ring_asked(const char* ring) {
  return Environment(ring_variable, ring);
}

std::vector<Scenario> in_layouts_of_ht(const Scenario& scenario) {
  return in_layouts_of(false, scenario);
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr InNodes by_rings{.ll = false, .short_chunks = true, .gradients = true};

void run_rings(const Nodes& nodes, const std::vector<Scenario>& scenarios, int num_sms = 0) {
  InNodes how = by_rings;
  how.num_sms = num_sms;
  run_in_nodes(nodes, transport_under_test(), scenarios, how);
}

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

TEST_CASE("rings: longer ones, and chunks of several rows", "[rings]") {
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

TEST_CASE("rings: a network that reorders, repeats and withholds", "[rings][reduced]") {
  for (unsigned seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    const Environment asked = ring_asked(seed % 3 == 0 ? "3" : "2");
    run_reordered(seed, by_rings);
  }
}

// Combines are completed in another order than they began, each with a ring of its own.
TEST_CASE("rings: halves, and gradients", "[rings][reduced]") {
  const Environment asked = ring_asked("2");
  for (unsigned seed = first_seed(); seed < first_seed() + seeds(); ++seed) run_halves(seed, by_rings);
}

TEST_CASE("rings: with send_only a dispatch is over when its first half is, and is completed all the same", "[rings]") {
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

// Rows of LL, of either way, have room of their own in the same windows; halves of LL are pending while HT dispatches.
TEST_CASE("rings: LL and HT take turns on one group", "[rings][reduced]") {
  const Environment asked = ring_asked("2");
  const Nodes nodes{2, 2};
  for (const char* copies : {"node", "rank"}) {
    const Environment of_ll("UCCLEP_LL_COPIES", copies);
    run_ranks(4, [&](Rank& rank) {
      const std::vector<Scenario> scenarios =
          in_all_layouts({.experts = 16, .top_k = 4, .max_tokens = 11, .ll_max_tokens = 19, .nodes = nodes});
      Comm comm(rank, in_nodes(rank, nodes, "faulty:seed=3:loopback"));
      Stream stream(comm);
      ucclEpGroupConfig_t config = group_config(scenarios);
      config.max_token_bytes = 1 << 16;
      config.max_in_flight = 4;
      const Group group = make_group(comm, config);
      for (uint64_t round = 1; round <= 3; ++round) {
        for (const Scenario& scenario : scenarios) {
          const Handle handle = make_handle(group, handle_config(scenario));
          round_trip(rank, comm, handle, stream, scenario, round);
        }
        const Handle low = make_handle(group, handle_config(scenarios[0]));
        Exchange pending(rank, comm, scenarios[0], round + 10);
        pending.dispatch_config.send_only = 1;
        pending.update(low, stream);
        pending.dispatch(low, stream);
        const Handle high = make_handle(group, handle_config(scenarios[2]));
        round_trip(rank, comm, high, stream, scenarios[2], round + 20);
        ok(ucclEpComplete(low, stream), "ucclEpComplete");
        pending.combine(low, stream);
        stream.synchronize();
        pending.check_dispatch();
        pending.check_combine();
      }
      no_async_error(comm);
    });
    if (reduced()) break;
  }
}

// ---- What is held back ----

Scenario to_the_other_node(const Nodes& nodes) {
  Scenario scenario{.layout = Layout::ht_flat, .ranks = 4, .experts = 4, .top_k = 4, .max_tokens = 24, .nodes = nodes};
  return scenario;
}

// All rows go to both nodes. Of 24 chunks a ring has two: most of them wait for others to be freed.
TEST_CASE("rings: a sender holds back what has no room yet", "[rings][reduced]") {
  const Nodes nodes{2, 2};
  for (const char* ring : {"2", "off"}) {
    const Environment asked = ring_asked(ring);
    run_ranks(4, [&](Rank& rank) {
      const Scenario scenario = to_the_other_node(nodes);
      Comm comm(rank, in_nodes(rank, nodes, "loopback"));
      const Group group = make_group(comm, of_short_chunks(scenario));
      const Handle handle = make_handle(group, handle_config(scenario));
      Stream stream(comm);
      round_trip(rank, comm, handle, stream, scenario);
      const bool held = stats_of(comm).credit_stalls > 0;
      require(held == (std::string(ring) != "off"), held ? "chunks were held back" : "no chunk was held back");
      rank.board.add(0);
      rank.board.wait(0, 4);
    });
  }
}

// 0 and 2 lose their connection while both hold chunks back for a ring that is full; 1 and 3 hear of it. Nobody waits
// until the time is up.
TEST_CASE("rings: a connection that breaks while a ring is full ends operations on all ranks at once",
          "[rings][reduced]") {
  const Environment asked = ring_asked("2");
  const Nodes nodes{2, 2};
  for (const int when : {9, 14, 20}) {
    const std::string transport =
        "faulty:delay=0,withhold=0,repeat=0,break=" + std::to_string(when) + ",at=0,peer=0:loopback";
    run_ranks(4, [&](Rank& rank) {
      const Scenario scenario = to_the_other_node(nodes);
      Comm comm(rank, by_one_thread(in_nodes(rank, nodes, transport.c_str())));
      ucclEpGroupConfig_t config = of_short_chunks(scenario);
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
      require(says(error.text, "has lost its connection to rank") || says(error.text, "has given the communicator up"),
              error.text);
      if (rank.rank == 0) require(stats_of(comm).credit_stalls > 0, "no ring was full");
      handle.reset();
      group.reset();
      require(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10), "it took long");
    });
  }
}

// What a group takes of a rank's device, as it is said, and its windows, where they are made.
struct GroupBytes {
  double said = 0, windows = 0;
  bool brought = false;  // rows land, and are brought into as much room
};
GroupBytes bytes_with(const Nodes& nodes, const ucclEpGroupConfig_t& config, const char* ring, bool made) {
  const Environment asked = ring_asked(ring);
  GroupBytes bytes;
  run_ranks(ranks_of(nodes), [&](Rank& rank) {
    Comm comm(rank, in_nodes(rank, nodes, "loopback"));
    ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
    ok(ucclEpGroupQuery(comm, &config, &limits), "ucclEpGroupQuery");
    ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
    ucclEpDeviceGroup device{};
    if (made) {
      const Group group = make_group(comm, config);
      ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
      ok(ucclEpGroupGetDevice(group, &device), "ucclEpGroupGetDevice");
    }
    if (rank.rank != 0) return;
    bytes = {static_cast<double>(limits.device_bytes), static_cast<double>(info.window_bytes),
             device.shape.brings != 0};
  });
  return bytes;
}

// Of GPUs the network's window may be the host's.
TEST_CASE("rings: ucclEpGroupQuery says the smaller windows, and they are what it says", "[rings][reduced][host]") {
  if (ranks_are_processes()) return skip_case("what a rank is told is compared here");
  const Nodes nodes{2, 2};
  Scenario scenario = to_the_other_node(nodes);
  scenario.max_tokens = 256;
  ucclEpGroupConfig_t config = of_short_chunks(scenario);
  config.ll_max_tokens_per_rank = 1;
  const GroupBytes all = bytes_with(nodes, config, "off", false), rings = bytes_with(nodes, config, "2", true);
  // In each of two slots, rows of one other node, perhaps twice, and sums of two nodes, of 256 tokens less two.
  const double landings = rings.brought ? 4 : 3;
  CHECK(all.said - rings.said == Approx(landings * 2 * 254 * 65536).epsilon(0.02));
  CHECK(rings.windows == Approx(rings.said).epsilon(0.05));
}

// In two slots, 16384 rows of one other node and sums of two, of 64 KiB, are 6 GiB.
TEST_CASE("rings: by themselves they are there only where all would take too much room", "[rings][host]") {
  if (ranks_are_processes()) return skip_case("what a rank is told is compared here");
  const Nodes nodes{1, 1};
  ucclEpGroupConfig_t config = of_short_chunks({.layout = Layout::ht_flat, .ranks = 2, .experts = 2, .top_k = 1});
  config.ll_max_tokens_per_rank = 1;
  config.max_tokens_per_rank = 1024;
  CHECK(bytes_with(nodes, config, "auto", false).said == bytes_with(nodes, config, "off", false).said);
  config.max_tokens_per_rank = 16384;
  const double all = bytes_with(nodes, config, "off", false).said,
               chosen = bytes_with(nodes, config, "auto", false).said, few = bytes_with(nodes, config, "2", false).said;
  constexpr double gib = 1 << 30;
  CHECK(all - chosen > 4 * gib);
  CHECK(all - chosen < 4.2 * gib);
  CHECK(all - few > 5.9 * gib);
}

// ---- What all ranks must agree on, and what is refused ----

TEST_CASE("rings: the settings of one rank differ: refused on all, no row written, and the group works on",
          "[rings][reduced]") {
  const Environment asked = ring_asked("2");
  const Scenario common{.layout = Layout::ht_flat, .max_tokens = 16, .hidden = 64, .nodes = {2, 2}};
  Scenario other = common;
  other.hidden = 136;
  run_where_one_differs(common, other, of_short_chunks(common), [&](const AmongThem& at) {
    // Sums that one rank expects to be longer.
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

TEST_CASE("rings: ranks that are asked for different ones make no group", "[rings]") {
  run_ranks(4, {.processes = true}, [](Rank& rank) {
    setenv(ring_variable, rank.rank == 2 ? "3" : "2", 1);
    Comm comm(rank, in_nodes_of(rank, 2, "loopback"));
    const ucclEpGroupConfig_t config = group_config({Scenario{.layout = Layout::ht_flat}});
    ucclEpGroup_t group = nullptr;
    refused(ucclEpGroupCreate(&group, comm, &config), ucclEpInvalidArgument, "ucclEpGroupCreate",
            {ring_variable, "rank 2", "3"});
  });
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

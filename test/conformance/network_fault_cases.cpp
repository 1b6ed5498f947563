// SPDX-License-Identifier: Apache-2.0
// What goes wrong between virtual nodes: a code and an error message on every rank, in time, or right results in the
// end.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "conformance/exchange.hpp"
#include "conformance/masked.hpp"
#include "conformance/nodes.hpp"

namespace ucclep::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Ten times what is promised for a fault that somebody sees: the machine may be slow.
constexpr std::chrono::seconds prompt{10};
// Of groups whose ranks shall hear of a fault, and not find their time up.
constexpr int long_ms = 120'000;

Scenario some(int ranks) {
  return {.layout = Layout::ll_rank_major, .ranks = ranks, .experts = 2 * ranks};
}

// A group that has done nothing yet.
struct World {
  World(Rank& world_rank, const Scenario& what, int ranks_per_node, const char* transport, int timeout_ms)
      : rank(world_rank),
        scenario(what),
        comm(rank, by_one_thread(in_nodes_of(rank, ranks_per_node, transport))),
        group(make_group(comm, with_timeout(timeout_ms))),
        handle(make_handle(group, handle_config(scenario))),
        stream(comm),
        exchange(rank, comm, scenario) {
    exchange.update(handle, stream);
    stream.synchronize();
  }

  ucclEpGroupConfig_t with_timeout(int timeout_ms) const {
    ucclEpGroupConfig_t config = group_config({scenario});
    config.timeout_ms = timeout_ms;
    return config;
  }
  // One of each, or the answer of the first that was refused.
  ucclEpResult_t operate() {
    ucclEpResult_t result = exchange.try_dispatch(handle, stream);
    if (result == ucclEpSuccess) result = exchange.try_combine(handle, stream);
    return result == ucclEpSuccess ? ucclEpStreamSynchronize(comm, stream) : result;
  }
  // Ranks of other processes may be gone: nobody is waited for who does not call this.
  void meet(int word, int ranks) {
    rank.board.add(word);
    rank.board.wait(word, static_cast<uint32_t>(ranks));
  }
  // What is there within `limit`.
  ucclEpAsyncError_t wait_for_fault(Clock::duration limit) {
    const auto begin = Clock::now();
    while (async_error(comm).code == ucclEpSuccess) {
      require(Clock::now() - begin < limit, "nothing was recorded in time");
      std::this_thread::sleep_for(milliseconds(1));
    }
    const ucclEpAsyncError_t error = async_error(comm);
    refused(exchange.try_dispatch(handle, stream), error.code, "ucclEpDispatch", {error.text});
    refused(ucclEpStreamSynchronize(comm, stream), error.code, "ucclEpStreamSynchronize", {error.text});
    return error;
  }
  // Operations until something goes wrong.
  ucclEpAsyncError_t operate_until_fault(Clock::duration limit) {
    const auto begin = Clock::now();
    while (operate() == ucclEpSuccess) require(Clock::now() - begin < limit, "nothing went wrong");
    require(Clock::now() - begin < limit, "it took long");
    return wait_for_fault(Clock::duration::zero() + milliseconds(100));
  }
  // Nobody is waited for: all that is promised of a communicator with a fault.
  void end(Clock::duration limit) {
    const auto begin = Clock::now();
    handle.reset();
    group.reset();
    require(Clock::now() - begin < limit, "to destroy the group took long");
  }

  Rank& rank;
  const Scenario scenario;
  Comm comm;
  Group group;
  Handle handle;
  Stream stream;
  Exchange exchange;
};

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// ---- A connection, a NIC ----

// 0 and 2 lose their connection; 1 and 3 keep all of theirs, and hear of it.
TEST_CASE("network fault: a connection that breaks ends operations on all ranks at once", "[faults]") {
  run_ranks(4, [](Rank& rank) {
    World world(rank, some(4), 2, "faulty:delay=0,withhold=0,repeat=0,break=9,at=0,peer=0:loopback", long_ms);
    world.meet(0, 4);
    const ucclEpAsyncError_t error = world.operate_until_fault(prompt);
    const std::string text = error.text;
    require(error.code == ucclEpRemoteError, text);
    const bool saw_it = std::string(error.phase) == "network";
    if (saw_it) {
      require(rank.rank % 2 == 0 && error.peer == 2 - rank.rank, text);
      require(holds(text, "has lost its connection to rank"), text);
      require(holds(text, "broke at operation 9") || holds(text, "has ended the connection"), text);
      rank.board.post(1);
    } else {
      require(error.peer == 0 || error.peer == 2, text);
      require(holds(text, "aborted the communicator: rank " + std::to_string(error.peer) + " has lost its conn"), text);
    }
    world.meet(2, 4);
    rank.board.wait(1, 1, 0.1);  // at least one of them
    world.end(prompt);
  });
}

// Rounds with masks over a transport that ends connections in one of them, until each rank has masked those that it
// lost, and a last one without them. Nobody's time is up on the way.
void lose_peers(Rank& rank, const char* transport, const std::vector<int>& lost) {
  const Scenario scenario = masked::lines(Layout::ll_rank_major);
  masked::Masked at(rank, by_one_thread(in_nodes_of(rank, 2, transport)), scenario, long_ms);
  const auto begin = Clock::now();
  for (uint64_t round = 1; round <= 8; ++round) {
    Exchange exchange(rank, at.comm, scenario, round);
    masked::update_and_dispatch(exchange, at);
    exchange.combine(at.handle, at.stream);
    at.stream.synchronize();
  }
  require(Clock::now() - begin < milliseconds(long_ms) / 2, "the loss was not reported promptly");
  if (!lost.empty()) {
    const ucclEpAsyncError_t error = async_error(at.comm);
    require(holds(error.text, "has lost its connection to rank"), error.text);
    masked::require_record(at, lost);
  }
  masked::require_mask(at, masked::mask_without(lost));
  masked::round_without(rank, at, scenario, 9, lost);
  masked::meet(rank, 0);
  ok(ucclEpMaskClear(at.group, at.stream), "ucclEpMaskClear");
  masked::require_masked(at, false);
}

// 0 and 2 mask each other; 1 and 3 have lost nobody.
TEST_CASE("network fault: with masks a connection that breaks masks the rank at its other end", "[faults]") {
  run_ranks(masked::ranks, [](Rank& rank) {
    const std::vector<int> other = {2 - rank.rank};
    lose_peers(rank, "faulty:delay=0,withhold=0,repeat=0,break=9,at=0,peer=0:loopback",
               rank.rank % 2 == 0 ? other : std::vector<int>{});
  });
}

// Those of 1 and 3. No transport tells 0 and 2, where nothing fails: they wait for rows.
TEST_CASE("network fault: with masks a NIC that dies masks its rank on the other node", "[faults]") {
  run_ranks(masked::ranks, [](Rank& rank) {
    const std::vector<std::vector<int>> lost = {{3}, {2, 3}, {1}, {0, 1}};
    lose_peers(rank, "faulty:delay=0,withhold=0,repeat=0,kill=9,at=1:loopback", lost[static_cast<size_t>(rank.rank)]);
  });
}

TEST_CASE("network fault: a NIC that dies ends operations on all ranks at once", "[faults]") {
  run_ranks(4, [](Rank& rank) {
    World world(rank, some(4), 2, "faulty:delay=0,withhold=0,repeat=0,kill=9,at=1:loopback", long_ms);
    world.meet(0, 4);
    const ucclEpAsyncError_t error = world.operate_until_fault(prompt);
    require(error.code == ucclEpSystemError || error.code == ucclEpRemoteError, error.text);
    require(holds(error.text, "this endpoint was killed"), error.text);
    world.meet(1, 4);
    world.end(prompt);
  });
}

// Operations over a transport that holds all of them up for so long, once: they are right in the end.
void sit_out(Rank& rank, const char* transport, milliseconds held_up) {
  const Scenario scenario = some(4);
  Comm comm(rank, by_one_thread(in_nodes_of(rank, 2, transport)));
  Group group = make_group(comm, group_config({scenario}));
  Handle handle = make_handle(group, handle_config(scenario));
  Stream stream(comm);
  const auto begin = Clock::now();
  for (uint64_t round = 1; round <= 6; ++round) round_trip(rank, comm, handle, stream, scenario, round);
  require(Clock::now() - begin >= held_up, "nothing was held up");
  no_async_error(comm);
}

TEST_CASE("network fault: a link that drops for two seconds and returns loses nothing", "[faults][slow]") {
  run_ranks(4, [](Rank& rank) { sit_out(rank, "faulty:seed=3,outage=7,ms=2000:loopback", milliseconds(2000)); });
}

// ---- A node ----

enum class When { before, in, after };

// Ranks 2 and 3 die: before an operation that the others begin; while the others wait in one, which one of the two has
// begun; after one, when the others ask for nothing.
void outlive(Rank& rank, When when) {
  World world(rank, some(4), 2, "loopback", long_ms);
  const bool dies = rank.rank >= 2;
  ok(world.operate(), "the first operations");
  world.meet(0, 4);
  if (when == When::in && rank.rank < 3) ok(world.exchange.try_dispatch(world.handle, world.stream), "ucclEpDispatch");
  world.meet(1, 4);
  if (dies) kill(getpid(), SIGKILL);
  const ucclEpAsyncError_t error =
      when == When::before ? world.operate_until_fault(prompt) : world.wait_for_fault(prompt);
  require(error.code == ucclEpRemoteError, error.text);
  const std::string text = error.text;
  // The bootstrap's connection, or the transport's, was the first to close; and the other survivor may have been.
  require(error.peer >= 0 && error.peer < 4 && (holds(text, "rank 2") || holds(text, "rank 3")), text);
  world.meet(2, 2);
  world.end(prompt);
}

TEST_CASE("network fault: a node dies before an operation", "[faults][killed]") {
  run_ranks(4, {.processes = true, .killed = {2, 3}}, [](Rank& rank) { outlive(rank, When::before); });
}
TEST_CASE("network fault: a node dies in an operation", "[faults][killed]") {
  run_ranks(4, {.processes = true, .killed = {2, 3}}, [](Rank& rank) { outlive(rank, When::in); });
}
TEST_CASE("network fault: a node dies after an operation", "[faults][killed]") {
  run_ranks(4, {.processes = true, .killed = {2, 3}}, [](Rank& rank) { outlive(rank, When::after); });
}

// ---- A proxy thread ----

TEST_CASE("network fault: a proxy thread that stalls for a while makes nothing wrong", "[faults][slow]") {
  run_ranks(4, [](Rank& rank) { sit_out(rank, "faulty:seed=4,stall=9,at=0,ms=1500:loopback", milliseconds(1500)); });
}

// Longer than all ranks wait for it, that is.
TEST_CASE("network fault: a proxy thread that stalls forever is reported on all ranks in time", "[faults][slow]") {
  run_ranks(4, [](Rank& rank) {
    World world(rank, some(4), 2, "faulty:seed=4,stall=9,at=0,ms=5000:loopback", 1000);
    world.meet(0, 4);
    const ucclEpAsyncError_t error = world.operate_until_fault(prompt);
    require(error.code == ucclEpTimeout || error.code == ucclEpRemoteError, error.text);
    require(holds(error.text, "rank " + std::to_string(error.peer)), error.text);
  });
}

// ---- A ring ----

// More commands than a ring holds, to the one peer: the rings of a large GPU have thousands of entries.
Scenario many_rows() {
  Scenario scenario{.layout = Layout::ll_rank_major, .ranks = 2, .experts = 2, .top_k = 1, .max_tokens = 12'000};
  scenario.hidden = 16;
  scenario.rule = next_rank();
  return scenario;
}

// Both ranks' proxies stand still as soon as they have carried out an operation without rows: a header, and the word
// that it was read. Then `full` follows, while nobody reads the rings.
void fill_rings(Rank& rank, int ms, int timeout_ms, const std::function<void(World&)>& full) {
  const std::string transport = "faulty:delay=0,withhold=0,repeat=0,stall=2,ms=" + std::to_string(ms) + ":loopback";
  World world(rank, many_rows(), 1, transport.c_str(), timeout_ms);
  Scenario none = world.scenario;
  none.tokens = {0, 0};
  Exchange nothing(rank, world.comm, none);
  nothing.update(world.handle, world.stream);
  nothing.dispatch(world.handle, world.stream);
  world.stream.synchronize();
  world.exchange.update(world.handle, world.stream);
  world.stream.synchronize();
  const auto begin = Clock::now();
  while (stats_of(world.comm).messages < 2) {
    require(Clock::now() - begin < prompt, "the first operation was not carried out");
    std::this_thread::sleep_for(milliseconds(1));
  }
  std::this_thread::sleep_for(milliseconds(300));  // what is posted has ended by then
  full(world);
  require(stats_of(world.comm).ring_full_stalls > 0, "no ring was full");
}

TEST_CASE("network fault: kernels wait for room in a full ring, and all is right in the end", "[faults][slow]") {
  run_ranks(2, [](Rank& rank) {
    fill_rings(rank, 2500, 0, [](World& world) {
      world.exchange.dispatch(world.handle, world.stream);
      world.stream.synchronize();
      world.exchange.check_dispatch();
      no_async_error(world.comm);
    });
  });
}

TEST_CASE("network fault: a ring that stays full is reported in time", "[faults][slow]") {
  run_ranks(2, [](Rank& rank) {
    fill_rings(rank, 5000, 1000, [](World& world) {
      const ucclEpAsyncError_t error = world.operate_until_fault(prompt);
      require(error.code == ucclEpTimeout || error.code == ucclEpRemoteError, error.text);
      require(holds(error.text, "rank " + std::to_string(error.peer)), error.text);
    });
  });
}

}  // namespace
}  // namespace ucclep::test

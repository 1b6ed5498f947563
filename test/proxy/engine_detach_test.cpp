// SPDX-License-Identifier: Apache-2.0
// Peers that are detached: what still leaves for them, who hears of it, and that the others go on.
#include <fmt/format.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "engine_team.hpp"
#include "support/test_env.hpp"
#include "watched_transport.hpp"

namespace ucclep::test {
namespace {

constexpr CommandFields row_of_1{
    .epoch = 1, .bytes = 64, .destination = 1, .rows = 1, .operation = CommandOp::put, .kind = 1};

void push_rows(Rank& me, uint32_t peer, uint32_t rows) {
  CommandFields row = row_of_1;
  row.destination = static_cast<uint16_t>(peer);
  for (row.row = 0; row.row < rows; ++row.row) me.push(peer, row);
}

// Long enough for many rounds of a proxy thread.
void a_while() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

TEST_CASE("engine: a detached peer is notified when all that was posted to it has ended, and not before",
          "[engine][detach]") {
  TeamShape shape;
  shape.ranks = 3;
  shape.rows_per_chunk = 1;
  shape.credits = {.window = 4, .return_every = 1};
  NicWatch watch;
  shape.change = with_nic(0, watch);
  run_loose_team(shape, [&](Rank& me) {
    me.attach();
    me.begin(kind);
    if (me.rank() == 0) {
      const auto counts = [&] { return me.group().statistics(); };
      watch.held = true;
      push_rows(me, 1, 24);
      me.until([&] { return watch.messages == 4; }, "the window to be full");
      me.detach(1);
      me.until([&] { return counts().dropped == 20; }, "what waits to be dropped");
      a_while();
      check(!me.detached(1) && counts().words == 0, "it was notified while the NIC had not ended");
      watch.held = false;
      me.until([&] { return me.detached(1) && counts().words == 1; }, "the detaching to be sent");
      me.detach(1);
      a_while();
      check(counts().words == 1, "it was notified twice");
      me.send(kind, 2);
    } else {
      me.until([&] { return me.evicted(0) == (me.rank() == 1); }, "rank 0 to say that it has masked this one");
    }
    if (me.rank() == 1) check(!me.evicted(2) && me.progress(kind, 0).below == 4, "something else came");
    if (me.rank() == 2) me.receive(kind, 0);
    me.meet();
    check(me.detached(1) == (me.rank() == 0) && !me.detached(2) && !me.evicted(2), "another rank was detached");
  });
}

TEST_CASE("engine: commands for a peer that is detached are dropped, whatever they say", "[engine][detach]") {
  run_loose_team({}, [](Rank& me) {
    me.attach();
    me.begin(kind);
    if (me.rank() == 0) {
      const auto counts = [&] { return me.group().statistics(); };
      me.detach(1);
      me.until([&] { return me.detached(1); }, "the detaching");
      uint64_t dropped = 0;
      const auto is_dropped = [&](CommandOp operation, uint32_t epoch) {
        CommandFields fields = row_of_1;
        fields.operation = operation;
        fields.epoch = epoch;
        me.push(1, fields);
        ++dropped;
        me.until([&] { return counts().dropped == dropped; }, fmt::format("command {} to be dropped", dropped));
      };
      is_dropped(CommandOp::put, 1);
      is_dropped(CommandOp::put, 1);  // the same row
      is_dropped(CommandOp::put, 3);  // not before the peer has read one
      is_dropped(CommandOp::header, 99);
      is_dropped(CommandOp::channel_put, 1);
      // What is read here counts: else 4 were too many.
      is_dropped(CommandOp::consumed, 2);
      is_dropped(CommandOp::consumed, 4);
      check(counts().words == 1 && counts().chunks == 0, "something was sent");
    } else {
      // A peer that is notified sends nothing there either: it would not be accepted.
      me.until([&] { return me.evicted(0); }, "rank 0 to part");
      me.send(kind, 0);
      me.consume(kind);
      me.until([&] { return me.group().statistics().dropped > 1; }, "rows and a word for rank 0 to be dropped");
    }
    me.meet();
    if (me.rank() == 0) check(me.consumed_by(kind, 1) == 0, "rank 1 has sent a word");
    check(me.group().statistics().bad_commands == 0, "bad commands");
    check(me.faults().empty(), "a fault");
  });
}

TEST_CASE("engine: rows that are put out may be overwritten when a peer has been detached", "[engine][detach]") {
  for (uint64_t seed = 1; seed <= 5 * seeds(); ++seed) {
    INFO("seed " << seed);
    TeamShape shape;
    shape.transport = fmt::format("faulty:seed={}:loopback", seed);
    shape.rows_per_chunk = 1 + seed % 3;
    run_loose_team(shape, [&](Rank& me) {
      me.attach();
      me.begin(kind);
      if (me.rank() == 0) {
        me.fill(kind, 1);
        for (uint32_t row = 0; row < me.rows_to(kind, 0, 1); ++row) me.put(kind, 1, row, 1);
        if (seed % 2 == 0) me.until([&] { return me.group().statistics().chunks > 0; }, "a chunk to leave");
        me.detach(1);
        me.until([&] { return me.detached(1); }, "the detaching");
        me.spoil(kind, 1);
        me.meet();
      } else {
        me.meet();
        me.until([&] { return me.evicted(0); }, "rank 0 to part");
        a_while();
        me.compare(kind, 0);
      }
      me.meet();
    });
  }
}

TEST_CASE("engine: who has lost its connection detaches without telling", "[engine][detach]") {
  TeamShape shape;
  NicWatch watch;
  shape.change = with_nic(0, watch, "faulty:delay=0,withhold=0,repeat=0,break=1,peer=0:loopback");
  run_loose_team(shape, [](Rank& me) {
    me.expects_faults();
    me.attach();
    me.begin(kind);
    if (me.rank() == 0) {
      push_rows(me, 1, 4);
      me.wait_for_fault();
      me.detach(1);
      me.until([&] { return me.detached(1); }, "the detaching");
      a_while();
      check(me.faults().size() == 1 && me.group().statistics().words == 0, "it was notified");
    }
    me.meet();
    check(!me.evicted(1 - me.rank()), "a peer was notified");
  });
}

TEST_CASE("engine: a peer that accepts nothing is notified nevertheless that it is detached", "[engine][detach]") {
  TeamShape shape;
  shape.timeout_ms = 200;
  shape.rows_per_chunk = 1;
  shape.credits = {.window = 1, .return_every = 1};
  NicWatch slow;
  slow.held = true;
  shape.change = with_nic(1, slow);
  run_loose_team(shape, [&](Rank& me) {
    me.expects_faults();
    me.attach();
    me.begin(kind);
    if (me.rank() == 0) {
      push_rows(me, 1, 3);
      check(me.wait_for_fault().code == ucclEpTimeout, "another fault");
      me.detach(1);
      me.until([&] { return me.detached(1); }, "the detaching");
      slow.held = false;
    } else {
      me.until([&] { return me.evicted(0); }, "rank 0 to say that it has masked this one");
    }
    me.meet();
    check(me.faults().size() == (me.rank() == 0 ? 1 : 0), "another fault");
  });
}

TEST_CASE("engine: a peer that is lost while it is detached is no fault", "[engine][detach]") {
  TeamShape shape;
  shape.rows_per_chunk = 1;
  NicWatch watch;
  shape.change = with_nic(0, watch, "faulty:delay=0,withhold=0,repeat=0,break=3,peer=0:loopback");
  run_loose_team(shape, [&](Rank& me) {
    if (me.rank() == 1) me.expects_faults();  // that the connection has ended, if it looks before all is over
    me.attach();
    me.begin(kind);
    if (me.rank() == 0) {
      watch.held = true;
      push_rows(me, 1, 4);
      me.until([&] { return watch.messages == 4; }, "all to be posted");
      me.detach(1);
      me.until([&] { return me.group().statistics().commands == 5; }, "the command to be carried out");
      check(!me.detached(1), "what was posted has not ended");
      watch.held = false;
      me.until([&] { return me.detached(1); }, "the detaching");
      a_while();
      check(me.group().statistics().words == 0, "a word for a peer that is lost");
    }
    me.meet();
    check(!me.evicted(0), "it was notified");
    check(me.rank() == 1 || me.faults().empty(), "a fault");
  });
}

TEST_CASE("engine: a peer that has died may be detached, which is no fault", "[engine][detach]") {
  TeamShape shape;
  shape.ranks = 3;
  run_loose_team(shape, [](Rank& me) {
    me.attach();
    if (me.rank() == 1) me.end_engine();
    me.meet();
    if (me.rank() == 1) return me.meet();
    me.detach(1);
    me.until([&] { return me.detached(1); }, "the detaching");
    a_while();
    const uint32_t other = 2 - me.rank();
    me.begin(kind);
    me.send(kind, other);
    me.receive(kind, other);
    me.meet();
    check(me.faults().empty(), "a fault");
  });
}

TEST_CASE("engine: a group may have a sink of its own for what is wrong in it", "[engine][detach]") {
  TeamShape shape;
  std::atomic<int> reported = 0;
  shape.change = [&](uint32_t rank, proxy::EngineConfig&, proxy::GroupSpec& spec) {
    if (rank == 0) spec.faults = [&](const proxy::Fault& fault) { reported += fault.peer == 1 ? 1 : 100; };
  };
  run_loose_team(shape, [&](Rank& me) {
    me.expects_faults();
    me.attach();
    CommandFields bad = row_of_1;
    bad.destination = static_cast<uint16_t>(1 - me.rank());
    bad.rows = 0;
    me.push(bad.destination, bad);
    if (me.rank() == 0) {
      me.until([&] { return reported == 1; }, "a report to the group's sink");
      check(me.faults().empty(), "the fault went to the engine's sink");
    } else {
      check(me.wait_for_fault().peer == 0, "the fault did not go to the engine's sink");
    }
    me.meet();
  });
}

}  // namespace
}  // namespace ucclep::test

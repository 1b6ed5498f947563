// SPDX-License-Identifier: Apache-2.0
// What goes wrong around an engine: who hears of it, and what goes on.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>

#include "base/error.hpp"
#include "engine_team.hpp"
#include "watched_transport.hpp"

namespace ucclep::test {
namespace {

TEST_CASE("engine: a command that cannot be right is reported and dropped, and the others are carried out",
          "[engine]") {
  const CommandFields good{
      .epoch = 1, .row = 0, .bytes = 32, .destination = 1, .rows = 2, .operation = CommandOp::put, .kind = 1};
  struct Case {
    const char* why;
    std::function<void(CommandFields&)> change;
  };
  const Case cases[] = {
      {"no connection", [](CommandFields& c) { c.destination = 0; }},
      {"no connection", [](CommandFields& c) { c.destination = 2; }},
      {"no connection", [](CommandFields& c) { c.destination = 4095; }},
      {"kind of operation does not exist", [](CommandFields& c) { c.kind = 7; }},
      {"the operation does not exist", [](CommandFields& c) { c.operation = static_cast<CommandOp>(200); }},
      {"it has no rows", [](CommandFields& c) { c.rows = 0; }},
      {"beyond the group's places", [](CommandFields& c) { c.row = 23; }},
      {"beyond the group's places", [](CommandFields& c) { c.kind = 0; }},
      {"belong to several chunks", [](CommandFields& c) { c.row = 3; }},
      {"number of bytes does not fit", [](CommandFields& c) { c.bytes = 48; }},
      {"number of bytes does not fit", [](CommandFields& c) { c.bytes = 2 * 80; }},
      {"slot still in use", [](CommandFields& c) { c.epoch = 3; }},
      {"its operation has ended", [](CommandFields& c) { c.epoch = 0; }},
      {"more operations than are in flight", [](CommandFields& c) { c.epoch = 3, c.operation = CommandOp::consumed; }},
      {"more rows than the group has places", [](CommandFields& c) { c.row = 25, c.operation = CommandOp::header; }},
      {"longer than a header", [](CommandFields& c) { c.bytes = 48, c.operation = CommandOp::header; }},
  };
  run_loose_team({}, [&](Rank& me) {
    me.expects_faults();
    me.attach();
    if (me.rank() == 0) {
      size_t known = 0;
      for (const Case& one : cases) {
        CommandFields bad = good;
        one.change(bad);
        me.push(1, bad);
        me.until([&] { return me.faults().size() > known; }, std::string("a fault: ") + one.why);
        const proxy::Fault fault = me.faults()[known++];
        contains(fault.message, one.why);
        contains(fault.message, fmt::format("for rank {}", bad.destination));
        check(fault.code == ucclEpInternalError && fault.peer == bad.destination, fault.message);
      }
    }
    std::mt19937_64 random(me.rank());
    for (int i = 0; i < 3; ++i) me.exchange(kind, random);
    if (me.rank() == 0) {
      check(me.group().statistics().bad_commands == std::size(cases), "they were not counted");
    } else {
      check(me.faults().empty(), "the other rank heard of it");
    }
    contains(refused(ucclEpInternalError, [&] { me.stop(); }), "rank 0: rank 0: a command of its kernels");
  });
}

TEST_CASE("engine: rows that are put twice, or not as announced, are found", "[engine]") {
  run_loose_team({}, [](Rank& me) {
    me.expects_faults();
    me.attach();
    if (me.rank() == 0) {
      me.begin(kind);
      const CommandFields put{
          .epoch = 1, .row = 8, .bytes = 64, .destination = 1, .rows = 4, .operation = CommandOp::put, .kind = 1};
      me.push(1, put);
      me.push(1, put);
      contains(me.wait_for_fault().message, "put before");
      const auto next = [&](const CommandFields& fields, const char* why) {
        const size_t known = me.faults().size();
        me.push(1, fields);
        me.until([&] { return me.faults().size() > known; }, why);
        contains(me.faults().back().message, why);
      };
      CommandFields other = put;
      other.row = 4, other.bytes = 128;
      next(other, "differ in length");
      CommandFields header = put;
      header.operation = CommandOp::header, header.row = 11, header.bytes = 0;
      next(header, "or fewer than were put");
      header.row = 12;
      me.push(1, header);
      next(header, "has a header");
      other = put;
      other.row = 12;
      next(other, "that the header announced");
    }
    me.meet();
  });
}

TEST_CASE("engine: a connection that breaks is reported, and the other peers do not notice", "[engine]") {
  TeamShape shape;
  shape.ranks = 3;
  shape.change = [](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec&) {
    // Numbers are those of the endpoint: rank 1 is the first of rank 0's peers.
    const char* name = rank == 0 ? "faulty:delay=0,withhold=0,repeat=0,break=4,peer=0:loopback" : "loopback";
    config.nics = {{std::shared_ptr<transport::Transport>(transport::make_transport(name)), ""}};
  };
  run_loose_team(shape, [](Rank& me) {
    me.expects_faults();
    me.attach();
    me.begin(kind);
    if (me.rank() == 0) {
      for (uint32_t peer : {1u, 2u}) {
        me.fill(kind, peer);
        for (uint32_t row = 0; row < 24; ++row) {
          me.push(peer, {.epoch = 1,
                         .row = row,
                         .bytes = 64,
                         .destination = static_cast<uint16_t>(peer),
                         .rows = 1,
                         .operation = CommandOp::put,
                         .kind = 1});
        }
      }
      const proxy::Fault fault = me.wait_for_fault();
      contains(fault.message, "rank 0 has lost its connection to rank 1, with chunk ");
      contains(fault.message, "of dispatch 1 in flight: faulty: the connection to peer 0 broke at operation 4");
      check(fault.code == ucclEpRemoteError && fault.peer == 1 && std::string(fault.operation) == "dispatch",
            fault.message);
      // What comes later for the lost peer is dropped.
      me.push(1, {.epoch = 1, .row = 24, .bytes = 0, .destination = 1, .operation = CommandOp::header, .kind = 1});
      me.until([&] { return me.group().statistics().dropped > 0; }, "the command to be dropped");
      check(me.faults().size() == 1, "it was reported twice");
    }
    if (me.rank() == 2) {
      me.until([&] { return me.progress(kind, 0).below == 6; }, "all chunks of rank 0");
    }
    me.meet();
  });
}

TEST_CASE("engine: a peer that dies is reported within a second", "[engine]") {
  TeamShape shape;
  shape.ranks = 3;
  run_loose_team(shape, [](Rank& me) {
    me.expects_faults();
    me.attach();
    std::mt19937_64 random(me.rank());
    me.exchange(kind, random);
    me.meet();
    if (me.rank() == 1) me.end_engine();
    me.meet();
    if (me.rank() == 1) return me.meet();
    me.begin(Kind::combine);
    me.fill(Kind::combine, 1);
    const auto begin = std::chrono::steady_clock::now();
    me.header(Kind::combine, 1);
    const proxy::Fault fault = me.wait_for_fault();
    // Ten times what is promised: the machine may be slow.
    check(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10), "it was reported late");
    contains(fault.message, fmt::format("rank {} has lost its connection to rank 1, with ", me.rank()));
    contains(fault.message, "has closed its endpoint");
    check(fault.code == ucclEpRemoteError && fault.peer == 1, fault.message);
    // The others go on.
    const uint32_t other = 2 - me.rank();
    me.send(Kind::combine, other);
    me.receive(Kind::combine, other);
    me.meet();
  });
}

TEST_CASE("engine: a peer whose NIC falls silent is reported when its time is up", "[engine]") {
  TeamShape shape;
  shape.timeout_ms = 200;
  shape.change = [](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec&) {
    // Nothing that rank 0 sends ever ends.
    if (rank == 0) {
      config.nics = {{std::shared_ptr<transport::Transport>(
                          transport::make_transport("faulty:delay=1000000000,withhold=0,seed=3:loopback")),
                      ""}};
    }
  };
  run_loose_team(shape, [](Rank& me) {
    me.expects_faults();
    me.attach();
    me.begin(kind);
    if (me.rank() == 0) {
      me.send(kind, 1);
      const proxy::Fault fault = me.wait_for_fault();
      check(fault.code == ucclEpTimeout && fault.peer == 1, fault.message);
      contains(fault.message, "rank 0 has lost its connection to rank 1, with ");
      contains(fault.message, "within 200 ms");
    }
    me.meet();
  });
}

TEST_CASE("engine: a peer that accepts nothing is reported when its time is up", "[engine]") {
  TeamShape shape;
  shape.timeout_ms = 200;
  shape.rows_per_chunk = 1;
  shape.credits = {.window = 1, .return_every = 1};
  NicWatch slow;
  slow.held = true;
  shape.change = with_nic(1, slow);
  run_loose_team(shape, [](Rank& me) {
    me.expects_faults();
    me.attach();
    me.begin(kind);
    if (me.rank() == 0) {
      for (uint32_t row = 0; row < 3; ++row) {
        me.push(
            1,
            {.epoch = 1, .row = row, .bytes = 16, .destination = 1, .rows = 1, .operation = CommandOp::put, .kind = 1});
      }
      const proxy::Fault fault = me.wait_for_fault();
      check(fault.code == ucclEpTimeout && fault.peer == 1, fault.message);
      contains(fault.message, "rank 0 waited 200 ms for rank 1 to accept messages; 2 more messages are queued");
    }
    me.meet();
  });
}

}  // namespace
}  // namespace ucclep::test

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

constexpr Kind kind = Kind::dispatch;

// One way, whole.
void send(Rank& me, uint32_t peer) {
  me.fill(kind, peer);
  const uint32_t all = me.rows_to(kind, me.rank(), peer);
  for (uint32_t row = 0; row < all; ++row) me.put(kind, peer, row, 1);
  me.header(kind, peer);
}

std::string refused(ucclEpResult_t code, const std::function<void()>& step) {
  try {
    step();
  } catch (const Error& error) {
    check(error.code() == code, fmt::format("code {}: {}", static_cast<int>(error.code()), error.what()));
    return error.what();
  }
  throw Failure("it was not refused");
}

void contains(const std::string& sentence, const std::string& part) {
  check(sentence.find(part) != std::string::npos, fmt::format("'{}' does not say '{}'", sentence, part));
}

TEST_CASE("engine: a command that cannot be right is told and dropped, and the others are carried out", "[engine]") {
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
      {"no such kind", [](CommandFields& c) { c.kind = 7; }},
      {"no such operation", [](CommandFields& c) { c.operation = static_cast<CommandOp>(200); }},
      {"rows are none", [](CommandFields& c) { c.rows = 0; }},
      {"beyond the places", [](CommandFields& c) { c.row = 23; }},
      {"beyond the places", [](CommandFields& c) { c.kind = 0; }},
      {"not of one chunk", [](CommandFields& c) { c.row = 3; }},
      {"bytes are not", [](CommandFields& c) { c.bytes = 48; }},
      {"bytes are not", [](CommandFields& c) { c.bytes = 2 * 80; }},
      {"has not finished reading", [](CommandFields& c) { c.epoch = 3; }},
      {"its operation is over", [](CommandFields& c) { c.epoch = 0; }},
      {"so many operations cannot", [](CommandFields& c) { c.epoch = 3, c.operation = CommandOp::consumed; }},
      {"more rows than there are places", [](CommandFields& c) { c.row = 25, c.operation = CommandOp::header; }},
      {"longer than headers", [](CommandFields& c) { c.bytes = 48, c.operation = CommandOp::header; }},
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
        contains(fault.sentence, one.why);
        contains(fault.sentence, fmt::format("for rank {}", bad.destination));
        check(fault.code == ucclEpInternalError && fault.peer == bad.destination, fault.sentence);
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
      contains(me.wait_for_fault().sentence, "put before");
      const auto next = [&](const CommandFields& fields, const char* why) {
        const size_t known = me.faults().size();
        me.push(1, fields);
        me.until([&] { return me.faults().size() > known; }, why);
        contains(me.faults().back().sentence, why);
      };
      CommandFields other = put;
      other.row = 4, other.bytes = 128;
      next(other, "as long as others");
      CommandFields header = put;
      header.operation = CommandOp::header, header.row = 11, header.bytes = 0;
      next(header, "or too few");
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

TEST_CASE("engine: a connection that breaks is told, and the other peers hear nothing of it", "[engine]") {
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
      contains(fault.sentence, "rank 0 has lost its connection to rank 1, with chunk ");
      contains(fault.sentence, "of dispatch 1: faulty: the connection to peer 0 broke at operation 4");
      check(fault.code == ucclEpRemoteError && fault.peer == 1 && std::string(fault.operation) == "dispatch",
            fault.sentence);
      // What comes later for the lost peer is dropped.
      me.push(1, {.epoch = 1, .row = 24, .bytes = 0, .destination = 1, .operation = CommandOp::header, .kind = 1});
      me.until([&] { return me.group().statistics().dropped > 0; }, "the command to be dropped");
      check(me.faults().size() == 1, "it was told twice");
    }
    if (me.rank() == 2) {
      me.until([&] { return me.progress(kind, 0).below == 6; }, "all chunks of rank 0");
    }
    me.meet();
  });
}

TEST_CASE("engine: a peer that dies is told within a second", "[engine]") {
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
    check(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10), "it was told late");
    contains(fault.sentence, fmt::format("rank {} has lost its connection to rank 1, with ", me.rank()));
    contains(fault.sentence, "has closed its endpoint");
    check(fault.code == ucclEpRemoteError && fault.peer == 1, fault.sentence);
    // The others go on.
    const uint32_t other = 2 - me.rank();
    me.fill(Kind::combine, other);
    for (uint32_t row = 0; row < me.rows_to(Kind::combine, me.rank(), other); ++row)
      me.put(Kind::combine, other, row, 1);
    me.header(Kind::combine, other);
    me.receive(Kind::combine, other);
    me.meet();
  });
}

TEST_CASE("engine: a peer whose NIC falls silent is told when its time is up", "[engine]") {
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
      send(me, 1);
      const proxy::Fault fault = me.wait_for_fault();
      check(fault.code == ucclEpTimeout && fault.peer == 1, fault.sentence);
      contains(fault.sentence, "rank 0 has lost its connection to rank 1, with ");
      contains(fault.sentence, "within 200 ms");
    }
    me.meet();
  });
}

TEST_CASE("engine: a peer that takes nothing in is told when its time is up", "[engine]") {
  TeamShape shape;
  shape.timeout_ms = 200;
  shape.rows_per_chunk = 1;
  shape.credits = {.window = 1, .return_every = 1};
  NicWatch slow;
  slow.held = true;
  shape.change = [&](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec&) {
    if (rank == 1) config.nics = {{std::make_shared<WatchedTransport>(slow), ""}};
  };
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
      check(fault.code == ucclEpTimeout && fault.peer == 1, fault.sentence);
      contains(fault.sentence, "rank 0 waited 200 ms for rank 1 to take in what it was sent; 2 messages more wait");
    }
    me.meet();
  });
}

TEST_CASE("engine: whatever fails while connecting is the same error on all ranks", "[engine]") {
  const auto all_say = [](const TeamShape& shape, ucclEpResult_t code, const std::string& sentence) {
    run_loose_team(shape, [&](Rank& me) {
      check(refused(code, [&] { me.attach(); }) == sentence, "another sentence");
      // A failure leaves nothing behind.
      me.meet();
    });
  };
  TeamShape shape;
  shape.ranks = 3;
  shape.change = [](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec&) {
    if (rank == 1) config.nics[0].name = "mlx5_7";
  };
  all_say(shape, ucclEpInvalidArgument, "rank 1: loopback has no NICs, it was given mlx5_7");
  shape.change = [](uint32_t rank, proxy::EngineConfig&, proxy::GroupSpec& spec) {
    if (rank == 2) spec.lines[0] = {0, 0};
  };
  all_say(shape, ucclEpInvalidArgument, "rank 0: rank 2 has 2 connections to rank 0, which has 1 to it");
  shape.change = [](uint32_t rank, proxy::EngineConfig&, proxy::GroupSpec& spec) {
    if (rank == 2) spec.windows[0].bytes = 1000;
  };
  run_loose_team(shape, [&](Rank& me) {
    contains(refused(ucclEpInvalidArgument, [&] { me.attach(); }),
             "rank 2: dispatch: the rows to send of 3 ranks and 2");
  });
  shape.change = [](uint32_t, proxy::EngineConfig&, proxy::GroupSpec& spec) {
    spec.windows[0].kind = UCCLEP_MEMORY_CUDA;
  };
  all_say(shape, ucclEpNotSupported, "rank 0: proxies for windows of memory other than the host's");
  NicWatch watch;
  watch.limit = [](transport::Traits& traits) { traits.max_message = 255; };
  shape.change = [&](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec&) {
    if (rank == 0) config.nics = {{std::make_shared<WatchedTransport>(watch), "a"}};
  };
  all_say(shape, ucclEpInvalidArgument, "rank 0: loopback has no NICs, it was given a");
  shape.change = [&](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec&) {
    if (rank == 0) config.nics = {{std::make_shared<WatchedTransport>(watch), ""}};
  };
  all_say(shape, ucclEpNotSupported, "rank 0: messages of 256 bytes; NIC  takes 255");
}

TEST_CASE("engine: stopped while busy it carries out what has been pushed", "[engine]") {
  TeamShape shape;
  shape.ranks = 3;
  shape.rows_per_chunk = 1;
  shape.credits = {.window = 4, .return_every = 2};
  run_loose_team(shape, [](Rank& me) {
    me.attach();
    for (const Kind one : {Kind::dispatch, Kind::combine}) {
      me.begin(one);
      for (uint32_t peer = 0; peer < me.ranks(); ++peer) {
        if (peer == me.rank()) continue;
        me.fill(one, peer);
        for (uint32_t row = 0; row < me.rows_to(one, me.rank(), peer); ++row) me.put(one, peer, row, 1);
        me.header(one, peer);
      }
    }
    me.stop();
    for (const Kind one : {Kind::dispatch, Kind::combine}) {
      for (uint32_t peer = 0; peer < me.ranks(); ++peer) {
        if (peer == me.rank()) continue;
        check(me.progress(one, peer).complete, "something was not sent");
        me.receive(one, peer);
      }
    }
    me.end();
    check(me.faults().empty(), "a clean end is no fault");
  });
}

TEST_CASE("engine: a stop that cannot end well says why on all ranks, in time", "[engine]") {
  TeamShape shape;
  shape.rows_per_chunk = 4;
  shape.credits = {.window = 1, .return_every = 1};
  NicWatch slow;
  shape.change = [&](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec&) {
    if (rank == 1) config.nics = {{std::make_shared<WatchedTransport>(slow), ""}};
  };
  slow.held = true;
  run_loose_team(shape, [](Rank& me) {
    me.attach();
    if (me.rank() == 0) {
      for (uint32_t row = 0; row < 12; row += 4) {
        me.push(
            1,
            {.epoch = 1, .row = row, .bytes = 64, .destination = 1, .rows = 4, .operation = CommandOp::put, .kind = 1});
      }
    }
    contains(refused(ucclEpTimeout, [&] { me.stop(300); }),
             "rank 0: the proxies did not carry out all commands within 300 ms");
  });
  slow.held = false;
  run_loose_team(shape, [](Rank& me) {
    me.expects_faults();
    me.attach();
    if (me.rank() == 0) {
      me.push(1,
              {.epoch = 1, .row = 0, .bytes = 16, .destination = 1, .rows = 1, .operation = CommandOp::put, .kind = 1});
    }
    contains(refused(ucclEpInternalError, [&] { me.stop(); }),
             "rank 0: rank 0: 1 rows were put that belong to chunks which never became whole");
  });
}

TEST_CASE("engine: ended at once while busy it leaves the others in peace", "[engine]") {
  TeamShape shape;
  shape.threads = 2;
  for (int round = 0; round < 5; ++round) {
    run_loose_team(shape, [](Rank& me) {
      me.expects_faults();
      me.attach();
      me.begin(kind);
      send(me, 1 - me.rank());
      me.end_engine();
      me.meet();
    });
  }
}

TEST_CASE("engine: what a group has under way when it is ended is in no other group's way", "[engine]") {
  TeamShape shape;
  shape.rows_per_chunk = 1;
  NicWatch watch;
  watch.limit = [](transport::Traits& traits) { traits.max_bytes = 100; };
  shape.change = [&](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec&) {
    if (rank == 0) config.nics = {{std::make_shared<WatchedTransport>(watch), ""}};
  };
  run_loose_team(shape, [&](Rank& me) {
    me.expects_faults();
    Rank sibling(me);
    me.attach();
    if (me.rank() == 0) {
      watch.held = true;
      me.begin(kind);
      send(me, 1);
      me.until([&] { return me.group().statistics().nic_stalls > 0; }, "the NIC to be full");
    }
    me.meet();
    me.end();
    watch.held = false;
    sibling.attach();
    std::mt19937_64 random(me.rank());
    for (int i = 0; i < 3; ++i) sibling.exchange(kind, random);
    sibling.stop();
  });
}

}  // namespace
}  // namespace ucclep::test

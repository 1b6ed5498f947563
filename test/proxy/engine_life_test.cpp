// SPDX-License-Identifier: Apache-2.0
// How a group of an engine begins and ends, well and not well.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "engine_team.hpp"
#include "watched_transport.hpp"

namespace ucclep::test {
namespace {

TEST_CASE("engine: whatever fails while connecting is the same error on all ranks", "[engine]") {
  const auto all_report = [](const TeamShape& shape, ucclEpResult_t code, const std::string& message) {
    run_loose_team(shape, [&](Rank& me) {
      check(refused(code, [&] { me.attach(); }) == message, "another message");
      // A failure leaves nothing behind.
      me.meet();
    });
  };
  TeamShape shape;
  shape.ranks = 3;
  shape.change = [](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec&) {
    if (rank == 1) config.nics[0].name = "mlx5_7";
  };
  all_report(shape, ucclEpInvalidArgument, "rank 1: loopback has no NICs, but the NIC mlx5_7 was given: name none");
  shape.change = [](uint32_t rank, proxy::EngineConfig&, proxy::GroupSpec& spec) {
    if (rank == 2) spec.connections[0] = {0, 0};
  };
  all_report(shape, ucclEpInvalidArgument,
             "rank 0: rank 2 has 2 connections to rank 0, but that rank has 1 to it: all ranks must use the same NIC "
             "settings");
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
  all_report(shape, ucclEpNotSupported, "rank 0: loopback: cannot register memory that is not host memory");
  NicWatch watch;
  watch.limit = [](transport::Traits& traits) { traits.max_message = 255; };
  shape.change = [&](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec&) {
    if (rank == 0) config.nics = {{std::make_shared<WatchedTransport>(watch), "a"}};
  };
  all_report(shape, ucclEpInvalidArgument, "rank 0: loopback has no NICs, but the NIC a was given: name none");
  shape.change = with_nic(0, watch);
  all_report(shape, ucclEpNotSupported,
             "rank 0: the group sends messages of 256 bytes, but NIC \"\" accepts at most 255");
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
        me.send(one, peer);
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
  shape.change = with_nic(1, slow);
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
             "rank 0: the proxy threads did not execute all commands within 300 ms");
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
             "rank 0: rank 0: 1 rows are in chunks that were never completed");
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
      me.send(kind, 1 - me.rank());
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
  shape.change = with_nic(0, watch);
  run_loose_team(shape, [&](Rank& me) {
    me.expects_faults();
    Rank sibling(me);
    me.attach();
    if (me.rank() == 0) {
      watch.held = true;
      me.begin(kind);
      me.send(kind, 1);
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

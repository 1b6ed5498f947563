// SPDX-License-Identifier: Apache-2.0
// What an engine sends, and how much of it at once.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "engine_team.hpp"
#include "support/test_env.hpp"
#include "watched_transport.hpp"

namespace ucclep::test {
namespace {

TEST_CASE("engine: rows that are put one by one leave as one write for each chunk", "[engine]") {
  const TeamShape shape;
  std::vector<uint64_t> rows(2), chunks(2);
  const uint32_t operations = 20;
  const TeamResult result = run_team(shape, [&](Rank& me) {
    const uint32_t peer = 1 - me.rank();
    for (uint32_t i = 0; i < operations; ++i) {
      me.begin(kind);
      me.send(kind, peer);
      const uint32_t all = me.rows_to(kind, me.rank(), peer);
      rows[me.rank()] += all;
      chunks[me.rank()] += (all + shape.rows_per_chunk - 1) / shape.rows_per_chunk;
      me.receive(kind, peer);
      me.consume(kind);
    }
  });
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const proxy::GroupStatistics& group = result.groups[rank];
    CHECK(group.puts == rows[rank]);
    CHECK(group.chunks == chunks[rank]);
    CHECK(group.chunks < group.puts / 2);
    CHECK(group.headers == operations);
    CHECK(group.commands == rows[rank] + 2 * operations);
    CHECK(group.doorbells <= group.chunks + group.headers + group.words);
    CHECK(group.arrivals >= result.groups[1 - rank].chunks + operations);
    CHECK(group.bad_commands + group.dropped + group.repeated + group.stale + group.foreign == 0);
  }
}

TEST_CASE("engine: what waits goes in chains, a doorbell for each", "[engine]") {
  TeamShape shape;
  shape.rows = 400;
  shape.rows_per_chunk = 1;
  shape.row_bytes = 16;
  shape.credits = {.window = 512, .return_every = 128};
  NicWatch watch;
  shape.change = [&](uint32_t, proxy::EngineConfig& config, proxy::GroupSpec&) {
    config.nics = {{std::make_shared<WatchedTransport>(watch), ""}};
  };
  const TeamResult result = run_team(shape, [&](Rank& me) {
    std::mt19937_64 random(me.rank());
    for (uint32_t i = 0; i < 10; ++i) me.exchange(kind, random);
  });
  uint64_t messages = 0, doorbells = 0;
  for (const auto& group : result.groups) {
    messages += group.chunks + group.headers + group.words;
    doorbells += group.doorbells;
  }
  CHECK(watch.messages == messages);
  CHECK(watch.posts >= doorbells);
  CHECK(doorbells < messages);
}

TEST_CASE("engine: a receiver that is slow is sent a window of messages, and loses none", "[engine]") {
  TeamShape shape;
  shape.rows = 200;
  shape.rows_per_chunk = 1;
  shape.credits = {.window = 8, .return_every = 2};
  NicWatch slow;
  slow.held = true;
  shape.change = with_nic(1, slow);
  const TeamResult result = run_team(shape, [&](Rank& me) {
    me.begin(kind);
    me.send(kind, 1 - me.rank());
    if (me.rank() == 0) {
      const auto messages = [&] { return me.group().statistics().chunks + me.group().statistics().headers; };
      me.until([&] { return me.group().statistics().credit_stalls > 0; }, "the window to be full");
      check(messages() == 8, fmt::format("{} messages to a peer that accepts none", messages()));
      slow.held = false;
    }
    me.receive(kind, 1 - me.rank());
    me.consume(kind);
  });
  CHECK(result.groups[0].max_in_flight == 8);
  CHECK(result.groups[0].chunks > 8);
}

TEST_CASE("engine: threads that share a NIC share what it bears", "[engine]") {
  TeamShape shape;
  shape.ranks = 4;
  shape.threads = 2;
  shape.rows_per_chunk = 2;
  constexpr int64_t max = 3 * 2 * 64;
  std::vector<NicWatch> watches(4);
  for (NicWatch& watch : watches) watch.limit = [](transport::Traits& traits) { traits.max_bytes = max; };
  shape.change = [&](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec&) {
    config.nics = {{std::make_shared<WatchedTransport>(watches[rank]), ""}};
  };
  const TeamResult result = run_team(shape, [&](Rank& me) {
    std::mt19937_64 random(me.rank());
    for (uint32_t i = 0; i < (reduced() ? 5 : 30); ++i) me.exchange(kind, random);
  });
  uint32_t endpoints = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    INFO("rank " << rank);
    CHECK(watches[rank].max_bytes <= max);
    CHECK(watches[rank].bytes == 0);
    CHECK(result.groups[rank].nic_stalls > 0);
    endpoints += watches[rank].endpoints;
  }
  CHECK(endpoints > 4);  // two threads, each with one of its own
}

TEST_CASE("engine: chunks of a destination take all NICs in turn", "[engine]") {
  TeamShape shape;
  shape.connections = 2;
  shape.rows_per_chunk = 1;
  NicWatch watches[2];
  shape.change = [&](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec& spec) {
    config.nics = {{std::make_shared<WatchedTransport>(watches[0]), ""},
                   {std::make_shared<WatchedTransport>(watches[1]), ""}};
    spec.connections[1 - rank] = {0, 1};
  };
  const TeamResult result = run_team(shape, [&](Rank& me) {
    std::mt19937_64 random(me.rank());
    for (uint32_t i = 0; i < 10; ++i) me.exchange(kind, random);
  });
  const uint64_t chunks = result.groups[0].chunks + result.groups[1].chunks;
  CHECK(watches[1].messages >= chunks / 3);
  CHECK(watches[1].messages <= chunks / 2);
  CHECK(watches[0].messages > chunks / 3);
}

TEST_CASE("engine: the numbers before the first operation are sent to nobody", "[engine]") {
  TeamShape shape;
  shape.first = {0, 1'000'003, 4095};
  const TeamResult quiet = run_team(shape, [](Rank&) {});
  CHECK(quiet.groups[0].words == 0);
  CHECK(quiet.groups[0].arrivals == 0);
  // The operation before the first is over, for rows and for readers.
  run_loose_team(shape, [](Rank& me) {
    me.expects_faults();
    me.attach();
    const auto wrong = [&](CommandOp operation, uint32_t epoch, const char* why) {
      const size_t known = me.faults().size();
      me.push(1 - me.rank(), {.epoch = epoch,
                              .destination = static_cast<uint16_t>(1 - me.rank()),
                              .operation = operation,
                              .kind = static_cast<uint8_t>(kind)});
      me.until([&] { return me.faults().size() > known; }, why);
      contains(me.faults().back().message, why);
    };
    wrong(CommandOp::header, 1'000'003, "its operation has ended");
    wrong(CommandOp::header, 1'000'006, "slot still in use");
    wrong(CommandOp::consumed, 1'000'006, "it reports more operations than are in flight");
    me.meet();
    std::mt19937_64 random(me.rank());
    for (int i = 0; i < 3; ++i) me.exchange(kind, random);
    me.meet();
  });
}

TEST_CASE("engine: commands go on through many laps of a small ring", "[engine]") {
  TeamShape shape;
  shape.capacity_log2 = 5;
  shape.threads = 2;
  shape.bulk_log2 = 0;  // with two threads one of them owns nothing
  const TeamResult result = run_team(shape, [&](Rank& me) {
    std::mt19937_64 random(me.rank());
    for (uint32_t i = 0; i < (reduced() ? 40 : 200); ++i) me.exchange(kind, random);
  });
  CHECK(result.groups[0].commands > 32 * 8);
}

TEST_CASE("engine: where a NIC has few receives, all ranks send less at once", "[engine]") {
  TeamShape shape;
  shape.ranks = 3;
  shape.credits = {.window = 64, .return_every = 16};
  NicWatch watch;
  watch.limit = [](transport::Traits& traits) { traits.receives = 2 * 40; };
  shape.change = with_nic(2, watch);
  run_team(shape, [&](Rank& me) {
    const proxy::CreditShape credits = me.group().credits();
    check(credits.window < 40 && credits.entries() <= 40 && credits.is_sound(),
          fmt::format("a window of {}, {} entries", credits.window, credits.entries()));
    std::mt19937_64 random(me.rank());
    for (uint32_t i = 0; i < 10; ++i) me.exchange(kind, random);
  });
}

TEST_CASE("engine: two groups have the same ranks and threads, and nothing else in common", "[engine]") {
  TeamShape shape;
  shape.threads = 2;
  shape.ranks = 3;
  run_team(shape, [&](Rank& me) {
    Rank sibling(me);
    sibling.attach();
    std::mt19937_64 random(me.rank());
    for (uint32_t i = 0; i < 10; ++i) {
      me.exchange(kind, random);
      sibling.exchange(i % 3 == 0 ? Kind::dispatch : Kind::combine, random);
    }
    sibling.stop();
    sibling.end();
    for (uint32_t i = 0; i < 10; ++i) me.exchange(kind, random);
  });
}

}  // namespace
}  // namespace ucclep::test

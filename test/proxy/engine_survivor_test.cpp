// SPDX-License-Identifier: Apache-2.0
// Groups of which some ranks are gone, and groups that follow others.
#include <fmt/format.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "engine_team.hpp"

namespace ucclep::test {
namespace {

void exchange_some(Rank& me, uint64_t seed) {
  std::mt19937_64 random(seed * 64 + me.rank());
  for (uint32_t i = 0; i < 6; ++i) me.exchange(i % 3 == 0 ? Kind::combine : kind, random);
}

TEST_CASE("engine: a rank that is gone agrees with all that the others say", "[engine][survivor]") {
  const std::byte mine[] = {std::byte{1}, std::byte{2}};
  std::vector<std::vector<std::byte>> others(3);
  const Error trouble(ucclEpOutOfMemory, "no memory");
  const auto agree = [&](const Error* error) {
    return proxy::agree(
        [&](std::span<const std::byte> data) {
          CHECK_FALSE(data.empty());
          others[1].assign(data.begin(), data.end());
          return others;
        },
        1, error, mine);
  };
  const auto brought = agree(nullptr);
  REQUIRE(brought.size() == 3);
  CHECK((brought[0].empty() && brought[1].size() == 2 && brought[2].empty()));
  CHECK_THAT(refused(ucclEpOutOfMemory, [&] { agree(&trouble); }), Catch::Contains("rank 1: no memory"));
}

TEST_CASE("engine: ranks connect without one that is gone", "[engine][survivor]") {
  TeamShape shape;
  shape.ranks = 3;
  shape.threads = 2;
  for (uint32_t gone = 0; gone < 3; ++gone) {
    INFO("rank " << gone << " is gone");
    run_loose_team(shape, [&](Rank& me) {
      if (me.rank() == gone) return me.leave();
      me.renew({(gone + 1) % 3, (gone + 2) % 3}, {});
      me.attach();
      exchange_some(me, gone);
      me.stop();
    });
  }
}

TEST_CASE("engine: a rank that has connections and says nothing of them is an error", "[engine][survivor]") {
  TeamShape shape;
  shape.ranks = 3;
  run_loose_team(shape, [](Rank& me) {
    if (me.rank() == 2) return me.leave();
    contains(refused(ucclEpRemoteError, [&] { me.attach(); }),
             "rank 0: the connection data of rank 2 is 4 bytes too short");
  });
}

// Rank 2 stands still while the others end the group, and wakes when they have one without it. Then all have one again.
void survive(const std::string& transport) {
  enum Stage : int { begun, left, renewed, woken, asked_back, back };
  std::atomic<int> stage = begun;
  TeamShape shape;
  shape.ranks = 3;
  shape.transport = transport;
  run_loose_team(shape, [&](Rank& me) {
    const auto reach = [&](Stage next) {
      if (me.rank() == (next == renewed || next == asked_back ? 0u : 2u)) stage = next;
      me.until([&] { return stage >= next; }, fmt::format("stage {}", static_cast<int>(next)));
    };
    me.expects_faults();
    me.attach();
    exchange_some(me, 1);
    me.meet();
    me.begin(kind);
    if (me.rank() == 2) {
      me.leave();
      reach(left);
      reach(renewed);
      for (const uint32_t peer : {0u, 1u}) me.send(kind, peer);
      me.until([&] { return me.faults().size() == 2; }, "both connections to be lost");
      reach(woken);
      reach(asked_back);
      me.come_back();
      reach(back);
    } else {
      reach(left);
      for (const uint32_t peer : {1 - me.rank(), 2u}) me.send(kind, peer);
      me.end();
      me.meet();
      me.renew({0, 1}, {0, 1'000'003, 4094});
      me.attach();
      exchange_some(me, 2);
      me.meet();
      reach(renewed);
      reach(woken);
      exchange_some(me, 3);
      const proxy::GroupStatistics counts = me.group().statistics();
      check(counts.stale + counts.foreign == 0, "something came from the group before");
      check(me.progress(kind, 2).below == 0 && !me.progress(kind, 2).announced, "rows came from rank 2");
      me.meet();
      reach(asked_back);
      reach(back);
    }
    me.end();
    me.meet();
    me.renew({0, 1, 2}, {0, 2'000'005, 1'000'003});
    me.attach();
    exchange_some(me, 4);
    me.stop();
  });
}

TEST_CASE("engine: a group ends at once, and another follows it over the same windows", "[engine][survivor]") {
  survive("loopback");
  for (int seed = 1; seed <= 5; ++seed) survive(fmt::format("faulty:seed={},delay=200,repeat=0:loopback", seed));
}

TEST_CASE("engine: who is about to end minds no peer that ends first", "[engine][survivor]") {
  for (const bool quiescing : {true, false}) {
    TeamShape shape;
    shape.transport = "faulty:seed=3,delay=20000,repeat=0:loopback";
    run_loose_team(shape, [&](Rank& me) {
      me.expects_faults();
      me.attach();
      me.begin(kind);
      if (me.rank() == 1) {
        me.send(kind, 0);
        me.until([&] { return me.group().statistics().chunks > 0; }, "a chunk to leave");
        if (quiescing) me.group().quiesce();
      }
      me.meet();
      if (me.rank() == 0) me.end_engine();
      if (me.rank() == 1 && !quiescing) me.wait_for_fault();
      if (me.rank() == 1 && quiescing) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      check(me.faults().empty() == (quiescing || me.rank() == 0), "faults");
      me.meet();
    });
  }
}

}  // namespace
}  // namespace ucclep::test

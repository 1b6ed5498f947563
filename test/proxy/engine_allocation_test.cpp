// SPDX-License-Identifier: Apache-2.0
// A proxy thread allocates nothing while it works. Every malloc of the process goes through here; a thread that polls a
// watched endpoint is a proxy thread, and its own are counted while asked to.
#include <fmt/format.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "engine_team.hpp"
#include "watched_transport.hpp"

namespace {
thread_local bool is_proxy = false;
std::atomic<bool> counting{false};
std::atomic<unsigned> counted{0};
}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* malloc(size_t bytes) {
  if (is_proxy && counting.load(std::memory_order_relaxed)) ++counted;
  return __libc_malloc(bytes);
}
}

namespace ucclep::test {
namespace {

TEST_CASE("engine: proxy threads allocate nothing while they work", "[engine]") {
  TeamShape shape;
  shape.threads = 2;
  shape.ranks = 3;
  shape.rows_per_chunk = 1;
  shape.credits = {.window = 6, .return_every = 2};
  NicWatch watch;
  watch.in_poll = [] { is_proxy = true; };
  watch.limit = [](transport::Traits& traits) { traits.max_bytes = 1000; };
  shape.change = [&](uint32_t, proxy::EngineConfig& config, proxy::GroupSpec&) {
    config.nics = {{std::make_shared<WatchedTransport>(watch), ""}};
  };
  run_team(shape, [&](Rank& me) {
    std::mt19937_64 random(me.rank());
    // The first operations may set up what all later ones use.
    for (uint32_t i = 0; i < 3; ++i) me.exchange(Kind::dispatch, random);
    me.meet();
    counting = true;
    for (uint32_t i = 0; i < 30; ++i) me.exchange(i % 2 == 0 ? Kind::dispatch : Kind::combine, random);
    me.meet();
    for (uint32_t peer = 0; peer < me.ranks(); ++peer) {
      if (peer == me.rank()) continue;
      me.detach(peer);
      me.until([&] { return me.detached(peer); }, "the detaching");
    }
    me.meet();
    counting = false;
    me.meet();
    const proxy::GroupStatistics group = me.group().statistics();
    check(group.credit_stalls > 0 && group.chunks > 300, "nothing of interest was counted");
    check(counted == 0, fmt::format("{} allocations", counted.load()));
  });
}

}  // namespace
}  // namespace ucclep::test

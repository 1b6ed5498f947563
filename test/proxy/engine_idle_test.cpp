// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "engine_team.hpp"

namespace ucclep::test {
namespace {

double cores_used(const std::vector<proxy::ThreadStatistics>& before, const std::vector<proxy::ThreadStatistics>& after,
                  std::chrono::nanoseconds time) {
  uint64_t used = 0;
  for (size_t i = 0; i < before.size(); ++i) used += after[i].cpu_ns - before[i].cpu_ns;
  return static_cast<double>(used) / static_cast<double>(time.count());
}

// It is below 2 % of a core for each thread; the bound leaves room for slow machines.
TEST_CASE("engine: threads without work cost next to nothing, and wake for what comes", "[engine][slow]") {
  TeamShape shape;
  shape.threads = 2;
  run_team(shape, [](Rank& me) {
    std::mt19937_64 random(me.rank());
    me.exchange(Kind::dispatch, random);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const auto before = me.engine().statistics();
    const auto begin = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const auto after = me.engine().statistics();
    const double used = cores_used(before, after, std::chrono::steady_clock::now() - begin);
    check(used < 0.1 * 2, fmt::format("{} % of a core", used * 100));
    check(after[0].sleeps > before[0].sleeps && after[0].rounds > before[0].rounds, "it does not sleep");
    me.exchange(Kind::dispatch, random);
  });
}

TEST_CASE("engine: a core that is not there is no error", "[engine]") {
  TeamShape shape;
  shape.change = [](uint32_t rank, proxy::EngineConfig& config, proxy::GroupSpec&) {
    config.cpus = {rank == 0 ? 0 : 100'000};
  };
  run_team(shape, [](Rank& me) {
    std::mt19937_64 random(me.rank());
    me.exchange(Kind::dispatch, random);
  });
}

}  // namespace
}  // namespace ucclep::test

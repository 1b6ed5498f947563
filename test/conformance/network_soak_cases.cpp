// SPDX-License-Identifier: Apache-2.0
// Many operations between ranks that drift apart, and many ranks.
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "conformance/nodes.hpp"
#include "conformance/turns.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// Operations of all layouts in a row, again and again. Who is late, and how late, each rank draws for itself: only the
// operations keep the ranks together, so that they drift apart as far as slots and credits allow.
TEST_CASE("network soak: many operations between ranks that drift apart", "[soak]") {
  const unsigned rounds = iterations(reduced() ? 5 : 20);
  run_ranks(4, {.seconds = 60 + rounds / 2.0}, [&](Rank& rank) {
    const Scenario scenario{.ranks = 4,
                            .experts = 16,
                            .top_k = 3,
                            .max_tokens = 12,
                            .hidden = 136,
                            .fixed_capacity = 150,
                            .rule = uniform(10),
                            .nodes = {2, 2}};
    Comm comm(rank, in_nodes_of(rank, 2, "faulty:seed=11:loopback"));
    ucclEpGroupConfig_t config = group_config({scenario});
    config.max_token_bytes = 1 << 16;  // as long as a chunk: each row is a message of its own
    config.num_sms = 2;                // of four: less for two cores to do
    const Group group = make_group(comm, config);
    Stream stream(comm);
    std::deque<Turn> turns;
    for (const Scenario& in_layout : in_all_layouts(scenario)) turns.emplace_back(rank, comm, group, in_layout);
    for (unsigned round = 0; round < rounds; ++round) {
      const uint64_t draw = mix(17, round, static_cast<uint64_t>(rank.rank));
      if (draw % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw / 4 % 3000));
      take(turns, round + 1, stream);
    }
    no_async_error(comm);
    require(stats_of(comm).reorder_depth_max > 0 || rounds < 50, "nothing came before its turn");
  });
}

// A small exchange between all of them; in the longer form slots are used again.
void run_many(const Nodes& nodes, Layout layout) {
  const int ranks = ranks_of(nodes);
  const uint64_t rounds = iterations(1) > 1 ? 3 : 1;
  run_ranks(ranks, {.seconds = 240}, [&](Rank& rank) {
    const Scenario scenario{
        .layout = layout, .ranks = ranks, .experts = ranks, .top_k = 4, .max_tokens = 2, .hidden = 16, .nodes = nodes};
    ucclEpCommConfig_t comm_settings = in_nodes(rank, nodes);
    comm_settings.timeout_ms = 200'000;
    Comm comm(rank, comm_settings);
    ucclEpGroupConfig_t config = group_config({scenario});
    config.num_sms = 1;
    const Group group = make_group(comm, config);
    const Handle handle = make_handle(group, handle_config(scenario));
    Stream stream(comm);
    for (uint64_t round = 1; round <= rounds; ++round) round_trip(rank, comm, handle, stream, scenario, round);
    no_async_error(comm);
  });
}

TEST_CASE("network scale: 128 ranks in 16 nodes", "[soak][slow]") {
  run_many(Nodes(16, 8), Layout::ll_expert_major);
}
TEST_CASE("network scale: 66 ranks in 22 nodes", "[soak][slow]") {
  run_many(Nodes(22, 3), Layout::ht_flat);
}

// Peak resident memory of this process, of which all ranks are threads. Memory that several ranks map counts as often.
int64_t peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (int64_t kib = 0; word == "VmHWM:" && status >> kib) return kib;
  }
  throw Failure("/proc/self/status has no VmHWM");
}

TEST_CASE("network scale: 256 ranks in 32 nodes, within 2 GiB", "[scale][slow]") {
  const Layout layout = GENERATE(Layout::ht_flat, Layout::ll_expert_major);
  run_many(Nodes(32, 8), layout);
  const int64_t peak = peak_kib();
  WARN("peak resident memory: " << peak / 1024 << " MiB");
  CHECK(peak <= 2 << 20);
}

}  // namespace
}  // namespace ucclep::test

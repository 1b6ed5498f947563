// SPDX-License-Identifier: Apache-2.0
// A call ends within its time limit, however many ranks it has to meet for however many objects, and says who is
// missing.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "conformance/exchange.hpp"

namespace ucclep::test {
namespace {

using LimitClock = std::chrono::steady_clock;

constexpr int limit_ms = 3000, stopping_ranks = 3;
// What the library promises is the limit and one second. The rest is for a machine that is busy.
constexpr double longest_s = limit_ms / 1000.0 + 1 + 1.5;

void in_time(const char* call, const std::function<void()>& body) {
  const auto begin = LimitClock::now();
  body();
  const double seconds = std::chrono::duration<double>(LimitClock::now() - begin).count();
  require(seconds < longest_s, std::string(call) + " took " + std::to_string(seconds) + " s");
}

Scenario small_of(Layout layout) {
  return {.layout = layout, .ranks = stopping_ranks, .experts = 2 * stopping_ranks, .max_tokens = 6, .hidden = 32};
}

ucclEpCommConfig_t limited(const Rank& rank, bool networked) {
  ucclEpCommConfig_t config = comm_config(rank);
  config.timeout_ms = limit_ms;
  if (networked) {
    config.ranks_per_node = 1;
    config.transport = "loopback";
  }
  return config;
}

// All ranks prepare. Then one stops, and the others run body; when they have, it dies.
void while_one_is_stopped(int stopped_rank, bool networked, const std::function<void(Rank&, ucclEpComm_t)>& prepare,
                          const std::function<void(Rank&, ucclEpComm_t)>& body) {
  run_ranks(stopping_ranks, {.processes = true, .killed = {stopped_rank}}, [&](Rank& rank) {
    const ucclEpCommConfig_t config = limited(rank, networked);
    ucclEpComm_t comm = nullptr;
    ok(ucclEpCommInitRank(&comm, stopping_ranks, rank.ids[0], rank.rank, &config), "ucclEpCommInitRank");
    prepare(rank, comm);
    rank.board.add(0);
    rank.board.wait(0, stopping_ranks);
    if (rank.rank == stopped_rank) kill(getpid(), SIGSTOP);
    const pid_t stopped = await_stopped();
    body(rank, comm);
    rank.board.add(1);
    rank.board.wait(1, stopping_ranks - 1);
    if (rank.rank == 1) kill(stopped, SIGKILL);
  });
}

std::vector<ucclEpGroup_t> make_groups(ucclEpComm_t comm, int count) {
  const ucclEpGroupConfig_t config = group_config({small_of(Layout::ll_expert_major)});
  std::vector<ucclEpGroup_t> groups(static_cast<size_t>(count));
  for (ucclEpGroup_t& group : groups) ok(ucclEpGroupCreate(&group, comm, &config), "ucclEpGroupCreate");
  return groups;
}

TEST_CASE("ucclEpCommDestroy with six groups waits once for a rank that has stopped", "[process][killed]") {
  for (const int stopped : {2, 0}) {  // rank 0 is where all meet
    for (const bool networked : {false, true}) {
      while_one_is_stopped(
          stopped, networked, [](Rank&, ucclEpComm_t comm) { make_groups(comm, 6); },
          [](Rank&, ucclEpComm_t comm) {
            in_time("ucclEpCommDestroy", [&] { ok(ucclEpCommDestroy(comm), "ucclEpCommDestroy"); });
          });
    }
  }
}

TEST_CASE("ucclEpGroupDestroy waits once for a rank that has stopped", "[process][killed]") {
  ucclEpGroup_t group = nullptr;
  for (const bool networked : {false, true}) {
    while_one_is_stopped(
        2, networked, [&](Rank&, ucclEpComm_t comm) { group = make_groups(comm, 1).front(); },
        [&](Rank&, ucclEpComm_t) {
          in_time("ucclEpGroupDestroy", [&] { ok(ucclEpGroupDestroy(group), "ucclEpGroupDestroy"); });
        });
  }
}

TEST_CASE("collective calls name the rank that has stopped within the time limit", "[process][killed]") {
  void* memory = nullptr;
  ucclEpWindow_t window = nullptr;
  while_one_is_stopped(
      2, true,
      [&](Rank&, ucclEpComm_t comm) {
        ok(ucclEpMemAlloc(comm, &memory, 8192), "ucclEpMemAlloc");
        ok(ucclEpWindowRegister(comm, memory, 4096, &window), "ucclEpWindowRegister");
      },
      [&](Rank&, ucclEpComm_t comm) {
        in_time("ucclEpGroupCreate", [&] {
          const ucclEpGroupConfig_t config = group_config({small_of(Layout::ht_flat)});
          ucclEpGroup_t group = nullptr;
          refused(ucclEpGroupCreate(&group, comm, &config), ucclEpTimeout, "ucclEpGroupCreate", {"rank 2"});
        });
        in_time("ucclEpWindowRegister", [&] {
          ucclEpWindow_t second = nullptr;
          refused(ucclEpWindowRegister(comm, memory, 4096, &second), ucclEpTimeout, "ucclEpWindowRegister", {"rank 2"});
        });
        in_time("ucclEpWindowDeregister", [&] { ok(ucclEpWindowDeregister(comm, window), "ucclEpWindowDeregister"); });
        in_time("ucclEpCommDestroy", [&] { ok(ucclEpCommDestroy(comm), "ucclEpCommDestroy"); });
      });
}

TEST_CASE("ucclEpHandleWaitCounts names the rank that is missing, within the time limit", "[process]") {
  for (const bool masks : {false, true}) {
    run_ranks(2, [&](Rank& rank) {
      Scenario scenario = small_of(Layout::ht_flat);
      scenario.ranks = 2;
      Comm comm(rank);
      ucclEpGroupConfig_t config = group_config({scenario});
      config.timeout_ms = limit_ms;
      config.enable_mask = masks ? 1 : 0;
      Group group = make_group(comm, config);
      Handle handle = make_handle(group, handle_config(scenario));
      if (rank.rank == 0) {
        Exchange exchange(rank, comm, scenario);
        exchange.update(handle, nullptr);
        int64_t total = 0;
        in_time("ucclEpHandleWaitCounts", [&] {
          const ucclEpResult_t result = ucclEpHandleWaitCounts(handle, &total, nullptr);
          if (!masks) refused(result, ucclEpTimeout, "ucclEpHandleWaitCounts", {"rank 1"});
          if (masks) ok(result, "ucclEpHandleWaitCounts");  // the other one is masked
        });
        ucclEpStreamSynchronize(comm, nullptr);
      }
      rank.board.add(0);
      rank.board.wait(0, 2);
    });
  }
}

}  // namespace
}  // namespace ucclep::test

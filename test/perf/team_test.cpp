// SPDX-License-Identifier: Apache-2.0
// How the perf tools' ranks wait for each other, and that none waits for one that failed.
#include "team.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "api.hpp"

using namespace ucclep::perf;

namespace {

void on_threads(SharedMemoryTeam& team, int ranks, const std::function<void(Team&)>& work) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { work(*team.member(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("perf team: nobody leaves a barrier before all have come", "[perf][team]") {
  constexpr int ranks = 4;
  SharedMemoryTeam team(ranks);
  std::atomic<int> come{0}, early{0};
  on_threads(team, ranks, [&](Team& member) {
    for (int round = 1; round <= 100; ++round) {
      ++come;
      member.barrier();
      if (come < round * ranks) ++early;
      member.barrier();
    }
  });
  CHECK(early == 0);
}

TEST_CASE("perf team: gathers more than a slot holds", "[perf][team]") {
  constexpr int ranks = 3;
  constexpr size_t words = 10001;
  SharedMemoryTeam team(ranks);
  std::atomic<int> wrong{0};
  on_threads(team, ranks, [&](Team& member) {
    std::vector<uint32_t> all(ranks * words);
    for (size_t i = 0; i < words; ++i)
      all[member.rank() * words + i] = static_cast<uint32_t>(member.rank() * words + i);
    member.allgather(all.data(), words * sizeof(uint32_t));
    for (size_t i = 0; i < all.size(); ++i) wrong += all[i] != i;
    wrong += member.gather(member.rank() + 5) != std::vector<int>{5, 6, 7};
  });
  CHECK(wrong == 0);
}

TEST_CASE("perf team: a failure wakes those that wait, and the first message stays", "[perf][team]") {
  constexpr int ranks = 3;
  SharedMemoryTeam team(ranks);
  std::atomic<int> woken{0};
  on_threads(team, ranks, [&](Team& member) {
    if (member.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      member.fail("rank 1 is tired");
      member.fail("and says it twice");
      return;
    }
    try {
      member.barrier();
    } catch (const TeamFailed&) {
      ++woken;
    }
  });
  CHECK(woken == 2);
  CHECK(team.failure() == "rank 1 is tired");
}

TEST_CASE("perf team: works between processes", "[perf][team]") {
  SharedMemoryTeam team(2);
  const pid_t child = fork();
  if (child == 0) {
    int status = 1;
    try {
      status = team.member(1)->gather(7) == std::vector<int>{3, 7} ? 0 : 2;
    } catch (const std::exception&) {
    }
    _exit(status);
  }
  const std::vector<int> all = team.member(0)->gather(3);
  CHECK(all == std::vector<int>{3, 7});
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

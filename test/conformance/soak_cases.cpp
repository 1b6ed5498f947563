// SPDX-License-Identifier: Apache-2.0
// The same for a long time: `make soak`. Few rounds of it are part of `make test`.

#include <catch2/catch.hpp>
#include <chrono>
#include <exception>
#include <fstream>
#include <string>
#include <thread>

#include "conformance/turns.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

constexpr int turns_of_round = 8, ranks = 3;

// LL and HT in all layouts, each with as many tokens as there can be and with few; NaN and infinity are among them.
std::vector<Scenario> mixed() {
  Scenario scenario{
      .ranks = ranks, .experts = 6, .top_k = 3, .max_tokens = 7, .hidden = 72, .any_bits = true, .fixed_capacity = 90};
  scenario.rule = uniform(15);
  std::vector<Scenario> all = in_all_layouts(scenario);
  scenario.tokens = {3, 0, 5};
  scenario.alignment = 4;
  scenario.biases = 1;
  for (const Scenario& few : in_all_layouts(scenario)) all.push_back(few);
  for (Scenario& each : all) {
    each.carried = each.ll() && each.tokens.empty();
    if (each.layout != Layout::ht_expert_major) each.alignment = 1;
  }
  return all;
}

// All ranks come here, and go on together. The word counts for as long as the board lives.
class Meeting {
 public:
  Meeting(Rank& rank, int word) : rank_(rank), word_(word) {}
  void operator()() {
    rank_.board.add(word_);
    rank_.board.wait(word_, static_cast<uint32_t>(rank_.count) * ++met_, 120);
  }

 private:
  Rank& rank_;
  const int word_;
  uint32_t met_ = 0;
};

// Rounds of the mix on a communicator of its own. Half way sequence numbers go past 32 bits.
void repeat(Rank& rank, int id, unsigned rounds) {
  const std::vector<Scenario> scenarios = mixed();
  Comm comm(rank, comm_config(rank), id);
  Stream stream(comm);
  const Group group = make_group(comm, group_config(scenarios));
  std::deque<Turn> turns;
  for (const Scenario& scenario : scenarios) turns.emplace_back(rank, comm, group, scenario);
  Meeting meet(rank, id);
  meet();
  if (test_gpus() == 0) set_sequences(group, (uint64_t{1} << 32) - turns_of_round * rounds / 2);
  meet();
  for (unsigned round = 0; round < rounds; ++round) take(turns, mix(static_cast<uint64_t>(id), round), stream);
  no_async_error(comm);
}

TEST_CASE("soak: LL and HT take turns, with new routing each time, past 32 bits of sequence numbers", "[mixed]") {
  const unsigned rounds = iterations(reduced() ? 2 : 10);
  run_ranks(ranks, {.seconds = 60 + rounds / 2.0}, [&](Rank& rank) { repeat(rank, 0, rounds); });
}

TEST_CASE("soak: two communicators on two threads of each rank", "[threads]") {
  const unsigned rounds = iterations(reduced() ? 2 : 5);
  run_ranks(ranks, {.communicators = 2, .seconds = 60.0 + rounds}, [&](Rank& rank) {
    std::exception_ptr failed;
    std::thread other([&] {
      try {
        repeat(rank, 1, rounds);
      } catch (...) {
        failed = std::current_exception();
      }
    });
    try {
      repeat(rank, 0, rounds);
    } catch (...) {
      other.join();
      throw;
    }
    other.join();
    if (failed) std::rethrow_exception(failed);
  });
}

// ---- What stays ----

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * 4096;
}

// Threads end a moment after what they served.
int files_after(int wanted) {
  int files = open_files();
  for (int tries = 0; tries < 200 && files > wanted; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    files = open_files();
  }
  return files;
}

// One of everything that a communicator can have, of the group two, and operations in all layouts.
void make_everything(Rank& rank) {
  Comm comm(rank);
  Stream stream(comm);
  const Event event(comm);
  void *memory = nullptr, *host = nullptr;
  ok(ucclEpMemAlloc(comm, &memory, 1 << 16), "ucclEpMemAlloc");
  ok(ucclEpMemAllocHost(comm, &host, 1 << 12), "ucclEpMemAllocHost");
  ucclEpWindow_t window = nullptr;
  ok(ucclEpWindowRegister(comm, memory, 1 << 16, &window), "ucclEpWindowRegister");
  const std::vector<Scenario> all =
      in_all_layouts({.ranks = 2, .experts = 4, .max_tokens = 4, .hidden = 32, .fixed_capacity = 40});
  for (int i = 0; i < 2; ++i) {
    const Group group = make_group(comm, group_config(all));
    std::deque<Turn> turns;
    for (const Scenario& scenario : all) turns.emplace_back(rank, comm, group, scenario);
    take(turns, 1, stream);
  }
  ok(ucclEpWindowDeregister(comm, window), "ucclEpWindowDeregister");
  ok(ucclEpMemFreeHost(comm, host), "ucclEpMemFreeHost");
  // The memory goes with its communicator.
}

// Not under a sanitizer, which keeps memory of its own.
TEST_CASE("soak: communicators, groups and handles leave no memory and no descriptor behind", "[cycles][slow]") {
  const unsigned cycles = iterations(reduced() ? 8 : 30), first_counted = cycles / 5;
  ucclEpUniqueId id;  // of the communicator of this cycle: ranks are threads
  run_ranks(2, {.communicators = 0, .seconds = 60.0 + cycles}, [&](Rank& rank) {
    Rank with_id{rank.rank, rank.count, rank.board, &id};
    Meeting meet(rank, 0);
    int files = 0;
    int64_t bytes = 0;
    for (unsigned cycle = 0; cycle < cycles; ++cycle) {
      if (rank.rank == 0) ok(ucclEpGetUniqueId(&id), "ucclEpGetUniqueId");
      meet();
      make_everything(with_id);
      meet();
      // One of them counts, while the other waits.
      if (rank.rank == 0 && cycle == first_counted) {
        files = files_after(0);
        bytes = resident_bytes();
      }
    }
    if (rank.rank == 0) {
      const int more_files = files_after(files) - files;
      const int64_t more_bytes = resident_bytes() - bytes;
      require(more_files <= 0, std::to_string(more_files) + " more descriptors are open");
      require(more_bytes < int64_t{8} << 20, std::to_string(more_bytes) + " more bytes are in use");
    }
    meet();
  });
}

}  // namespace
}  // namespace ucclep::test

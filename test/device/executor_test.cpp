// SPDX-License-Identifier: Apache-2.0
// How lanes are run, and what the executor says of kernels that cannot go on.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <ctime>
#include <iostream>
#include <set>
#include <thread>
#include <vector>

#include "support/test_env.hpp"
#include "trial.hpp"

namespace ucclep {
namespace {

using test::Trial;

void runs_any_shape(unsigned wave) {
  Trial trial({.wave = wave});
  trial.args.rounds = 7;
  for (unsigned block : {1u, 31u, 64u, 100u, 1024u}) {
    INFO("blocks of " << block);
    trial.args.words[0] = 0;
    REQUIRE(trial.run("trial_tickets", {3, block, 0}));
    CHECK(trial.args.words[0] == uint64_t{7} * 3 * block);
  }
  CHECK(trial.run("trial_nothing", {test::reduced() ? 50u : 5000u, 64, 0}));
}

TEST_CASE("executor: any grid and block, wave 32", "[executor]") {
  runs_any_shape(32);
}
TEST_CASE("executor: any grid and block, wave 64", "[executor]") {
  runs_any_shape(64);
}

TEST_CASE("executor: a lane that polls without a pause lets others run", "[executor]") {
  Trial trial({.workers = 1});
  REQUIRE(trial.run("trial_polls", {2, 64, 0}));
  CHECK(trial.args.out[0] == 1);
}

TEST_CASE("executor: both wave sizes in one process, one pool", "[executor]") {
  Trial narrow({.wave = 32});
  Trial wide({.wave = 64});
  for (Trial* trial : {&narrow, &wide}) {
    trial->args.rounds = 65;
    trial->launch("trial_shfl", {2, 128, 0});
  }
  for (Trial* trial : {&narrow, &wide}) {
    REQUIRE(trial->ends());
    std::set<uint64_t> values(trial->args.out, trial->args.out + 128);
    CHECK(values.size() == 128);  // exchanges lose nothing
  }
}

std::vector<uint64_t> tickets(uint64_t seed, unsigned wave) {
  constexpr unsigned threads = 2 * 64;
  Trial first({.wave = wave, .seed = seed}, 0);
  Trial second({.wave = wave, .seed = seed}, 1);
  for (Trial* trial : {&first, &second}) {
    trial->args.words = first.args.words;
    trial->args.rounds = 10;
    trial->launch("trial_tickets", {2, 64, 0});
  }
  std::vector<uint64_t> order;
  for (Trial* trial : {&first, &second}) {
    CHECK(trial->ends());
    order.insert(order.end(), trial->args.out, trial->args.out + threads);
  }
  second.args.words = static_cast<uint64_t*>(second.device().alloc(64));  // what it frees
  return order;
}

TEST_CASE("executor: a seeded schedule replays exactly", "[executor]") {
  for (unsigned wave : {32u, 64u}) {
    std::set<std::vector<uint64_t>> orders;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const auto order = tickets(seed, wave);
      orders.insert(order);
      for (int again = 0; again < 3; ++again) CHECK(tickets(seed, wave) == order);
    }
    CHECK(orders.size() == 4);
  }
}

TEST_CASE("executor: a seeded launch begins though nobody waits for its stream", "[executor]") {
  Trial trial({.seed = 1});
  trial.launch("trial_polls", {2, 64, 0});
  const std::atomic_ref<uint64_t> word(trial.args.words[0]);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (word == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  CHECK(word == 1);
  CHECK(trial.ends());
}

// --- diagnoses ---

std::string complaint(const HostDeviceConfig& config, const char* kernel, const LaunchShape& shape) {
  Trial trial(config, 3);
  trial.args.bytes = 512;
  const std::string message = trial.complaint(kernel, shape);
  // The stream goes on.
  CHECK(trial.run("trial_nothing", {4, 64, 0}));
  return message;
}

void names_what_is_wrong(unsigned wave) {
  const HostDeviceConfig config{.wave = wave, .workers = 1};
  using Catch::Matchers::Contains;
  const LaunchShape shape{1, 2 * wave, 4096};
  CHECK_THAT(
      complaint(config, "trial_barrier_left_out", shape),
      Contains("device 3, kernel trial_barrier_left_out, block 0 of 1: warp 1 lane 0 ends while warp 0 lane 0 waits "
               "for it at sync_block"));
  CHECK_THAT(complaint(config, "trial_mismatch", shape),
             Contains("warp 0 lane 3 calls ballot while warp 0 lane 0 waits at sync_warp"));
  CHECK_THAT(complaint(config, "trial_warp_against_block", shape),
             Contains("warp 0 lane 5 calls sync_warp while warp 0 lane 0 waits at sync_block"));
  CHECK_THAT(complaint(config, "trial_throws", shape), Contains("warp 0 lane 7 threw an exception"));
  CHECK_THAT(complaint(config, "trial_unread_store", shape),
             Contains("its warp ends before it has waited until a bulk_store was read"));
  CHECK_THAT(complaint(config, "trial_wrong_phase", shape), Contains("bulk_wait_loaded waits for another phase"));
}

TEST_CASE("executor: what cannot go on is named, wave 32", "[executor]") {
  names_what_is_wrong(32);
}
TEST_CASE("executor: what cannot go on is named, wave 64", "[executor]") {
  names_what_is_wrong(64);
}

TEST_CASE("executor: the watchdog names a spin that never ends", "[executor]") {
  for (unsigned wave : {32u, 64u}) {
    const std::string message = complaint({.wave = wave, .watchdog_ms = 200}, "trial_spins", {2, 2 * wave, 0});
    using Catch::Matchers::Contains;
    CHECK_THAT(message, Contains("device 3, kernel trial_spins, block 1 of 2: warp 1 lane 2 has spun for 200 ms on the "
                                 "word at 0x"));
    CHECK_THAT(message, Contains("threads of its block wait at sync_block"));
  }
}

TEST_CASE("executor: the watchdog is not deceived by warps and blocks that look together", "[executor]") {
  for (const char* kernel : {"trial_warps_spin", "trial_blocks_spin"}) {
    CHECK_THAT(complaint({.watchdog_ms = 200}, kernel, {2, 128, 0}), Catch::Matchers::Contains("has spun for 200 ms"));
  }
}

TEST_CASE("executor: a diagnosis says where in a window a lane waits", "[executor]") {
  Trial trial({.watchdog_ms = 100});
  auto window = trial.device().share(8192);
  uint64_t* const words = trial.args.words;
  trial.args.words = static_cast<uint64_t*>(window->data()) + 16;
  CHECK_THAT(trial.complaint("trial_spins", {2, 64, 0}),
             Catch::Matchers::Contains("(offset 0xa8 of a window of 8192 bytes)"));
  trial.args.words = words;
}

TEST_CASE("executor: a stack that is nearly full is named", "[executor]") {
  if (test::reduced()) return test::skip_case("stacks are larger under a sanitizer");
  CHECK_THAT(complaint({}, "trial_deep_stack", {1, 2, 0}), Catch::Matchers::Contains("nearly all of its stack"));
}

// --- costs, for people: executor_test [.cost] ---

double ns_per(Trial& trial, const char* kernel, const LaunchShape& shape, double operations) {
  trial.run(kernel, shape);
  const std::clock_t begin = std::clock();  // of the processor: the machine may do other things too
  trial.run(kernel, shape);
  return 1e9 / CLOCKS_PER_SEC * static_cast<double>(std::clock() - begin) / operations;
}

TEST_CASE("executor: costs", "[.cost]") {
  for (unsigned wave : {32u, 64u}) {
    Trial trial({.wave = wave, .workers = 1});
    trial.args.rounds = 10000;
    for (unsigned block : {64u, 512u, 1024u}) {
      std::cout << "wave " << wave << ", blocks of " << block << ": shfl "
                << ns_per(trial, "trial_shfl", {1, block, 0}, 1e4 * block) << " ns per lane, sync_block "
                << ns_per(trial, "trial_sync_block", {1, block, 0}, 1e4 * block) << " ns per lane, 4 such blocks in "
                << ns_per(trial, "trial_nothing", {4, block, 0}, 1e3) << " us\n";
    }
  }
}

}  // namespace
}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// Four processes run dispatch and combine, and one of them is killed, stopped, or stopped and continued, at a moment
// drawn from a seed. Every call of every rank ends in time, and who does not get what it asked for is told whom it
// lost.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

using ChaosClock = std::chrono::steady_clock;

constexpr int chaos_ranks = 4, chaos_limit_ms = 1500, chaos_rounds = 40;
constexpr double chaos_slack_s = 2;  // of a machine that is busy

enum class Blow { kill, stop, pause, long_pause };

// What a seed does.
struct Plan {
  Layout layout;
  bool networked;
  int victim;
  Blow blow;
  std::chrono::milliseconds after, pause;

  explicit Plan(uint64_t seed)
      : layout(all_layouts[mix(seed, 1) % 4]),
        networked(mix(seed, 2) % 3 == 0),
        victim(static_cast<int>(mix(seed, 3) % chaos_ranks)),
        blow(static_cast<Blow>(mix(seed, 4) % 4)),
        after(mix(seed, 5) % 150),
        pause(blow == Blow::pause ? 50 + mix(seed, 6) % 300 : chaos_limit_ms + 1500 + mix(seed, 6) % 500) {}

  bool dies() const { return blow == Blow::kill || blow == Blow::stop; }
  bool loses() const { return blow != Blow::pause; }
};

ucclEpResult_t timed(const char* call, const std::function<ucclEpResult_t()>& body, bool stops) {
  const auto begin = ChaosClock::now();
  const ucclEpResult_t result = body();
  const double seconds = std::chrono::duration<double>(ChaosClock::now() - begin).count();
  require(stops || seconds < chaos_limit_ms / 1000.0 + 1 + chaos_slack_s,
          std::string(call) + " took " + std::to_string(seconds) + " s");
  return result;
}

ucclEpResult_t run_rounds(Session& at, Exchange& exchange, bool stops) {
  ucclEpResult_t result = ucclEpSuccess;
  for (int round = 0; round < chaos_rounds && result == ucclEpSuccess; ++round) {
    result = exchange.try_update(at.handle, at.stream);
    if (result == ucclEpSuccess) result = exchange.try_dispatch(at.handle, at.stream);
    if (result == ucclEpSuccess) result = exchange.try_combine(at.handle, at.stream);
    if (result == ucclEpSuccess)
      result = timed("ucclEpStreamSynchronize", [&] { return ucclEpStreamSynchronize(at.comm, at.stream); }, stops);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return result;
}

// The blow falls while this rank's other thread is in the rounds.
void suffer(const Rank& rank, const Plan& plan) {
  std::this_thread::sleep_for(plan.after);
  rank.board.post(1);
  kill(getpid(), plan.blow == Blow::kill ? SIGKILL : SIGSTOP);
}

// The lowest other rank looks after one that has stopped.
void look_after(const Plan& plan) {
  const pid_t stopped = await_stopped();
  std::this_thread::sleep_for(plan.pause);
  kill(stopped, plan.blow == Blow::stop ? SIGKILL : SIGCONT);
}

// A death is known at once. Of a rank that has stopped only its silence is: whoever waits for one that waits for it may
// give up first, and names that one.
void require_lost(ucclEpResult_t result, ucclEpComm_t comm, const Plan& plan) {
  const std::string text = async_error(comm).text;
  const std::string lost = plan.blow == Blow::kill ? "rank " + std::to_string(plan.victim) : "rank ";
  require(result == ucclEpTimeout || result == ucclEpRemoteError,
          "the answer was " + std::to_string(result) + ": " + text);
  require(text.find(lost) != std::string::npos, text + " does not name " + lost);
}

void live_through(const Rank& rank, const Plan& plan) {
  const Scenario scenario{
      .layout = plan.layout, .ranks = chaos_ranks, .experts = 2 * chaos_ranks, .max_tokens = 8, .hidden = 64};
  ucclEpCommConfig_t config = comm_config(rank);
  config.timeout_ms = chaos_limit_ms;
  if (plan.networked) config.ranks_per_node = 2, config.transport = "loopback";
  auto at = std::make_unique<Session>(rank, config, scenario);
  auto exchange = std::make_unique<Exchange>(rank, at->comm, scenario);
  const bool is_victim = rank.rank == plan.victim;
  std::jthread helper;  // joined also where a check fails
  rank.board.add(0);
  rank.board.wait(0, chaos_ranks);
  if (is_victim) helper = std::jthread([&] { suffer(rank, plan); });
  if (rank.rank == (plan.victim + 1) % chaos_ranks && plan.blow != Blow::kill) {
    helper = std::jthread([&] { look_after(plan); });
  }
  const ucclEpResult_t result = run_rounds(*at, *exchange, is_victim);
  if (result == ucclEpSuccess) exchange->check_combine();
  if (!is_victim && result != ucclEpSuccess) require_lost(result, at->comm, plan);
  if (helper.joinable()) helper.join();
  require(plan.loses() || result == ucclEpSuccess, "a short pause ended the communicator");
  exchange.reset();
  at->handle.release();  // the communicator takes all along
  at->group.release();
  timed("ucclEpCommDestroy", [&] { return at.reset(), ucclEpSuccess; }, is_victim);
}

TEST_CASE("chaos: a rank is killed, stopped or paused at any moment", "[process][killed]") {
  for (uint64_t seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    const Plan plan(seed);
    INFO("UCCLEP_TEST_FIRST_SEED=" << seed);
    RunOptions options{.processes = true};
    if (plan.dies()) options.killed = {plan.victim};
    run_ranks(chaos_ranks, options, [&](Rank& rank) { live_through(rank, plan); });
  }
}

}  // namespace
}  // namespace ucclep::test

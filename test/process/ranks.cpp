// SPDX-License-Identifier: Apache-2.0
#include "ranks.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>

#include "base/error.hpp"
#include "bootstrap/stream_io.hpp"

// A process that opened a rendezvous has a thread, and may fork all the same.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "die_after_fork=0";
}

namespace ucclep::test {
namespace {

struct Report {
  int32_t code;
  uint32_t length;
  int64_t ended_ms;
};

}  // namespace

int64_t steady_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now().time_since_epoch()).count();
}

Outcome run_body(const Body& body, int rank) {
  Outcome outcome;
  try {
    outcome.text = body(rank);
  } catch (const Error& error) {
    outcome.code = error.code();
    outcome.text = error.what();
  } catch (const std::exception& error) {
    outcome.code = ucclEpInternalError;
    outcome.text = error.what();
  }
  outcome.ended_ms = steady_ms();
  return outcome;
}

std::vector<Outcome> run_threads(int nranks, const Body& body) {
  std::vector<Outcome> outcomes(static_cast<size_t>(nranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] { outcomes[static_cast<size_t>(rank)] = run_body(body, rank); });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

SharedCount::SharedCount() {
  void* page = mmap(nullptr, sizeof(*count_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::system_error(errno, std::generic_category());
  count_ = new (page) std::atomic<int>(0);
}

SharedCount::~SharedCount() {
  munmap(count_, sizeof(*count_));
}

bool SharedCount::reaches(int count) const {
  const Deadline deadline = Deadline::after_ms(60000);
  while (*count_ < count && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return *count_ >= count;
}

RankProcess::RankProcess(int rank, const Body& body) : state_(std::make_unique<State>()) {
  int ends[2];
  if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category());
  state_->pid = fork();
  if (state_->pid == 0) {
    Outcome outcome = run_body(body, rank);
    Report report{outcome.code, static_cast<uint32_t>(outcome.text.size()), outcome.ended_ms};
    std::string bytes(reinterpret_cast<const char*>(&report), sizeof(report));
    bytes += outcome.text;
    _exit(write(ends[1], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) ? 0 : 1);
  }
  close(ends[1]);
  state_->pipe = ends[0];
}

RankProcess::~RankProcess() {
  if (!state_) return;
  if (state_->pid > 0) {
    kill(state_->pid, SIGKILL);
    waitpid(state_->pid, nullptr, 0);
  }
  close(state_->pipe);
}

void RankProcess::signal(int number) const {
  kill(state_->pid, number);
}

Outcome RankProcess::outcome(int64_t timeout_ms) {
  Deadline deadline = Deadline::after_ms(timeout_ms);
  std::string bytes;
  char piece[4096];
  while (wait_readable(state_->pipe, deadline)) {
    ssize_t got = read(state_->pipe, piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    bytes.append(piece, static_cast<size_t>(got));
    Report report{};
    if (bytes.size() < sizeof(report)) continue;
    std::memcpy(&report, bytes.data(), sizeof(report));
    if (bytes.size() == sizeof(report) + report.length) {
      waitpid(state_->pid, nullptr, 0);
      state_->pid = -1;
      return {static_cast<ucclEpResult_t>(report.code), bytes.substr(sizeof(report)), report.ended_ms};
    }
  }
  return {ucclEpInternalError, "the process ended, or hangs, without an outcome", steady_ms()};
}

std::vector<Outcome> run_processes(int nranks, const Body& body) {
  std::vector<RankProcess> processes;
  for (int rank = 0; rank < nranks; ++rank) processes.emplace_back(rank, body);
  std::vector<Outcome> outcomes;
  for (auto& process : processes) outcomes.push_back(process.outcome());
  return outcomes;
}

void check_all(const std::vector<Outcome>& outcomes, ucclEpResult_t code, const std::string& text) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    INFO("rank " << rank << ": " << outcomes[rank].text);
    CHECK(outcomes[rank].code == code);
    CHECK_THAT(outcomes[rank].text, Catch::Contains(text));
  }
}

ucclEpUniqueId local_rendezvous() {
  return open_rendezvous("lo");
}

std::unique_ptr<Bootstrap> join(const ucclEpUniqueId& id, int rank, int nranks, int64_t timeout_ms) {
  return Bootstrap::join(id, rank, nranks, "", Deadline::after_ms(timeout_ms));
}

}  // namespace ucclep::test

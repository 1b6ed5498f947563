// SPDX-License-Identifier: Apache-2.0
// Ranks for tests: threads of this process, or processes forked from it. What a rank throws is its outcome.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "bootstrap/bootstrap.hpp"
#include "ucclep/ucclep.h"

namespace ucclep::test {

struct Outcome {
  ucclEpResult_t code = ucclEpSuccess;
  std::string text;      // what the body returned, or the message of its Error
  int64_t ended_ms = 0;  // on the machine's steady clock
};

using Body = std::function<std::string(int rank)>;

int64_t steady_ms();
Outcome run_body(const Body& body, int rank);
std::vector<Outcome> run_threads(int nranks, const Body& body);

// A count shared with processes that are forked later: tests wait for what others have done instead of guessing how
// long it takes.
class SharedCount {
 public:
  SharedCount();
  ~SharedCount();
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  void add() { ++*count_; }
  bool reaches(int count) const;  // false: not within a minute

 private:
  std::atomic<int>* count_;
};

// A forked process that runs body; it is killed if it is still there when the object goes.
class RankProcess {
 public:
  RankProcess(int rank, const Body& body);
  RankProcess(RankProcess&&) = default;
  ~RankProcess();
  void signal(int number) const;
  // Bounded; a process that ended without an outcome, or did not end, has ucclEpInternalError.
  Outcome outcome(int64_t timeout_ms = 60000);

 private:
  struct State {
    pid_t pid = -1;  // -1: collected
    int pipe = -1;
  };
  std::unique_ptr<State> state_;
};

std::vector<Outcome> run_processes(int nranks, const Body& body);
void check_all(const std::vector<Outcome>& outcomes, ucclEpResult_t code,
               const std::string& text);  // contained in each

ucclEpUniqueId local_rendezvous();  // on loopback
std::unique_ptr<Bootstrap> join(const ucclEpUniqueId& id, int rank, int nranks, int64_t timeout_ms = 30000);

}  // namespace ucclep::test

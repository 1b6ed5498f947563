// SPDX-License-Identifier: Apache-2.0
// Runs a test body on several ranks, as threads of this process or as processes. Processes are started from the test's
// own executable: the child runs the same test case again and takes over at the same call of run_ranks, so that a body
// may capture what its case has computed. A case must therefore do the same up to there in every run.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>

#include "ucclep/ucclep.h"

namespace ucclep::test {

// Thrown by a check in a rank's body: Catch2's own checks belong to the main thread.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A few words that all ranks share, also across processes: bodies agree on points in time with them.
class Board {
 public:
  static constexpr int words = 16;
  void post(int word, uint32_t value = 1);
  void add(int word, uint32_t value = 1);
  // Throws Failure when the word is not at least `value` in time, or another rank has failed meanwhile.
  void wait(int word, uint32_t at_least, double seconds = 30) const;
  void give_up();  // a rank has failed: nobody waits for it any more

 private:
  std::atomic<uint32_t> words_[words] = {};
  std::atomic<bool> given_up_ = false;
};

struct Rank {
  int rank;
  int count;
  Board& board;
  const ucclEpUniqueId* ids;  // RunOptions::communicators of them
};

struct RunOptions {
  int communicators = 1;      // unique ids to make
  bool processes = false;     // also where the run uses threads
  std::set<int> killed = {};  // ranks that end by a signal; the case is tagged [killed]
  double seconds = 60;        // for the whole body; five times as much under a sanitizer
};

// True when UCCLEP_TEST_PROCESSES is set: ranks are processes unless a case needs threads.
bool ranks_are_processes();

// True in a process that run_ranks has started for a rank.
bool is_rank_process();

// Returns when all ranks have ended, and fails the running test case if one of them failed. When a rank fails, the
// communicators of the others are aborted, so that they do not sit out their time limits.
void run_ranks(int count, const RunOptions& options, const std::function<void(Rank&)>& body);
void run_ranks(int count, const std::function<void(Rank&)>& body);

// In a rank that is a process: the one of its siblings that has stopped (SIGSTOP), as soon as one has.
pid_t await_stopped();

// For run_ranks to abort: what the wrappers of ep.hpp have created in this process.
void note_comm(ucclEpComm_t comm);
void forget_comm(ucclEpComm_t comm);

}  // namespace ucclep::test

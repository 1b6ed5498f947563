// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.hpp"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/ep.hpp"
#include "support/gpu_contexts.hpp"
#include "support/test_env.hpp"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define UCCLEP_TEST_SLOWDOWN 5
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define UCCLEP_TEST_SLOWDOWN 5
#endif
#endif
#ifndef UCCLEP_TEST_SLOWDOWN
#define UCCLEP_TEST_SLOWDOWN 1
#endif

extern char** environ;

namespace ucclep::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int max_ranks = 256;
constexpr int max_ids = 4;
constexpr int shared_fd = 198;  // of the shared page in a child
constexpr const char* child_variable = "UCCLEP_TEST_CHILD";
constexpr double grace_seconds = 10;  // for the others after one rank has failed

enum State : int { running = 0, passed = 1, failed = 2 };

struct Report {
  std::atomic<int> state = running;
  char text[4000] = {};
};

// All that ranks share; in a memfd when they are processes.
struct Shared {
  Board board;
  ucclEpUniqueId ids[max_ids] = {};
  Report reports[max_ranks];
};

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds * UCCLEP_TEST_SLOWDOWN));
}

std::mutex comms_mutex;
std::vector<ucclEpComm_t> comms;

void abort_comms() {
  const std::lock_guard lock(comms_mutex);
  for (ucclEpComm_t comm : comms) ucclEpCommAbort(comm);
}

void make_ids(Shared& shared, int count) {
  if (count > max_ids) throw std::logic_error("run_ranks makes at most " + std::to_string(max_ids) + " unique ids");
  for (int i = 0; i < count; ++i) {
    if (ucclEpGetUniqueId(&shared.ids[i]) != ucclEpSuccess) {
      throw std::runtime_error(std::string("ucclEpGetUniqueId: ") + ucclEpGetLastError(nullptr));
    }
  }
}

// Runs one rank and leaves its report.
void run_rank(Shared& shared, int rank, int count, const std::function<void(Rank&)>& body) {
  Report& report = shared.reports[rank];
  std::string text;
  try {
    Rank self{rank, count, shared.board, shared.ids};
    body(self);
  } catch (const std::exception& error) {
    text = error.what();
    if (text.empty()) text = "an exception without a text";
    shared.board.give_up();
  }
  std::strncpy(report.text, text.c_str(), sizeof(report.text) - 1);
  report.state = text.empty() ? passed : failed;
}

// ---- Threads ----

void run_threads(Shared& shared, int count, const std::function<void(Rank&)>& body, double seconds) {
  std::mutex mutex;
  std::condition_variable ended;
  int left = count;
  bool one_failed = false;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      run_rank(shared, rank, count, body);
      const std::lock_guard lock(mutex);
      --left;
      one_failed |= shared.reports[rank].state == failed;
      ended.notify_all();
    });
  }
  bool in_time;
  {
    std::unique_lock lock(mutex);
    in_time = ended.wait_until(lock, after(seconds), [&] { return left == 0 || one_failed; });
    if (left > 0) {
      lock.unlock();
      abort_comms();
      lock.lock();
      ended.wait_until(lock, after(grace_seconds), [&] { return left == 0; });
    }
    if (left > 0) {
      // A thread cannot be ended from outside: say what is known and leave.
      for (int rank = 0; rank < count; ++rank) {
        const char* state = shared.reports[rank].state == running ? "never returned" : shared.reports[rank].text;
        std::fprintf(stderr, "rank %d: %s\n", rank, state);
      }
      std::_Exit(1);
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (!in_time) FAIL_CHECK("the ranks had to be aborted after " << seconds << " s");
}

// ---- Processes ----

// Which call of run_ranks of the running test case this is.
int call_index() {
  static std::string current;
  static int index;
  const std::string name = Catch::getResultCapture().getCurrentTestName();
  if (name != current) index = 0;
  current = name;
  return index++;
}

// A test's name as a filter that matches it alone: a comma would begin the next filter.
std::string escaped(const std::string& name) {
  std::string filter;
  for (const char c : name) {
    if (c == ',' || c == '[' || c == ']') filter += '\\';
    filter += c;
  }
  return filter;
}

pid_t start_child(int fd, int call, int rank, int count) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fd, shared_fd);
  std::ostringstream child;
  child << child_variable << '=' << call << ' ' << rank << ' ' << count;
  std::string variable = child.str();
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::string name = escaped(Catch::getResultCapture().getCurrentTestName());
  char path[] = "/proc/self/exe";
  char* arguments[] = {path, name.data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, path, &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error(std::string("posix_spawn: ") + std::strerror(error));
  return pid;
}

void enter(int rank, const std::string& path, int kind) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, kind) != 0) {
    std::fprintf(stderr, "rank %d: cannot enter the namespace %s: %s\n", rank, path.c_str(), std::strerror(errno));
    std::_Exit(3);
  }
  close(fd);
}

// Where a run has a second machine, a process in namespaces of its own: ranks of odd nodes are on it.
void enter_machine(int rank) {
  const char* process = std::getenv("UCCLEP_TEST_SECOND_MACHINE");
  const std::vector<int> nodes = nodes_of_environment(rank + 1);
  if (process == nullptr || nodes.empty() || nodes.back() % 2 == 0) return;
  const std::string folder = std::string("/proc/") + process + "/ns/";
  enter(rank, folder + "net", CLONE_NEWNET);
  enter(rank, folder + "mnt", CLONE_NEWNS);
}

// In a child: runs the body if this is the call that the child was started for, and does not return then.
void run_as_child(const char* request, int call, const std::function<void(Rank&)>& body) {
  int wanted = -1, rank = -1, count = 0;
  std::istringstream(request) >> wanted >> rank >> count;
  if (call != wanted) return;
  enter_machine(rank);
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
  if (memory == MAP_FAILED) std::_Exit(3);
  auto& shared = *static_cast<Shared*>(memory);
  run_rank(shared, rank, count, body);
  // The leak check of AddressSanitizer runs at exit: what Catch2 has allocated up to here is no leak of ours.
  std::_Exit(shared.reports[rank].state == passed ? 0 : 1);
}

struct Child {
  pid_t pid;
  bool ended = false;
  int status = 0;
};

// Waits until all have ended; shortly after the first bad end, or at the deadline, the rest are killed.
bool reap(std::vector<Child>& children, const std::set<int>& killed, double seconds) {
  auto deadline = after(seconds);
  bool one_failed = false;
  bool in_time = true;
  for (size_t left = children.size(); left > 0;) {
    for (size_t rank = 0; rank < children.size(); ++rank) {
      Child& child = children[rank];
      if (child.ended || waitpid(child.pid, &child.status, WNOHANG) != child.pid) continue;
      child.ended = true;
      --left;
      if (child.status != 0 && !one_failed && killed.count(static_cast<int>(rank)) == 0) {
        one_failed = true;
        deadline = std::min(deadline, after(grace_seconds));
      }
    }
    if (left > 0 && Clock::now() > deadline) {
      in_time = one_failed;
      for (const Child& child : children) {
        if (!child.ended) kill(child.pid, SIGKILL);
      }
      deadline = after(grace_seconds);
    }
    if (left > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return in_time;
}

void run_processes(int count, const RunOptions& options, int call) {
  const int fd = memfd_create("test ranks", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) throw std::runtime_error("no memory for the ranks' shared page");
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("the ranks' shared page cannot be mapped");
  auto* shared = new (memory) Shared;
  make_ids(*shared, options.communicators);
  std::vector<Child> children;
  for (int rank = 0; rank < count; ++rank) children.push_back({start_child(fd, call, rank, count)});
  const bool in_time = reap(children, options.killed, options.seconds);
  for (int rank = 0; rank < count; ++rank) {
    const int status = children[static_cast<size_t>(rank)].status;
    const bool should_die = options.killed.count(rank) != 0;
    if (should_die && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
      FAIL_CHECK("rank " << rank << " should have been killed: wait status " << status);
    }
    if (!should_die && shared->reports[rank].state == running) {
      FAIL_CHECK("rank " << rank << " ended without a report: wait status " << status);
    } else if (!should_die && shared->reports[rank].state == passed && status != 0) {
      FAIL_CHECK("rank " << rank << " passed, but ended with wait status " << status);
    }
    if (shared->reports[rank].state == failed) FAIL_CHECK("rank " << rank << ": " << shared->reports[rank].text);
  }
  munmap(memory, sizeof(Shared));
  close(fd);
  if (!in_time) FAIL("the ranks had to be killed after " << options.seconds << " s");
}

// /proc/<pid>/stat is "pid (name) state parent ..". 0: there is none.
pid_t stopped_sibling() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (!file || !std::getline(file, line)) continue;
    std::istringstream rest(line.substr(line.rfind(')') + 1));
    char state = 0;
    pid_t parent = 0;
    if (rest >> state >> parent && state == 'T' && parent == getppid()) return std::stoi(line);
  }
  return 0;
}

}  // namespace

void Board::give_up() {
  given_up_ = true;
}

void Board::post(int word, uint32_t value) {
  words_[word] = value;
}

void Board::add(int word, uint32_t value) {
  words_[word] += value;
}

void Board::wait(int word, uint32_t at_least, double seconds) const {
  const auto deadline = after(seconds);
  while (words_[word] < at_least) {
    if (given_up_) throw Failure("another rank has failed");
    if (Clock::now() > deadline)
      throw Failure("the other ranks did not post word " + std::to_string(word) + " in time");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

bool ranks_are_processes() {
  return std::getenv("UCCLEP_TEST_PROCESSES") != nullptr;
}

bool is_rank_process() {
  return std::getenv(child_variable) != nullptr;
}

void run_ranks(int count, const std::function<void(Rank&)>& body) {
  run_ranks(count, {}, body);
}

void run_ranks(int count, const RunOptions& options, const std::function<void(Rank&)>& body) {
  const int call = call_index();
  if (const char* request = std::getenv(child_variable)) return run_as_child(request, call, body);
  INFO("ranks: " << count);
  if (count > max_ranks) FAIL("run_ranks runs at most " << max_ranks << " ranks");
  SUCCEED();
  note_ranks(count);
  // Under MPS the death of a rank may take others' contexts along: test-gpu.sh tells these cases by their tag.
  if (!options.killed.empty() && !case_has_tag("killed")) FAIL("the case kills ranks, and has no tag [killed]");
  if (options.processes || ranks_are_processes()) return run_processes(count, options, call);
  if (shares_gpus(count)) return skip_case(std::to_string(count) + " ranks as threads need as many GPUs");
  hold_gpu_contexts();
  auto shared = std::make_unique<Shared>();
  make_ids(*shared, options.communicators);
  run_threads(*shared, count, body, options.seconds);
  for (int rank = 0; rank < count; ++rank) {
    if (shared->reports[rank].state == failed) FAIL_CHECK("rank " << rank << ": " << shared->reports[rank].text);
  }
}

pid_t await_stopped() {
  for (const auto deadline = after(30); Clock::now() < deadline;) {
    if (const pid_t pid = stopped_sibling(); pid != 0) return pid;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw Failure("no rank has stopped");
}

void note_comm(ucclEpComm_t comm) {
  const std::lock_guard lock(comms_mutex);
  comms.push_back(comm);
}

void forget_comm(ucclEpComm_t comm) {
  const std::lock_guard lock(comms_mutex);
  comms.erase(std::remove(comms.begin(), comms.end(), comm), comms.end());
}

}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// What proxy threads do while operations run, again and again: they allocate nothing, and call the system for nothing
// but their rest. All allocations of the process go through here; those of proxy threads are counted while asked to.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "conformance/exchange.hpp"
#include "conformance/nodes.hpp"
#include "support/test_env.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<unsigned> counted{0};

constexpr const char* proxy_name = "ucclep-proxy";

bool is_proxy() {
  static thread_local int known = -1;
  if (known < 0) {
    char name[16] = {};
    prctl(PR_GET_NAME, name);
    known = std::strncmp(name, proxy_name, std::strlen(proxy_name)) == 0 ? 1 : 0;
  }
  return known == 1;
}

void count() {
  if (counting.load(std::memory_order_relaxed) && is_proxy()) ++counted;
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(size_t items, size_t bytes) {
  count();
  return __libc_calloc(items, bytes);
}
void* realloc(void* memory, size_t bytes) {
  count();
  return __libc_realloc(memory, bytes);
}
}

extern char** environ;

namespace ucclep::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t commands = 50'000;  // of each of two ranks

// All rows cross, each with a command.
Scenario many_rows() {
  Scenario scenario{.layout = Layout::ll_rank_major, .ranks = 2, .experts = 2, .top_k = 1, .max_tokens = 2048};
  scenario.hidden = 16;
  scenario.rule = next_rank();
  return scenario;
}

// Dispatches and combines until each rank has pushed all of these commands; what comes first may set up what all the
// rest uses. Rank 0 calls `begin` and `end` while all ranks stand still.
void operate(Rank& rank, const std::function<void()>& begin, const std::function<void()>& end) {
  const Scenario scenario = many_rows();
  Comm comm(rank, in_nodes_of(rank, 1));
  const Group group = make_group(comm, group_config({scenario}));
  const Handle handle = make_handle(group, handle_config(scenario));
  Stream stream(comm);
  Exchange exchange(rank, comm, scenario);
  const auto meet = [&](uint32_t times) {
    rank.board.add(0);
    rank.board.wait(0, 2 * times);
  };
  const auto turn = [&] {
    exchange.dispatch(handle, stream);
    exchange.combine(handle, stream);
    stream.synchronize();
  };
  exchange.update(handle, stream);
  for (int i = 0; i < 3; ++i) turn();
  meet(1);
  if (rank.rank == 0) begin();
  meet(2);
  const uint64_t before = stats_of(comm).commands;
  for (uint64_t rows = 0; rows < commands; rows += 2 * 2048) turn();
  require(stats_of(comm).commands - before >= commands, "too few commands");
  exchange.refresh(7);
  turn();
  exchange.check_dispatch();
  exchange.check_combine();
  meet(3);
  if (rank.rank == 0) end();
  meet(4);
}

std::vector<std::string> proxies() {
  std::vector<std::string> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    if (std::ifstream(task.path() / "comm") >> name && name.rfind(proxy_name, 0) == 0)
      threads.push_back(task.path().filename());
  }
  return threads;
}

bool is_traced(const std::string& thread) {
  std::ifstream status("/proc/self/task/" + thread + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("TracerPid:", 0) == 0) return std::stoi(line.substr(10)) != 0;
  }
  return false;
}

// strace on the proxy threads of this process.
class Tracer {
 public:
  // Empty, or why there is none.
  std::string attach() {
    path_ = std::filesystem::temp_directory_path() / ("ep-test-strace-" + std::to_string(getpid()));
    const std::vector<std::string> threads = proxies();
    std::vector<std::string> words{"strace", "-o", path_};
    for (const std::string& thread : threads) words.insert(words.end(), {"-p", thread});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    const int error = posix_spawnp(&pid_, "strace", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return std::string("strace: ") + std::strerror(error);
    const auto begin = Clock::now();
    for (const std::string& thread : threads) {
      while (!is_traced(thread)) {
        if (waitpid(pid_, nullptr, WNOHANG) == pid_) return "strace may not trace here";
        if (Clock::now() - begin > std::chrono::seconds(10)) {
          kill(pid_, SIGKILL);
          waitpid(pid_, nullptr, 0);
          return "strace does not attach";
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    return {};
  }

  // The system calls that it has seen, each once without its thread's number.
  std::set<std::string> detach() {
    kill(pid_, SIGINT);
    waitpid(pid_, nullptr, 0);
    std::set<std::string> calls;
    std::ifstream log(path_);
    for (std::string line; std::getline(log, line);) {
      const size_t begin = line.find_first_not_of("0123456789 ");
      // What a call returned, if that is on a line of its own, and signals.
      if (begin == std::string::npos || std::strchr("<-+", line[begin]) != nullptr) continue;
      calls.insert(line.substr(begin, line.find(')') - begin));
    }
    std::filesystem::remove(path_);
    return calls;
  }

 private:
  std::filesystem::path path_;
  pid_t pid_ = -1;
};

// A thread that finds nothing to do yields, then sleeps. And what it stores, after its posts, may wake lanes of the
// host device, where those of a GPU would poll.
bool is_rest_or_wake(const std::string& call) {
  for (const char* rest : {"sched_yield(", "clock_nanosleep(", "restart_syscall("}) {
    if (call.rfind(rest, 0) == 0) return true;
  }
  return call.rfind("futex(", 0) == 0 && call.find("FUTEX_WAKE_PRIVATE, 2147483647") != std::string::npos;
}

TEST_CASE("steady state: proxy threads allocate nothing, and a command reaches its post without a system call",
          "[steady]") {
  Tracer tracer;
  std::string why_not;
  std::set<std::string> calls;
  run_ranks(2, {.seconds = 180}, [&](Rank& rank) {
    const auto begin = [&] {
      why_not = tracer.attach();
      counting = true;
    };
    const auto end = [&] {
      counting = false;
      if (why_not.empty()) calls = tracer.detach();
    };
    operate(rank, begin, end);
  });
  CHECK(counted == 0);
  if (!why_not.empty()) return skip_case("system calls: " + why_not);
  CHECK(!calls.empty());  // they have rested: the tracer did see them
  for (const std::string& call : calls) {
    INFO(call);
    CHECK(is_rest_or_wake(call));
  }
}

}  // namespace
}  // namespace ucclep::test

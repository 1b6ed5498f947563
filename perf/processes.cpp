// SPDX-License-Identifier: Apache-2.0
#include "processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <utility>

#include "api.hpp"

namespace ucclep::perf {
namespace {

constexpr int exec_failed = 127;

pid_t start(const Options& options, int fd, int index) {
  // All memory is taken before the fork: between fork and exec only system calls are safe.
  std::vector<std::string> arguments = {options.tool};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  arguments.push_back(fmt::format("--child={}:{}", fd, index));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw PerfError(fmt::format("cannot start a process: fork: {}", std::strerror(errno)));
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing is left behind if the parent is killed
  if (getppid() != parent || fcntl(fd, F_SETFD, 0) != 0) _exit(exec_failed);
  execv("/proc/self/exe", argv.data());
  _exit(exec_failed);
}

// What went wrong, or nothing if the process told its reason itself.
std::string abnormal_end(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
  if (WEXITSTATUS(status) == exec_failed) return "could not be started";
  if (WEXITSTATUS(status) > 1) return fmt::format("ended with exit code {}", WEXITSTATUS(status));
  return {};
}

}  // namespace

void wait_for_processes(std::map<pid_t, int> running, const std::function<void(pid_t, int, int)>& ended) {
  while (!running.empty()) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) throw PerfError(fmt::format("cannot wait for a process: waitpid: {}", std::strerror(errno)));
    const auto found = running.find(pid);
    if (found == running.end()) continue;
    const int index = found->second;
    running.erase(found);
    ended(pid, index, status);
  }
}

bool run_processes(const Options& options, SharedMemoryTeam& team) {
  std::map<pid_t, int> running;  // index of each
  for (int i = 0; i < options.processes; ++i) running[start(options, team.fd(), i)] = i;
  bool good = true;
  wait_for_processes(std::move(running), [&](pid_t pid, int index, int status) {
    if (status == 0) return;
    good = false;
    if (const std::string end = abnormal_end(status); !end.empty()) {
      const int first_rank = index * options.ranks_per_process(),
                last_rank = first_rank + options.ranks_per_process() - 1;
      const std::string ranks = first_rank == last_rank ? fmt::format("rank {}", first_rank)
                                                        : fmt::format("ranks {} to {}", first_rank, last_rank);
      team.fail(fmt::format("{}: process {} ({}) {}", options.tool, pid, ranks, end));
    }
  });
  return good;
}

}  // namespace ucclep::perf

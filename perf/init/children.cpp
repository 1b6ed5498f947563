// SPDX-License-Identifier: Apache-2.0
#include "init/children.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <map>

namespace ucclep::perf {
namespace {

void run_child(SharedMemoryTeam& team, int rank, const std::function<void(Team&)>& body) {
  try {
    body(*team.member(rank));
  } catch (const TeamFailed&) {  // the one that failed has said why
  } catch (const std::exception& error) {
    team.fail(fmt::format("process {}: {}", rank, error.what()));
  }
}

pid_t start(SharedMemoryTeam& team, int rank, const std::function<void(Team&)>& body) {
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) team.fail(fmt::format("fork: {}", std::strerror(errno)));
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing is left behind if the parent is killed
  if (getppid() == parent) run_child(team, rank, body);
  _exit(0);
}

}  // namespace

void run_in_children(int count, const std::function<void(Team&)>& body) {
  SharedMemoryTeam team(count);
  std::map<pid_t, int> running;  // rank of each
  for (int rank = 0; rank < count && team.failure().empty(); ++rank) running[start(team, rank, body)] = rank;
  running.erase(-1);
  while (!running.empty()) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) throw PerfError(fmt::format("waitpid: {}", std::strerror(errno)));
    const auto found = running.find(pid);
    if (found == running.end()) continue;
    if (status != 0) team.fail(fmt::format("process {} ended with wait status {}", found->second, status));
    running.erase(found);
  }
  if (!team.failure().empty()) throw PerfError(team.failure());
}

}  // namespace ucclep::perf

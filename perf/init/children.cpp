// SPDX-License-Identifier: Apache-2.0
#include "init/children.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include "processes.hpp"

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
  if (pid < 0) team.fail(fmt::format("cannot start a process: fork: {}", std::strerror(errno)));
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
  wait_for_processes(std::move(running), [&](pid_t, int rank, int status) {
    if (status != 0) team.fail(fmt::format("process {} ended with wait status {}", rank, status));
  });
  if (!team.failure().empty()) throw PerfError(team.failure());
}

}  // namespace ucclep::perf

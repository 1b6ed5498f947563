// SPDX-License-Identifier: Apache-2.0
// Ranks as processes of this machine.
#pragma once
#include <sys/types.h>

#include <functional>
#include <map>

#include "options.hpp"
#include "team.hpp"

namespace ucclep::perf {

// Waits until all these processes, by index, have ended: ended(pid, index, wait status) for each. They bound their own
// waits. Throws PerfError.
void wait_for_processes(std::map<pid_t, int> running, const std::function<void(pid_t, int, int)>& ended);

// Starts this program options.processes times with the same arguments, each as a part of the team, and waits for all.
// True if all succeeded. A process that dies fails the team, so that the others end.
bool run_processes(const Options& options, SharedMemoryTeam& team);

}  // namespace ucclep::perf

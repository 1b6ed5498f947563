// SPDX-License-Identifier: Apache-2.0
// Ranks as processes of this machine.
#pragma once
#include "options.hpp"
#include "team.hpp"

namespace ucclep::perf {

// Starts this program options.processes times with the same arguments, each as a part of the team, and waits for all.
// True if all succeeded. A process that dies fails the team, so that the others end.
bool run_processes(const Options& options, SharedMemoryTeam& team);

}  // namespace ucclep::perf

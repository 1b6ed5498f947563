// SPDX-License-Identifier: Apache-2.0
#include "cpus.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <cerrno>
#include <cstring>

#include "api.hpp"

namespace ucclep::perf {

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void run_on(std::span<const int> cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    throw PerfError(fmt::format("cannot run on CPU {}: {}", cpus.front(), std::strerror(errno)));
  }
}

}  // namespace ucclep::perf

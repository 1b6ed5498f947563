// SPDX-License-Identifier: Apache-2.0
#include "host/api/process_end.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/best_effort.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/fork.hpp"
#include "host/context/live_objects.hpp"

namespace ucclep {
namespace {

void give_up(ucclEpComm_t comm, int status) {
  const HeldComm held(comm, true);
  if (held.found().life != Life::alive) return;
  const std::string why = fmt::format("its process exited with status {}", status);
  best_effort("comm", "cannot report the end of this process to its peers",
              [&] { abort_comm(*comm, fmt::format("rank {} has ended: {}", comm->rank(), why), why); });
}

void await_destruction(const std::vector<ucclEpComm_t>& comms) {
  constexpr int grace_ms = 5000;
  int longest_ms = 0;
  for (ucclEpComm_t comm : comms) {
    const HeldComm held(comm, true);
    if (held.found().life == Life::alive) longest_ms = std::max(longest_ms, comm->timeout_ms());
  }
  const Deadline deadline = Deadline::after_ms(int64_t{longest_ms} + grace_ms);
  while (!live_comms(true).empty() && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void end_of_process(int status, void*) {
  if (status != 0) {
    for (ucclEpComm_t comm : live_comms(false)) give_up(comm, status);
  }
  await_destruction(live_comms(true));
}

}  // namespace

void watch_process_end() {
  constinit static MadeOnce<int> watched;
  watched.get([] { return on_exit(end_of_process, nullptr); });
}

void abort_comm(ucclEpComm& comm, const std::string& record, const std::string& why) {
  comm.faults->raise(ucclEpAborted, "ucclEpCommAbort", "abort", -1, record);
  comm.bootstrap->abort(why);
}

}  // namespace ucclep

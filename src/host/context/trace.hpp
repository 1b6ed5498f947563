// SPDX-License-Identifier: Apache-2.0
// UCCLEP_TRACE: what ran when. A process of the trace is a rank, and its tracks are the calls of the API, the
// operations of each group with their steps, and what went to and came from each rank over the network. Times are of
// the wall clock, so files of several ranks and machines fit together.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "device/device.hpp"
#include "host/context/trace_file.hpp"
#include "proxy/transfer_log.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep {

// Of a communicator.
class Trace {
 public:
  Trace(const std::string& pattern, int rank, Device& device, Deadline deadline);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  static int64_t now_ns();  // of calls and transfers
  // Any thread: a call of the API. One that took less than a microsecond is not worth a line.
  void add_call(const char* function, int64_t begin_ns, int64_t end_ns) noexcept;

 private:
  friend class GroupTrace;
  void write(const TraceEvents& events) noexcept;
  double device_us(uint64_t ns) const { return static_cast<double>(static_cast<int64_t>(ns) + device_to_wall_) / 1e3; }
  double host_us(int64_t ns) const { return static_cast<double>(ns + host_to_wall_) / 1e3; }

  const int rank_;
  std::mutex mutex_;
  TraceFile file_;
  TrackSet call_tracks_;
  TraceEvents calls_;
  int64_t host_to_wall_ = 0, device_to_wall_ = 0;
  uint32_t groups_ = 0;
};

// Of a group: where its kernels note their steps.
class GroupTrace {
 public:
  GroupTrace(Trace& trace, Device& device);
  ~GroupTrace();
  GroupTrace(const GroupTrace&) = delete;
  GroupTrace& operator=(const GroupTrace&) = delete;

  TraceEntry* entries() const { return entries_; }
  // When nothing of the group runs any more.
  void write(const std::vector<proxy::Transfer>& transfers) noexcept;

 private:
  void add_operations(TraceEvents& events, Kind kind) const;
  void add_transfers(TraceEvents& events, std::vector<proxy::Transfer> transfers) const;

  Trace& trace_;
  Device& device_;
  const uint32_t number_;
  TraceEntry* entries_;
};

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// UCCLEP_TRACE: what ran when, as a file that opens in Perfetto and chrome://tracing. A process of the trace is a rank,
// and its tracks are the calls of the API, the operations of each group with their steps, and what went to and came
// from each rank over the network. Times are of the wall clock, so files of several ranks and machines fit together.
#pragma once
#include <cstdint>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "device/device.hpp"
#include "proxy/transfer_log.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep {

// A JSON array without its last bracket, which the format allows: ranks and processes may append to one file, each some
// whole events at once.
class TraceFile {
 public:
  // Throws Error(ucclEpSystemError) that names the variable.
  explicit TraceFile(std::string name);
  // What cannot be written is lost, and said once.
  void append(const std::vector<nlohmann::json>& events) noexcept;

 private:
  std::string name_;
  Fd fd_;
  bool failed_ = false;
};

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
  void write(const std::vector<nlohmann::json>& events) noexcept;
  nlohmann::json track_name(int64_t track, const std::string& name) const;
  double device_us(uint64_t ns) const { return static_cast<double>(static_cast<int64_t>(ns) + device_to_wall_) / 1e3; }
  double host_us(int64_t ns) const { return static_cast<double>(ns + host_to_wall_) / 1e3; }

  const int rank_;
  std::mutex mutex_;
  TraceFile file_;
  std::vector<nlohmann::json> calls_;
  int64_t host_to_wall_ = 0, device_to_wall_ = 0;
  uint32_t groups_ = 0;
};

// Of a group: where its kernels note their steps.
class GroupTrace {
 public:
  GroupTrace(Trace& trace, Device& device, const GroupShape& shape);
  ~GroupTrace();
  GroupTrace(const GroupTrace&) = delete;
  GroupTrace& operator=(const GroupTrace&) = delete;

  TraceEntry* entries() const { return entries_; }
  // When nothing of the group runs any more.
  void write(const std::vector<proxy::Transfer>& transfers) noexcept;

 private:
  void add_operations(std::vector<nlohmann::json>& events, Kind kind) const;
  void add_transfer(std::vector<nlohmann::json>& events, const proxy::Transfer& transfer) const;

  Trace& trace_;
  Device& device_;
  const uint32_t number_, in_flight_;
  TraceEntry* entries_;
};

}  // namespace ucclep

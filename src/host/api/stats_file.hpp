// SPDX-License-Identifier: Apache-2.0
// UCCLEP_STATS_DIR: what a communicator has done, in a file of a folder, for `python -m ucclep.top`. A thread of its
// own reads counters that are there anyway, and replaces the file twice a second. docs/top.md has the fields.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>

#include "base/fd.hpp"
#include "base/thread.hpp"

struct ucclEpComm;

namespace ucclep {

class StatsFile {
 public:
  // Makes the folder if it is missing, for this user alone. Error(ucclEpSystemError) names the variable.
  explicit StatsFile(std::string folder);
  ~StatsFile();  // removes the file
  StatsFile(const StatsFile&) = delete;
  StatsFile& operator=(const StatsFile&) = delete;

  void start(const ucclEpComm& comm);  // which outlives this

 private:
  void serve(const ucclEpComm& comm);
  void replace(const std::string& text) noexcept;

  std::string folder_name_, name_;
  Fd folder_;
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false, failed_ = false;
  ServiceThread thread_;
};

}  // namespace ucclep

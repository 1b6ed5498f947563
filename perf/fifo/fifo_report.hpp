// SPDX-License-Identifier: Apache-2.0
// The table of fifo_perf, what it says at the end, and its JSON file.
#pragma once
#include <string>
#include <vector>

#include "environment.hpp"
#include "fifo/command_line.hpp"
#include "fifo/measurements.hpp"

namespace ucclep::perf {

class FifoReport {
 public:
  FifoReport(const FifoOptions& options, const std::string& kind, const std::string& device);
  void row(const FifoRow& row);
  bool close();  // whether commands were verified and none is wrong

 private:
  void report_targets() const;
  std::string write_json() const;

  const FifoOptions& options_;
  const std::string kind_, device_;
  const Environment environment_;
  const std::string start_time_;
  std::vector<FifoRow> rows_;
};

}  // namespace ucclep::perf

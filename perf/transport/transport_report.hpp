// SPDX-License-Identifier: Apache-2.0
// The table of transport_perf, what it says at the end, and its JSON file.
#pragma once
#include <string>
#include <vector>

#include "environment.hpp"
#include "transport/measurements.hpp"

namespace ucclep::perf {

class TransportReport {
 public:
  explicit TransportReport(const TransportOptions& options);
  void row(const TransportRow& row);
  bool close();  // whether messages were verified and none is wrong

 private:
  void report_target() const;
  std::string write_json() const;

  const TransportOptions& options_;
  const Environment environment_;
  const std::string start_time_;
  std::vector<TransportRow> rows_;
};

}  // namespace ucclep::perf

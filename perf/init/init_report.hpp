// SPDX-License-Identifier: Apache-2.0
// What init_perf prints and writes.
#pragma once
#include <string>
#include <vector>

#include "environment.hpp"
#include "init/command_line.hpp"
#include "init/measurements.hpp"

namespace ucclep::perf {

class InitReport {
 public:
  explicit InitReport(const InitOptions& options);
  void row(const InitRow& row);
  bool close();  // whether nothing was wrong

 private:
  std::string write_json() const;

  InitOptions options_;
  Environment environment_;
  std::string start_time_;
  double start_load_;
  std::vector<InitRow> rows_;
};

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
// The table of ceiling_perf and its JSON file.
#pragma once
#include <string>
#include <vector>

#include "ceiling/ceilings.hpp"
#include "environment.hpp"

namespace ucclep::perf {

class CeilingReport {
 public:
  CeilingReport(const CeilingOptions& options, const Machine& machine);
  void row(const Ceiling& ceiling);
  // Prints the closing lines and writes the file. True if rows were verified and none is wrong.
  bool close();

 private:
  std::string write_json() const;

  const CeilingOptions& options_;
  const Machine& machine_;
  const Environment environment_;
  const std::string start_time_;
  std::vector<Ceiling> results_;
};

}  // namespace ucclep::perf

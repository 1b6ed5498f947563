// SPDX-License-Identifier: Apache-2.0
// Starts the ranks as threads, as processes, or as members of an MPI job, and runs a tool on each.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "endpoint.hpp"
#include "measurement.hpp"

namespace ucclep::perf {

struct Tool {
  std::string name;
  std::string description;
  std::vector<std::string> series;  // what a row of the table has
  bool combines;
  std::function<SizeResult(Endpoint&, int tokens)> measure;
};

// main() of a tool: 0 = rows were verified and none is wrong, 1 = anything else, 2 = a bad command line.
int run_tool(int argc, char** argv, const Tool& tool);

// Adds the next iteration of a series to it: prepares, runs the parts in turn, checks.
struct Step {
  std::function<void()> before;     // untimed, may be empty
  std::function<void()> operation;  // timed
  std::function<Tally()> check;
};
Series measure_series(Endpoint& endpoint, const std::string& name, size_t row_bytes, const Step& step);

}  // namespace ucclep::perf

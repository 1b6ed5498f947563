// SPDX-License-Identifier: Apache-2.0
// Starts the ranks as threads, as processes, or as members of an MPI job, and runs a tool on each.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "endpoint.hpp"
#include "measurement.hpp"

namespace ucclep::perf {

// How one series is measured.
struct Plan {
  std::string name;
  std::vector<Part> parts;          // that move rows
  std::function<void()> before;     // untimed, may be empty
  std::function<void()> operation;  // timed
  std::function<Tally()> check;     // all ranks call it
  int rounds = 1;                   // that the operation consists of
  bool captures = true;             // with --graph
};

struct Tool {
  std::string name;
  std::string description;
  bool combines;
  std::function<std::vector<Plan>(Endpoint&)> plan;  // the series of a row of the table
  Timed timed = Timed::calls;                        // rounds: the series take turns, and times relate to the first
};

// Runs `rank` on every rank, as threads, processes or members of an MPI job. True if all returned true. What a rank
// throws ends all, and is printed once.
bool run_ranks(const Options& options, const std::function<bool(Team&)>& rank);
// Reports what `work` throws to the team. The caller's objects are alive then: they abort a communicator when they are
// destroyed, and the errors of other ranks that follow come second.
void report_failure(const Options& options, Team& team, const std::function<void()>& work);
// The exit code of main(): `work` returns whether all is right, and a UsageError is 2.
int run_main(const std::string& tool, const std::function<bool()>& work);

// main() of a tool: 0 = rows were verified and none is wrong, 1 = anything else, 2 = a bad command line.
int run_tool(int argc, char** argv, const Tool& tool);

}  // namespace ucclep::perf

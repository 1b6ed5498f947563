// SPDX-License-Identifier: Apache-2.0
// What a size's iterations gave, and how samples become figures.
#pragma once
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "verify.hpp"
#include "workload.hpp"

namespace ucclep::perf {

struct Sample {
  double host_us = 0;    // by the clock, around the calls and the synchronisation of the stream
  double device_us = 0;  // by the device's events around the operation
  double call_ns = 0;    // by the clock, of the calls alone: what they cost the host
};

// Where times come from.
struct Timing {
  bool events = false;   // device_us counts, else host_us
  bool aligned = false;  // ranks start inside an untimed operation, not at a barrier of the host
};

// What all ranks' proxies sent in the timed iterations, and what had to cross.
struct Wire {
  uint64_t bytes = 0, messages = 0;
  uint64_t commands = 0;  // of kernels
  Crossing rows;
};

// One timed thing ("dispatch", "combine", ..) at one size.
struct Series {
  std::string name;
  size_t row_bytes = 0;  // of all parts, 0: it moves none
  int rounds = 1;        // that a timed operation consists of; times are those of one
  std::vector<Part> parts;
  std::vector<Sample> samples;  // of each timed iteration; after merging, of the slowest rank
  Traffic traffic;              // of all timed iterations and all ranks
  Wire wire;
  Tally tally;

  // Of an iteration: its name has one for each, as "dispatch+combine".
  int operations() const { return 1 + static_cast<int>(std::count(name.begin(), name.end(), '+')); }
};

struct SizeResult {
  int tokens = 0;
  std::vector<Series> series;
};

struct Statistics {
  double p50 = 0, p99 = 0, min = 0, max = 0, mean = 0, deviation = 0;
};

// Percentiles by nearest rank. values is not empty.
Statistics statistics(std::vector<double> values);

struct Bandwidths {
  double wire = 0, logical = 0, selection = 0;  // GB/s per rank
};

Bandwidths bandwidths(const Series& series, int ranks, double time_us);

// Of an iteration, over all ranks.
struct WireFigures {
  double bytes = 0, messages = 0, commands = 0;
  double must_cross_rows = 0, must_cross_bytes = 0;
  double messages_allowed = 0;  // for each ordered pair of ranks of two nodes 2, and one for each 32 KiB
};
WireFigures wire_figures(const Series& series, const std::vector<int>& node_of_rank);

class Team;
// Makes a rank's result everybody's: the slowest rank of each iteration, the tallies of all.
void merge(Team& team, SizeResult& result);

}  // namespace ucclep::perf

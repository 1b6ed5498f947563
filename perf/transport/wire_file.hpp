// SPDX-License-Identifier: Apache-2.0
// What operations between nodes put on the wire, read from a JSON file of dispatch_perf or combine_perf.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ucclep::perf {

// Of one rank, on average.
struct WireOperation {
  std::string name;  // "dispatch+combine"
  int ranks = 0, tokens = 0;
  bool low_latency = false;
  uint64_t bytes = 0, messages = 0;  // bytes: of a message
  double us = 0;                     // of the operation

  // What it may take where the same messages alone take `wire_us`.
  double allowed_us(double wire_us) const;
};

// Throws UsageError where the file is none, or nothing in it crossed nodes.
std::vector<WireOperation> read_wire_file(const std::string& path);

}  // namespace ucclep::perf

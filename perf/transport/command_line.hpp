// SPDX-License-Identifier: Apache-2.0
// The command line of transport_perf.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "transport/wire_file.hpp"

namespace ucclep::perf {

// One of the processes that measure.
struct Place {
  int pair = 0, side = 0;

  // As ranks of two nodes are numbered: those of side 0 come first.
  int of_all(int pairs) const { return side * pairs + pair; }
};

struct TransportOptions {
  std::vector<std::string> arguments;  // as given, for the JSON file
  std::string transport = "loopback", nic;
  std::string memory = "host", device = "auto";  // of which pinned memory is
  std::vector<uint64_t> bytes = {64, 7168, 65536};
  std::vector<int> windows = {64};
  uint64_t slots = 0;     // places that the messages of a side have, in turn; 0: as many as the window
  bool both = false;      // each side sends
  int pairs = 1;          // that do the same at once
  double seconds = 0.2;   // of a run, about
  uint64_t messages = 0;  // of a run; 0: what takes `seconds`
  int repeats = 5;
  std::string bare;                       // the baseline: a program
  std::vector<WireOperation> operations;  // of the file --as: they are the rows, in the place of `bytes` and `slots`
  std::string listen, connect;            // two machines: a port; host:port
  std::vector<int> cpus;                  // by Place::of_all; none: any
  int timeout_ms = 10000;
  bool corrupt = false;
  std::string json;
};

// --help and --version print and leave `done` set. Throws UsageError.
TransportOptions parse_transport_options(int argc, char** argv, bool* done);

}  // namespace ucclep::perf

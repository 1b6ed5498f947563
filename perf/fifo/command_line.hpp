// SPDX-License-Identifier: Apache-2.0
// The command line of fifo_perf.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ucclep::perf {

struct FifoOptions {
  std::vector<std::string> arguments;  // as given, for the JSON file
  std::string device = "auto";         // cuda, hip, host, threads; auto: the GPU of the machine, else threads
  int index = 0;                       // of the GPU
  std::vector<int> producers, rings = {1}, batches;
  uint64_t commands = 0;  // of a run; 0: what takes a fraction of a second
  int rounds = 0;         // of a round trip; 0: likewise
  int repeats = 5, warmup = 1;
  int poll = 64;          // commands that the reader takes at a time
  int capacity_log2 = 0;  // of a ring; 0: the library's choice
  std::vector<int> cpus;  // of the reader, then of producers that are threads; none: in the order of the machine's
  int timeout_ms = 10000;
  bool corrupt = false;
  std::string json;

  std::span<const int> reader_cpu() const { return {cpus.data(), 1}; }
  // All but the reader's, if there are more.
  std::span<const int> other_cpus() const { return std::span(cpus).subspan(cpus.size() > 1 ? 1 : 0); }

  // What depends on the device, where it was not given.
  void fill_in(const std::string& kind);
};

// --help and --version print and leave `done` set. Throws UsageError.
FifoOptions parse_fifo_options(int argc, char** argv, bool* done);

}  // namespace ucclep::perf

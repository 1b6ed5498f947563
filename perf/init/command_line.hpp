// SPDX-License-Identifier: Apache-2.0
// The command line of init_perf.
#pragma once
#include <string>
#include <vector>

namespace ucclep::perf {

struct InitOptions {
  std::vector<std::string> arguments;  // as given, for the JSON file
  std::vector<int> ranks = {2, 4, 8, 16, 32, 64, 128, 256, 512};
  int most_real = 64;  // of the numbers of ranks, those up to this also with real ones
  int repeats = 5, warmup = 1;
  int timeout_ms = 120000;
  bool corrupt = false;
  std::string json;
};

// --help and --version print and leave `done` set. Throws UsageError.
InitOptions parse_init_options(int argc, char** argv, bool* done);

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
// The command line of ceiling_perf.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "workload.hpp"

namespace ucclep::perf {

struct CeilingOptions {
  std::vector<std::string> arguments;  // as given, for the JSON file
  int ranks = 0;                       // 0: all GPUs of the machine, on the host device 4
  std::vector<int> ht_tokens = {4096}, ll_tokens = {128};
  int hidden = 7168, experts = 256, topk = 8;
  double skew = 0;
  uint64_t seed = 1;
  int iterations = 20, warmup = 2;
  int sms = 24;     // of HT
  int ll_sms = 0;   // 0: all
  int rounds = 50;  // of LL in one launch, for the time without a launch
  int timeout_ms = 10000;
  bool corrupt = false;
  std::string device = "auto";
  bool share_gpus = false;
  std::string json;

  Shape shape(int of_ranks) const;
};

// --help and --version print and leave `done` set. Throws UsageError.
CeilingOptions parse_ceiling_options(int argc, char** argv, bool* done);

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
// One number of ranks, measured with real ranks or with simulated ones.
#pragma once
#include <cstdint>
#include <vector>

#include "init/command_line.hpp"

namespace ucclep::perf {

struct InitRow {
  int ranks = 0;
  bool real = false;
  std::vector<double> init_ms, group_ms;  // of each repeat
  std::vector<double> sent, received;     // bytes of a rank in the rounds of ucclEpGroupCreate
  uint64_t verified = 0, wrong = 0;       // calls of real ranks, results of rounds of simulated ones
};

// Throw PerfError.
InitRow measure_real(const InitOptions& options, int ranks);
InitRow measure_simulated(const InitOptions& options, int ranks);

// Whether ranks of both sorts sent and got the same, within 2 %.
bool same_bytes(const InitRow& real, const InitRow& simulated);

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
// What ceiling_perf measures, one after the other.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "ceiling/machine.hpp"
#include "verify.hpp"

namespace ucclep::perf {

struct Ceiling {
  std::string name, dtype;
  int tokens = 0;
  size_t row_bytes = 0;
  unsigned sms = 0;
  int rounds = 1;                          // of one launch; times are per round
  uint64_t remote_rows = 0, all_rows = 0;  // of all ranks, in one round
  double floor_us = 0;                     // what such a kernel is known to take on 4 H200, 0: not known
  std::vector<double> us;
  Tally tally;
};

// done(ceiling) after each.
void measure_ceilings(Machine& machine, const CeilingOptions& options, const std::function<void(const Ceiling&)>& done);

// The machine and the shape that the floors belong to; they hold for 4096 and 128 tokens.
bool floors_apply(const Machine& machine, const CeilingOptions& options);

}  // namespace ucclep::perf

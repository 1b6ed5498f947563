// SPDX-License-Identifier: Apache-2.0
// All rows of a run of fifo_perf, one after the other.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "comparison.hpp"
#include "fifo/bench.hpp"

namespace ucclep::perf {

struct FifoRow : Comparison {
  std::string name;
  const char* unit = "";  // M/s, of which more is better, or us
  RateCase what;
  double ratio() const;  // of the medians; 0 without a baseline
};

void measure_fifo(Bench& bench, const FifoOptions& options, const std::function<void(const FifoRow&)>& done);

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
// A run as JSON: everything that the table says, every option, the whole environment, every sample.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "report.hpp"

namespace ucclep::perf {

struct JsonInput {
  const Options& options;
  const Environment& environment;
  const std::vector<RankInfo>& ranks;
  const GroupMemory& memory;
  const Timing& timing;
  const std::string& start_time;
  const std::vector<SizeResult>& results;
  const Tally& tally;
  std::vector<int> node_of_rank;
  // What a time is related to, the library's or the ceiling; 0: not known.
  std::function<double(const Series&, const SizeResult&)> yardstick_us;
};

Json run_json(const JsonInput& input);

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
// A run as one JSON file: everything that the table says, every option, the whole environment, every sample.
#pragma once
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
};

// Writes to options.json, or with .1, .2, .. appended if that exists; returns the name.
std::string write_json_file(const JsonInput& input);

}  // namespace ucclep::perf

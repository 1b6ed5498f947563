// SPDX-License-Identifier: Apache-2.0
// What fifo_perf and transport_perf say alike: ours next to a baseline, and how a run ends.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "json_parts.hpp"

namespace ucclep::perf {

// What a row has beside its name and its sizes.
struct Comparison {
  std::vector<double> values;  // of each repeat
  std::vector<double> bare;    // of the baseline, if there is one
  uint64_t verified = 0, wrong = 0;
};

Json comparison_json(const Comparison& row, double ratio);

// The last lines of a run: whether things were verified and none is wrong. json_file: what was written, or "".
bool conclude(uint64_t verified, uint64_t wrong, const char* things, const std::string& json_file);

template <class Row>
bool conclude(const std::vector<Row>& rows, const char* things, const std::string& json_file) {
  uint64_t verified = 0, wrong = 0;
  for (const Comparison& row : rows) {
    verified += row.verified;
    wrong += row.wrong;
  }
  return conclude(verified, wrong, things, json_file);
}

}  // namespace ucclep::perf

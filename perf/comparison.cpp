// SPDX-License-Identifier: Apache-2.0
#include "comparison.hpp"

#include "line.hpp"

namespace ucclep::perf {

Json comparison_json(const Comparison& row, double ratio) {
  Json json = {{"value", statistics_json(row.values)}};
  if (!row.bare.empty()) {
    json["bare"] = statistics_json(row.bare);
    json["ratio"] = ratio;
  }
  json["verified"] = row.verified;
  json["wrong"] = row.wrong;
  return json;
}

bool conclude(uint64_t verified, uint64_t wrong, const char* things, const std::string& json_file) {
  const bool good = wrong == 0 && verified > 0;
  line("# Out of bounds values : {} {}", wrong, good ? "OK" : "FAILED");
  if (!json_file.empty()) line("# JSON: {}", json_file);
  line("verified {} {}, {} wrong", verified, things, wrong);
  return good;
}

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
#include "json_parts.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "api.hpp"
#include "measurement.hpp"
#include "version.hpp"

namespace ucclep::perf {

Json environment_json(const Environment& e) {
  return {{"host", e.host},
          {"system", e.system},
          {"cpu", e.cpu},
          {"cores", e.cores},
          {"memory_bytes", e.memory_bytes},
          {"compiler", e.compiler},
          {"build", e.build},
          {"tool_version", version},
          {"commit", commit},
          {"library_version", e.library_version},
          {"library_build", e.library_build},
          {"variables", e.variables}};
}

Json statistics_json(const std::vector<double>& samples) {
  const Statistics s = statistics(samples);
  return {{"p50", s.p50},   {"p99", s.p99},          {"min", s.min},      {"max", s.max},
          {"mean", s.mean}, {"stddev", s.deviation}, {"samples", samples}};
}

std::string write_json_to(const std::string& wanted, const Json& json) {
  std::string name = wanted;
  for (int i = 1; std::filesystem::exists(name); ++i) name = fmt::format("{}.{}", wanted, i);
  std::ofstream file(name);
  file << json.dump(2) << '\n';
  if (!file.flush()) throw PerfError(fmt::format("cannot write {}", name));
  return name;
}

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
#include "ceiling_file.hpp"

#include <fmt/format.h>

#include <fstream>

#include "api.hpp"
#include "json_parts.hpp"

namespace ucclep::perf {
namespace {

void check_same_shape(const std::string& path, const Json& measured, const Options& options) {
  const Json mine = {{"ranks", options.ranks()},
                     {"hidden", options.hidden},
                     {"experts", options.experts},
                     {"topk", options.topk},
                     {"skew", options.skew}};
  for (const auto& [name, value] : mine.items()) {
    const Json& theirs = measured.at(name);
    if (theirs != value) {
      throw PerfError(fmt::format("--ceiling {}: it was measured with {} {}, this run has {}", path, name,
                                  theirs.dump(), value.dump()));
    }
  }
}

const char* bare_dispatch(const Options& options) {
  if (options.mode != "ll" || options.layout != "expert_major") return "dispatch";
  return options.quant ? "dispatch-cast" : "dispatch-experts";
}

}  // namespace

CeilingFile::CeilingFile(const std::string& path, const Options& options)
    : mode_(options.mode), dispatch_(bare_dispatch(options)) {
  std::ifstream file(path);
  if (!file) throw PerfError(fmt::format("--ceiling {}: the file cannot be read", path));
  try {
    const Json json = Json::parse(file);
    check_same_shape(path, json.at("options"), options);
    for (const Json& result : json.at("results")) {
      if (result.at("rounds") != 1) continue;  // a time without its launch
      entries_.push_back(
          {result.at("name"), result.at("tokens"), result.at("row_bytes"), result.at("time_us").at("p50")});
    }
  } catch (const Json::exception& error) {
    throw PerfError(fmt::format("--ceiling {}: not a file of ceiling_perf: {}", path, error.what()));
  }
}

double CeilingFile::us(const std::string& operation, int tokens, size_t row_bytes) const {
  const std::string name = mode_ + "-" + (operation == "dispatch" ? dispatch_ : operation);
  for (const Entry& entry : entries_) {
    if (entry.name == name && entry.tokens == tokens && entry.row_bytes == row_bytes) {
      return entry.us;
    }
  }
  return 0;
}

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
#include "transport/wire_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "json_parts.hpp"
#include "options.hpp"

namespace ucclep::perf {
namespace {

WireOperation operation_of(const Json& series, const Json& sent, int ranks) {
  constexpr uint64_t unit = 16;
  const double messages = std::max(1.0, sent.at("messages").get<double>() / ranks);
  WireOperation operation;
  operation.ranks = ranks;
  operation.name = series.at("name");
  operation.messages = static_cast<uint64_t>(messages + 0.5);
  const double bytes = sent.at("bytes").get<double>() / ranks / static_cast<double>(operation.messages);
  operation.bytes = (static_cast<uint64_t>(bytes) + unit - 1) / unit * unit;
  operation.us = series.at(series.at("time").get<std::string>()).at("p50");
  return operation;
}

}  // namespace

double WireOperation::allowed_us(double wire_us) const {
  return low_latency ? 1.5 * wire_us + 25 : wire_us / 0.8;
}

std::vector<WireOperation> read_wire_file(const std::string& path) {
  std::vector<WireOperation> operations;
  std::ifstream file(path);
  if (!file) throw UsageError(fmt::format("--as {}: the file cannot be read", path));
  try {
    const Json json = Json::parse(file);
    const auto ranks = static_cast<int>(json.at("ranks").size());
    for (const Json& result : json.at("results")) {
      for (const Json& series : result.at("series")) {
        if (!series.contains("on_the_wire")) continue;
        operations.push_back(operation_of(series, series.at("on_the_wire"), ranks));
        operations.back().tokens = result.at("tokens");
        operations.back().low_latency = json.at("options").at("mode") == "ll";
      }
    }
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("--as {}: not a file of dispatch_perf or combine_perf: {}", path, error.what()));
  }
  if (operations.empty()) throw UsageError(fmt::format("--as {}: no operation in it crossed nodes", path));
  return operations;
}

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
// What the JSON files of all tools share.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "environment.hpp"

namespace ucclep::perf {

using Json = nlohmann::ordered_json;

Json environment_json(const Environment& environment);
// Percentiles and all samples.
Json statistics_json(const std::vector<double>& samples);
// Writes to that file, or with .1, .2, .. appended if it exists; returns the name.
std::string write_json_to(const std::string& wanted, const Json& json);

}  // namespace ucclep::perf

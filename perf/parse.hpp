// SPDX-License-Identifier: Apache-2.0
// Every tool's command line is parsed alike: a mistake is one message that names --help.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <sstream>
#include <string>

#include "../apps/standard_output.hpp"
#include "options.hpp"

namespace ucclep::perf {

inline void require(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

// 0 stands for an option that is not given, and may not be given.
inline void require_not_zero(const CLI::App& app, const char* option, uint64_t value, int least = 1) {
  require(app.count(option) == 0 || value != 0, fmt::format("{} {}: expected at least {}", option, value, least));
}

// For options without a sign, of which CLI11 would make large numbers.
inline CLI::Validator not_negative() {
  return {[](std::string& text) { return text.front() == '-' ? text + ": expected 0 or more" : std::string(); }, ""};
}

inline const char* const json_help =
    "Write options, environment and all samples to this file, or where it exists to FILE.1, FILE.2, and so on";

// False: --help or --version was asked for, and is printed. Throws UsageError.
inline bool parse(CLI::App& app, int argc, char** argv) {
  hold_standard_descriptors();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    std::ostringstream text;
    app.exit(request, text, text);
    print(text.str());
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{} (see --help)", error.what()));
  }
  return true;
}

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
// Every tool's command line is parsed alike: a mistake is one message that names --help.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "options.hpp"

namespace ucclep::perf {

inline void require(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

// False: --help or --version was asked for, and is printed. Throws UsageError.
inline bool parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    app.exit(request);
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{} (see --help)", error.what()));
  }
  return true;
}

}  // namespace ucclep::perf

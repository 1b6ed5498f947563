// SPDX-License-Identifier: Apache-2.0
// Measures how long plain copy kernels take for the bytes that dispatch and combine move: the speed-of-light bound of a
// machine at that time.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "ceiling/ceiling_report.hpp"
#include "options.hpp"

using namespace ucclep::perf;

int main(int argc, char** argv) {
  try {
    bool done = false;
    const CeilingOptions options = parse_ceiling_options(argc, argv, &done);
    if (done) return 0;
    Machine machine(options);
    if (options.experts % machine.ranks() != 0) {
      throw UsageError(fmt::format("--experts {} is not a multiple of the {} ranks", options.experts, machine.ranks()));
    }
    if (options.skew < 0 || options.skew > machine.ranks()) {
      throw UsageError(fmt::format("--skew {}: expected 0 to {}, the number of ranks", options.skew, machine.ranks()));
    }
    CeilingReport report(options, machine);
    measure_ceilings(machine, options, [&](const Ceiling& ceiling) { report.row(ceiling); });
    return report.close() ? 0 : 1;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "ceiling_perf: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ceiling_perf: %s\n", error.what());
    return 1;
  }
}

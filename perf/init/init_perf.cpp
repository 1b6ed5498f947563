// SPDX-License-Identifier: Apache-2.0
// Measures how init and the creation of a group between nodes grow with the number of ranks.
#include <cstdio>
#include <exception>

#include "init/init_report.hpp"
#include "line.hpp"
#include "options.hpp"

using namespace ucclep::perf;

namespace {

void measure(const InitOptions& options, int ranks, InitReport& report) {
  InitRow simulated = measure_simulated(options, ranks);
  if (ranks <= options.most_real) {
    const InitRow real = measure_real(options, ranks);
    report.row(real);
    if (!same_bytes(real, simulated)) ++simulated.wrong;
  }
  report.row(simulated);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    bool done = false;
    const InitOptions options = parse_init_options(argc, argv, &done);
    if (done) return 0;
    InitReport report(options);
    for (const int ranks : options.ranks) measure(options, ranks, report);
    return report.close() ? 0 : 1;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "init_perf: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "init_perf: %s\n", error.what());
    return 1;
  }
}

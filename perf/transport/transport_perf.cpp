// SPDX-License-Identifier: Apache-2.0
// Measures a transport between two processes, of this machine or of two, and checks what arrives.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "cpus.hpp"
#include "options.hpp"
#include "transport/channel.hpp"
#include "transport/side.hpp"
#include "transport/transport_report.hpp"

using namespace ucclep;
using namespace ucclep::perf;

namespace {

void stay(const TransportOptions& options, size_t side) {
  if (!options.cpus.empty()) run_on(std::span(options.cpus).subspan(side, 1));
}

bool lead(const TransportOptions& options, Fd socket) {
  stay(options, 0);
  Side side(0, options, Channel(std::move(socket), options.timeout_ms));
  TransportReport report(options);
  measure_transport(side, options, [&](const TransportRow& row) { report.row(row); });
  return report.close();
}

int guarded(auto&& body) {
  try {
    return body() ? 0 : 1;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "transport_perf: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "transport_perf: %s\n", error.what());
    return 1;
  }
}

// The side that follows waits through what its user does elsewhere, and through the runs of the yardstick.
int patience_ms(const TransportOptions& options) {
  return 60 * options.timeout_ms;
}

bool follow(const TransportOptions& options, Fd socket) {
  stay(options, 1);
  Side(1, options, Channel(std::move(socket), patience_ms(options))).follow();
  return true;
}

// Neither side has opened anything yet: what a NIC's library holds does not survive a fork.
bool run_both(const TransportOptions& options) {
  auto [mine, childs] = Channel::pair();
  const pid_t child = fork();
  if (child < 0) fail(ucclEpSystemError, "fork failed");
  if (child == 0) {
    mine.reset();
    _exit(guarded([&, socket = std::move(childs)]() mutable { return follow(options, std::move(socket)); }));
  }
  childs.reset();
  const bool good = lead(options, std::move(mine));
  int status = 0;
  waitpid(child, &status, 0);
  return good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  return guarded([&] {
    bool done = false;
    const TransportOptions options = parse_transport_options(argc, argv, &done);
    if (done) return true;
    if (!options.listen.empty()) return follow(options, Channel::listen(options.listen, patience_ms(options)));
    if (!options.connect.empty()) return lead(options, Channel::connect(options.connect, options.timeout_ms));
    return run_both(options);
  });
}

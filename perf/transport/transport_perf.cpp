// SPDX-License-Identifier: Apache-2.0
// Measures a transport between two processes, of this machine or of two, or between more such pairs at once, and checks
// what arrives.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cpus.hpp"
#include "options.hpp"
#include "transport/channel.hpp"
#include "transport/other_pairs.hpp"
#include "transport/side.hpp"
#include "transport/transport_report.hpp"

using namespace ucclep;
using namespace ucclep::perf;

namespace {

void stay(const TransportOptions& options, Place place) {
  const auto index = static_cast<size_t>(place.of_all(options.pairs));
  if (!options.cpus.empty()) run_on(std::span(options.cpus).subspan(index, 1));
}

// The side that follows waits through what its user does elsewhere, and through the runs of the baseline.
int patience_ms(const TransportOptions& options) {
  return 60 * options.timeout_ms;
}

Side open_side(const TransportOptions& options, Place place, Fd socket) {
  stay(options, place);
  return {place, options, Channel(std::move(socket), place.side == 0 ? options.timeout_ms : patience_ms(options))};
}

bool follow(const TransportOptions& options, int pair, Fd socket) {
  open_side(options, {.pair = pair, .side = 1}, std::move(socket)).follow();
  return true;
}

// Of the first pair, which leads the others.
bool lead(const TransportOptions& options, Fd socket, OtherPairs others) {
  Side side = open_side(options, {.pair = 0, .side = 0}, std::move(socket));
  TransportReport report(options);
  const auto run_everywhere = [&](const TransportRun& run) {
    others.begin(run);
    const TransportResult own = side.lead(run, [&] { others.start(); });
    return others.slowest(own);
  };
  measure_transport(run_everywhere, options, [&](const TransportRow& row) { report.row(row); });
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

// The processes that this one has forked. Nobody has opened anything yet then: what a NIC's library holds does not
// survive a fork.
class Children {
 public:
  // body: of the child, which gets one end of a channel; the other one is returned.
  Fd fork_one(const std::function<bool(Fd)>& body) {
    auto [mine, theirs] = Channel::pair();
    const pid_t child = fork();
    if (child < 0) fail(ucclEpSystemError, "cannot start a process: fork failed");
    if (child == 0) {
      mine.reset();
      _exit(guarded([&, socket = std::move(theirs)]() mutable { return body(std::move(socket)); }));
    }
    pids_.push_back(child);
    return std::move(mine);
  }
  // Whether all of them ended well.
  bool wait() const {
    bool good = true;
    for (const pid_t pid : pids_) {
      int status = 0;
      waitpid(pid, &status, 0);
      good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return good;
  }

 private:
  std::vector<pid_t> pids_;
};

bool run_another_pair(const TransportOptions& options, int pair, Fd first) {
  Children children;
  Fd socket = children.fork_one([&](Fd end) {
    first.reset();
    return follow(options, pair, std::move(end));
  });
  Side side = open_side(options, {.pair = pair, .side = 0}, std::move(socket));
  follow_first_pair(side, Channel(std::move(first), patience_ms(options)));
  return children.wait();
}

bool run_all(const TransportOptions& options) {
  Children children;
  std::vector<Fd> others;
  for (int pair = 1; pair < options.pairs; ++pair) {
    others.push_back(children.fork_one([&](Fd first) {
      others.clear();
      return run_another_pair(options, pair, std::move(first));
    }));
  }
  Fd socket = children.fork_one([&](Fd end) {
    others.clear();
    return follow(options, 0, std::move(end));
  });
  const bool good = lead(options, std::move(socket), OtherPairs(std::move(others), patience_ms(options)));
  return children.wait() && good;
}

}  // namespace

int main(int argc, char** argv) {
  return guarded([&] {
    bool done = false;
    const TransportOptions options = parse_transport_options(argc, argv, &done);
    if (done) return true;
    if (!options.listen.empty()) return follow(options, 0, Channel::listen(options.listen, patience_ms(options)));
    if (!options.connect.empty()) return lead(options, Channel::connect(options.connect, options.timeout_ms), {});
    return run_all(options);
  });
}

// SPDX-License-Identifier: Apache-2.0
#include "init/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "options.hpp"
#include "parse.hpp"
#include "version.hpp"

namespace ucclep::perf {
namespace {

const char* const init_description =
    "Measures the time of init against the number of ranks: ucclEpCommInitRank, and ucclEpGroupCreate between nodes.";

const char* const init_footer = R"(Rows of the table:
  real       ranks are processes of this machine on the host device, each a node of its own,
             joined by loopback
  simulated  rank 0 is the library's, the others are sockets of one process: they join the
             rendezvous and the hub, and take part in the same rounds with parts of the same
             size, without device and group
A time runs from the first rank's call to the last one's return, in ms; it is the median of
the repeats. `sent` and `received` are the bytes of a rank in ucclEpGroupCreate's rounds,
the mean of all ranks but 0, which is in the hub's process. Where there are both rows of a
number of ranks, these bytes have to be the same within 2 %, and of simulated ranks each
result of a round has to be as long as the parts of all make it.
Exit code: 0 = nothing is wrong, 2 = bad command line, 1 = all else.)";

void check_init(const InitOptions& o) {
  require(!o.ranks.empty(), "-r: expected at least one value");
  for (const int ranks : o.ranks) {
    require(ranks >= 2 && ranks <= 4096, fmt::format("-r {}: expected 2 to 4096", ranks));
  }
  require(o.most_real >= 0 && o.most_real <= 512, fmt::format("--real {}: expected 0 to 512", o.most_real));
  require(o.repeats >= 1 && o.repeats <= 100, fmt::format("-n {}: expected 1 to 100", o.repeats));
  require(o.warmup >= 0 && o.warmup <= 100, fmt::format("-w {}: expected 0 to 100", o.warmup));
  require(!o.corrupt || *std::max_element(o.ranks.begin(), o.ranks.end()) > 2,
          "--corrupt: expected more than 2 ranks (-r)");
  require(o.timeout_ms >= 1 && o.timeout_ms <= 600'000,
          fmt::format("--timeout-ms {}: expected 1 to 600000", o.timeout_ms));
}

}  // namespace

InitOptions parse_init_options(int argc, char** argv, bool* done) {
  InitOptions o;
  o.arguments.assign(argv + 1, argv + argc);
  CLI::App app(init_description, "init_perf");
  app.footer(init_footer);
  app.set_version_flag("--version", std::string(version));
  app.option_defaults()->take_last();
  app.add_option("-r,--ranks", o.ranks, "Numbers of ranks (2,4,8,16,32,64,128,256,512)")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--real", o.most_real, "Use real ranks, too, up to this number of ranks (0 = never)")
      ->capture_default_str();
  app.add_option("-n,--repeats", o.repeats, "Timed runs of each row")->capture_default_str();
  app.add_option("-w,--warmup", o.warmup, "Warm-up runs")->capture_default_str();
  app.add_option("-J,--json", o.json, json_help);
  app.add_option("--timeout-ms", o.timeout_ms, "Timeout of each call")->capture_default_str();
  app.add_flag("--corrupt", o.corrupt, "A simulated rank sends too many bytes: the run must fail");
  *done = !parse(app, argc, argv);
  if (!*done) check_init(o);
  return o;
}

}  // namespace ucclep::perf

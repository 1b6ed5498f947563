// SPDX-License-Identifier: Apache-2.0
#include "transport/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "options.hpp"
#include "parse.hpp"
#include "version.hpp"

namespace ucclep::perf {
namespace {

const char* const transport_description =
    "Measures a transport between two processes: writes with an immediate, as many in flight as the window allows, and "
    "their latency.";

const char* const transport_footer = R"(Rows of the table:
  write   throughput of messages from one side to the other, in thousands per second, until
          the last has arrived; GB/s counts their bytes. With --both each side sends as many,
          and the figures are those of one side. With --pairs N, N pairs run at once, and the
          figures are those of the slowest pair
  trip    latency: half of a round trip, in us
Figures are medians of the repeats. The immediates count the messages, and the receiver's
memory is compared byte for byte after a run. With --bare a program that does the
same without this library runs in turn with ours: `ratio` is the median of the ratios of
each of our runs to its next one; more is better for write, less for trip.
With --as FILE the rows are what operations between nodes sent (dispatch_perf or
combine_perf --nodes N -J FILE): a rank's bytes of one operation in as many writes, in both
directions at once, each to a slot of its own and for all ranks at once, as operations
do; and how the operation's time compares.
Two processes of this machine; or on two machines: --listen PORT on one, and
--connect HOST:PORT, which prints, on the other, with the same transport.
Exit code: 0 = nothing is wrong, 2 = bad command line, 1 = all else.)";

void check_transport(const TransportOptions& o) {
  for (uint64_t bytes : o.bytes) {
    require(bytes >= 1 && bytes <= 1 << 30, fmt::format("-b {}: expected 1 to 2^30", bytes));
  }
  for (int window : o.windows) {
    require(window >= 1 && window <= 4096, fmt::format("-W {}: expected 1 to 4096", window));
  }
  require(!o.bytes.empty() && !o.windows.empty(), "-b, -W: expected at least one value");
  const auto widest = static_cast<uint64_t>(*std::max_element(o.windows.begin(), o.windows.end()));
  require(o.slots == 0 || (o.slots >= widest && o.slots <= 1 << 20),
          fmt::format("--slots {}: expected {} (the window) to 2^20", o.slots, widest));
  require(o.seconds > 0 && o.seconds <= 60, fmt::format("-t {}: expected more than 0, at most 60", o.seconds));
  require(o.messages <= uint64_t{1} << 31, fmt::format("-m {}: expected at most 2^31", o.messages));
  require(o.repeats >= 1 && o.repeats <= 1000, fmt::format("-n {}: expected 1 to 1000", o.repeats));
  require(o.pairs >= 1 && o.pairs <= 64, fmt::format("--pairs {}: expected 1 to 64", o.pairs));
  require(o.pairs == 1 || (o.bare.empty() && o.listen.empty() && o.connect.empty()),
          "--pairs: expected neither --bare nor --listen nor --connect: pairs run on one machine, without a baseline");
  require(o.cpus.empty() || o.cpus.size() == 2 * static_cast<size_t>(o.pairs),
          fmt::format("--cpus: expected {} CPUs, one for each process", 2 * o.pairs));
  require(o.timeout_ms >= 1 && o.timeout_ms <= 3'600'000,
          fmt::format("--timeout-ms {}: expected 1 to 3600000", o.timeout_ms));
  require(o.listen.empty() || o.connect.empty(), "--listen and --connect exclude each other: use one on each side");
}

}  // namespace

TransportOptions parse_transport_options(int argc, char** argv, bool* done) {
  TransportOptions o;
  o.arguments.assign(argv + 1, argv + argc);
  CLI::App app(transport_description, "transport_perf");
  app.footer(transport_footer);
  app.set_version_flag("--version", std::string(version));
  app.option_defaults()->take_last();
  const auto list = [&](const char* names, auto& values, const char* text) {
    app.add_option(names, values, text)->delimiter(',')->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  app.add_option("transport", o.transport, "loopback, ofi:tcp, ofi:shm, ofi:efa, or the name of a plugin")
      ->capture_default_str();
  app.add_option("--nic", o.nic, "Name of the NIC (default: the transport's choice)");
  list("-b,--bytes", o.bytes, "Bytes of a message; or a list (64,7168,65536)");
  list("-W,--window", o.windows, "Messages in flight; or a list (64)");
  app.add_option("--slots", o.slots, "Slots of the messages, used in turn (default: the window)");
  app.add_flag("--both", o.both, "Both sides send at once");
  app.add_option("--pairs", o.pairs, "Pairs of processes that run at once (1; with --as half of its ranks)");
  app.add_option("-t,--seconds", o.seconds, "Length of a run, about")->capture_default_str();
  app.add_option("-m,--messages", o.messages, "Messages of a run, instead of a length");
  app.add_option("-n,--repeats", o.repeats, "Runs of each row")->capture_default_str();
  app.add_option(
         "--memory", o.memory,
         "host, or pinned: host memory pinned for GPUs, as in the windows of their groups; each process uses a GPU")
      ->check(CLI::IsMember({"host", "pinned"}))
      ->capture_default_str();
  app.add_option("--device", o.device, "Driver of the pinned memory: auto, cuda or hip")
      ->check(CLI::IsMember({"auto", "cuda", "hip"}))
      ->capture_default_str();
  std::string as;
  app.add_option("--as", as, "Repeat what operations of this file of dispatch_perf or combine_perf sent");
  app.add_option("--bare", o.bare, "Baseline program to compare with, such as bare_ofi of the tests");
  app.add_option("--listen", o.listen, "Wait for the other side at this port");
  app.add_option("--connect", o.connect, "Host and port of the other side");
  list("--cpus", o.cpus, "CPUs of the sending sides, then of the others; the baseline uses them as well (any)");
  app.add_option("-J,--json", o.json, json_help);
  app.add_option("--timeout-ms", o.timeout_ms, "Timeout; the side that listens waits 60 times as long")
      ->capture_default_str();
  app.add_flag("--corrupt", o.corrupt, "Flip a bit of what arrived before it is compared: the run must fail");
  *done = !parse(app, argc, argv);
  if (*done) return o;
  for (auto [name, value] : {std::pair{"-m", o.messages}, {"--slots", o.slots}}) require_not_zero(app, name, value);
  if (!as.empty()) {
    o.operations = read_wire_file(as);
    o.bytes.clear();
    for (const WireOperation& operation : o.operations) o.bytes.push_back(operation.bytes);
    o.both = true;
    if (app.count("--pairs") == 0) o.pairs = std::max(1, o.operations.front().ranks / 2);
  }
  check_transport(o);
  return o;
}

}  // namespace ucclep::perf

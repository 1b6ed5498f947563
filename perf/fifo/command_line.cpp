// SPDX-License-Identifier: Apache-2.0
#include "fifo/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "fifo/kernels/arguments.hpp"
#include "options.hpp"
#include "parse.hpp"
#include "version.hpp"

namespace ucclep::perf {
namespace {

const char* const fifo_description =
    "Measures the command ring: how many commands producers pass to one proxy thread, and the round trip of one "
    "command.";

const char* const fifo_footer = R"(Rows of the table:
  push           commands as fast as they are taken, in M/s: every lane pushes, `batch`
                 commands at a time; from threads also a bare ring with one producer
  push-ordered   each push follows a fence, as for commands about data just written
  trip           round trip in us: one command to the reader, and its position back; beside it
                 a bare flag over the same path
  trip-ordered   the same, ordered after earlier writes in both directions
One thread decodes and checks all commands: each must arrive once, whole and in the
order of its producer. Figures are medians of the repeats. `ratio` is relative to the bare
ring (more is better) or to the bare flag (less is better), which run in turn with it.
Exit code: 0 = nothing is wrong, 2 = bad command line, 1 = all else.)";

void require_all(const char* name, const std::vector<int>& values, int min, int max) {
  for (int value : values) {
    require(value >= min && value <= max, fmt::format("{} {}: expected {} to {}", name, value, min, max));
  }
}

void check_fifo(const FifoOptions& o) {
  constexpr int max_batch = 1024, max_rings = 256;
  require_all("-p", o.producers, 1, fifo_most_producers);
  require_all("-r", o.rings, 1, max_rings);
  require_all("-b", o.batches, 1, max_batch);
  require_all("-n", {o.repeats}, 1, 1000);
  require_all("-w", {o.warmup}, 0, 1000);
  require_all("--poll", {o.poll}, 1, 4096);
  require_all("--capacity-log2", {o.capacity_log2}, 0, 20);
  require_all("--rounds", {o.rounds}, 0, 1 << 24);
  require_all("--timeout-ms", {o.timeout_ms}, 1, 1 << 30);
  require(o.commands <= uint64_t{1} << 31, fmt::format("--commands {}: expected at most 2^31", o.commands));
}

}  // namespace

void FifoOptions::fill_in(const std::string& kind) {
  const bool gpu = kind != "host" && kind != "threads";
  if (producers.empty())
    producers = gpu ? std::vector{32, 256, 2048} : kind == "host" ? std::vector{64} : std::vector{1};
  if (batches.empty()) batches = gpu ? std::vector{1, 4} : kind == "host" ? std::vector{1, 4} : std::vector{1, 16};
  if (commands == 0) commands = kind == "host" ? 1'000'000 : 10'000'000;
  if (rounds == 0) rounds = kind == "host" ? 2'000 : gpu ? 20'000 : 100'000;
}

FifoOptions parse_fifo_options(int argc, char** argv, bool* done) {
  FifoOptions o;
  o.arguments.assign(argv + 1, argv + argc);
  CLI::App app(fifo_description, "fifo_perf");
  app.footer(fifo_footer);
  app.set_version_flag("--version", std::string(version));
  app.option_defaults()->take_last();
  const auto list = [&](const char* names, std::vector<int>& values, const char* text) {
    app.add_option(names, values, text)->delimiter(',')->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  list("-p,--producers", o.producers, "Lanes, or threads, that push; or a list (GPU 32,256,2048; host 64; threads 1)");
  list("-r,--rings", o.rings, "Rings, all read by one thread; or a list (1)");
  list("-b,--batch", o.batches, "Commands of a producer in one push; or a list (1,4; threads 1,16)");
  app.add_option("-c,--commands", o.commands, "Commands of a run (10000000; host 1000000)");
  app.add_option("--rounds", o.rounds, "Round trips of a run (GPU 20000; host 2000; threads 100000)");
  app.add_option("-n,--repeats", o.repeats, "Timed runs of each row")->capture_default_str();
  app.add_option("-w,--warmup", o.warmup, "Warm-up runs")->capture_default_str();
  app.add_option("--device", o.device, "auto (the GPU of the machine, else threads), cuda, hip, host or threads")
      ->check(CLI::IsMember({"auto", "cuda", "hip", "host", "threads"}))
      ->capture_default_str();
  app.add_option("--gpu", o.index, "Index of the GPU")->capture_default_str();
  app.add_option("--poll", o.poll, "Commands that the reader takes at a time")->capture_default_str();
  app.add_option("--capacity-log2", o.capacity_log2, "Slots of a ring, as a power of two (0 = the library's choice)");
  list("--cpus", o.cpus, "CPU of the reader, then those of threads that push (in the order of the machine's)");
  app.add_option("-J,--json", o.json, json_help);
  app.add_option("--timeout-ms", o.timeout_ms, "Timeout of a wait")->capture_default_str();
  app.add_flag("--corrupt", o.corrupt, "Flip a bit of a command before it is checked: the run must fail");
  *done = !parse(app, argc, argv);
  if (*done) return o;
  require_not_zero(app, "-c", o.commands);
  require_not_zero(app, "--rounds", static_cast<uint64_t>(o.rounds));
  check_fifo(o);
  return o;
}

}  // namespace ucclep::perf

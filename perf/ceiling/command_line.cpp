// SPDX-License-Identifier: Apache-2.0
#include "ceiling/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "ceiling/kernels/arguments.hpp"
#include "options.hpp"
#include "parse.hpp"
#include "version.hpp"

namespace ucclep::perf {
namespace {

const char* const ceiling_description =
    "Runs plain copy kernels over the routing of dispatch_perf and combine_perf: the speed-of-light bound of this "
    "machine. All destinations are known beforehand, so only the rows themselves, and in LL their epochs, are moved.";

const char* const ceiling_footer = R"(Rows of the table:
  ht-dispatch   each row is loaded once and stored to its slot at each destination rank
  ht-combine    a token's rows are pulled, summed in fp32 in the order of the ranks, and
                written as bf16
  ll-dispatch   the same as ht-dispatch over lines that carry their epoch, with the copy
                to the output; rounds 1: one launch; rounds n: one launch of n, per round
  ll-dispatch-experts  the same, with a copy for each expert, as in EXPERT_MAJOR
  ll-dispatch-cast  the same, with bf16 quantised to fp8 with scales
  ll-combine    each row goes back to the rank of its token and is summed there, over such lines
  all-to-all    every row goes to, or comes from, one other rank, on all SMs
  flag          one-way latency of a word from rank 0 to rank 1, relaxed and as release
                and acquire
  launch, host  the host's time for the launch of a kernel that does nothing
A time is that of the slowest rank of a launch, by events around it; before them caches
are emptied, and the ranks meet on their devices: in LL inside an untimed launch of the
same kernel. The data moved last in each row of the table is compared bit for bit. Exit code: 0 = nothing is wrong, 2 = bad command line, 1 = all else.
On 4 H200, with the default sizes, the floor column has what such kernels are known to
take there, and a last line says whether this run is within 3 % of all of them.
With --share-gpus all ranks run in this process, so that MPS is not needed; kernels of
ranks that share a GPU have their part of its SMs. Such times do not apply to ranks
that have a GPU each.)";

void check_ceiling(const CeilingOptions& o) {
  for (auto [name, value, min] : {std::tuple{"-g", o.ranks, 0},
                                  {"--ht-tokens", *std::min_element(o.ht_tokens.begin(), o.ht_tokens.end()), 1},
                                  {"--ll-tokens", *std::min_element(o.ll_tokens.begin(), o.ll_tokens.end()), 1},
                                  {"--hidden", o.hidden, 128},
                                  {"--experts", o.experts, 1},
                                  {"--topk", o.topk, 1},
                                  {"-n", o.iterations, 1},
                                  {"-w", o.warmup, 0},
                                  {"--sms", o.sms, 1},
                                  {"--ll-sms", o.ll_sms, 0},
                                  {"--rounds", o.rounds, 1},
                                  {"--timeout-ms", o.timeout_ms, 1}}) {
    require(value >= min, fmt::format("{} {}: expected at least {}", name, value, min));
  }
  require(o.ranks != 1 && o.ranks <= static_cast<int>(ceiling_max_ranks),
          fmt::format("-g {}: expected 2 to {} ranks", o.ranks, ceiling_max_ranks));
  require(o.hidden % 512 == 0,
          fmt::format("--hidden {}: expected a multiple of 512, for fp8 rows with scales", o.hidden));
  require(o.topk <= o.experts, fmt::format("--topk {}: expected at most --experts {}", o.topk, o.experts));
}

}  // namespace

Shape CeilingOptions::shape(int of_ranks) const {
  Shape shape;
  shape.ranks = of_ranks;
  shape.experts = experts;
  shape.topk = topk;
  shape.hidden = hidden;
  shape.skew = skew;
  shape.seed = seed;
  return shape;
}

CeilingOptions parse_ceiling_options(int argc, char** argv, bool* done) {
  CeilingOptions o;
  o.arguments.assign(argv + 1, argv + argc);
  CLI::App app(ceiling_description, "ceiling_perf");
  app.footer(ceiling_footer);
  app.set_version_flag("--version", std::string(version));
  app.option_defaults()->take_last();
  app.add_option("-g,--gpus", o.ranks, "Ranks, one per GPU (0 = all GPUs of the machine, on the host device 4)");
  app.add_option("-n,--iters", o.iterations, "Timed launches of each kernel")->capture_default_str();
  app.add_option("-w,--warmup", o.warmup, "Warm-up launches")->capture_default_str();
  app.add_option("-J,--json", o.json, json_help);
  app.add_option("--ht-tokens", o.ht_tokens, "Tokens per rank in HT, or a list")
      ->capture_default_str()
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--ll-tokens", o.ll_tokens, "Tokens per rank in LL, or a list")
      ->capture_default_str()
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--hidden", o.hidden, "Elements per row")->capture_default_str();
  app.add_option("--experts", o.experts, "Experts of all ranks together")->capture_default_str();
  app.add_option("--topk", o.topk, "Experts per token")->capture_default_str();
  app.add_option("--skew", o.skew, "Rank 0 is chosen this many times as often as the average rank (0 = uniform)")
      ->capture_default_str();
  app.add_option("--seed", o.seed, "Seed of routing and data")->check(not_negative())->capture_default_str();
  app.add_option("--sms", o.sms, "SMs of the HT kernels")->capture_default_str();
  app.add_option("--ll-sms", o.ll_sms, "SMs of the LL kernels (0 = all)")->capture_default_str();
  app.add_option("--rounds", o.rounds, "Rounds of LL in one launch")->capture_default_str();
  app.add_option("--device", o.device, "auto (the GPUs of the machine), cuda, hip or host")
      ->check(CLI::IsMember({"auto", "cuda", "hip", "host"}))
      ->capture_default_str();
  app.add_flag("--share-gpus", o.share_gpus,
               "More ranks than GPUs: rank r takes GPU r modulo their number (see below)");
  app.add_option("--timeout-ms", o.timeout_ms, "Timeout of a kernel")->capture_default_str();
  app.add_flag("--corrupt", o.corrupt, "Flip a byte of what rank 0 sends: the run must fail");
  *done = !parse(app, argc, argv);
  if (*done) return o;
  check_ceiling(o);
  return o;
}

}  // namespace ucclep::perf

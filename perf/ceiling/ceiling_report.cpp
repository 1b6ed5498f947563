// SPDX-License-Identifier: Apache-2.0
#include "ceiling/ceiling_report.hpp"

#include <cstdio>

#include "comparison.hpp"
#include "line.hpp"
#include "measurement.hpp"
#include "version.hpp"

namespace ucclep::perf {
namespace {

constexpr double tolerance = 1.03;

// GB/s of a rank, mean over the ranks.
double rate(const Ceiling& ceiling, uint64_t rows, int ranks, double us) {
  return static_cast<double>(rows) * static_cast<double>(ceiling.row_bytes) / ranks / us * 1e-3;
}

Json ceiling_json(const Ceiling& c, int ranks) {
  const Statistics time = statistics(c.us);
  Json json = {{"name", c.name},
               {"dtype", c.dtype},
               {"tokens", c.tokens},
               {"row_bytes", c.row_bytes},
               {"sms", c.sms},
               {"rounds", c.rounds},
               {"rows_of_all_ranks", {{"wire", c.remote_rows}, {"logical", c.all_rows}}},
               {"time_us", statistics_json(c.us)}};
  if (c.all_rows > 0) {
    json["bandwidth_gb_s"] = {{"wire", rate(c, c.remote_rows, ranks, time.p50)},
                              {"logical", rate(c, c.all_rows, ranks, time.p50)}};
  }
  if (c.floor_us > 0) json["floor_us"] = c.floor_us;
  json["verified"] = c.tally.verified;
  json["wrong"] = c.tally.wrong;
  return json;
}

}  // namespace

CeilingReport::CeilingReport(const CeilingOptions& options, const Machine& machine)
    : options_(options), machine_(machine), environment_(read_environment()), start_time_(utc_now()) {
  line("# ceiling_perf version {} commit {}: {} ranks, driven by one thread", version, commit, machine.ranks());
  const std::vector<std::string> names = machine.device_names();
  for (size_t r = 0; r < names.size(); ++r) line("#  Rank {:2} {}", r, names[r]);
  line("# hidden {} experts {} topk {} skew {} seed {} warmup iters: {} iters: {}", options.hidden, options.experts,
       options.topk, options.skew, options.seed, options.warmup, options.iterations);
  if (options.corrupt) line("# one byte of every iteration is corrupted: this run has to fail");
  if (machine.shared()) line("# Ranks share GPUs: times are not those of ranks with a GPU each");
  line("# Times of the slowest rank, by events around one launch; the ranks meet on their devices before it");
  line("#");
  line("# {:>9} {:>9} {:>10} {:>6} {:<19} {:>4} {:>6} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>7} {:>7}", "tokens", "row",
       "count", "type", "kernel", "sms", "rounds", "p50", "p99", "min", "wire", "logical", "floor", "ratio", "#wrong");
  line("# {:>9} {:>9} {:>10} {:>6} {:<19} {:>4} {:>6} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8}", "per rank", "(B)", "(rows)",
       "", "", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "(us)");
}

void CeilingReport::row(const Ceiling& c) {
  const Statistics time = statistics(c.us);
  const int ranks = machine_.ranks();
  line("  {:>9} {:>9} {:>10} {:>6} {:<19} {:>4} {:>6} {:>9.2f} {:>9.2f} {:>9.2f} {:>8.1f} {:>8.1f} {:>8} {:>7} {:>7}",
       c.tokens, c.row_bytes, c.all_rows / ranks, c.dtype, c.name, c.sms, c.rounds, time.p50, time.p99, time.min,
       rate(c, c.remote_rows, ranks, time.p50), rate(c, c.all_rows, ranks, time.p50),
       c.floor_us > 0 ? fmt::format("{:.1f}", c.floor_us) : "-",
       c.floor_us > 0 ? fmt::format("{:.3f}", time.p50 / c.floor_us) : "-",
       c.tally.verified > 0 ? std::to_string(c.tally.wrong) : "N/A");
  if (c.tally.wrong > 0) std::fprintf(stderr, "# %s, first mistake: %s\n", c.name.c_str(), c.tally.first.c_str());
  results_.push_back(c);
}

bool CeilingReport::close() {
  Tally tally;
  std::string above;
  bool floors = false;
  for (const Ceiling& c : results_) {
    tally += c.tally;
    if (c.floor_us <= 0) continue;
    floors = true;
    const double ratio = statistics(c.us).p50 / c.floor_us;
    if (ratio <= tolerance) continue;
    above += fmt::format("{}{} {} ({:.1f} %)", above.empty() ? "" : ", ", c.name, c.dtype, (ratio - 1) * 100);
  }
  if (!floors) line("# Floors are known for 4 H200 and the default sizes only");
  if (floors && above.empty()) line("# Floors: all within 3 %");
  if (floors && !above.empty()) line("# Floors: more than 3 % above: {}", above);
  return conclude(tally.verified, tally.wrong, "rows", options_.json.empty() ? "" : write_json());
}

std::string CeilingReport::write_json() const {
  Json json = {{"version", 1},
               {"tool", "ceiling_perf"},
               {"start_time", start_time_},
               {"end_time", utc_now()},
               {"arguments", options_.arguments},
               {"options",
                {{"ranks", machine_.ranks()},
                 {"share_gpus", options_.share_gpus},
                 {"ht_tokens", options_.ht_tokens},
                 {"ll_tokens", options_.ll_tokens},
                 {"hidden", options_.hidden},
                 {"experts", options_.experts},
                 {"topk", options_.topk},
                 {"skew", options_.skew},
                 {"seed", options_.seed},
                 {"iterations", options_.iterations},
                 {"warmup", options_.warmup},
                 {"sms", options_.sms},
                 {"ll_sms", options_.ll_sms},
                 {"rounds", options_.rounds}}},
               {"environment", environment_json(environment_)},
               {"devices", machine_.device_names()},
               {"results", Json::array()}};
  for (const Ceiling& ceiling : results_) json["results"].push_back(ceiling_json(ceiling, machine_.ranks()));
  return write_json_to(options_.json, json);
}

}  // namespace ucclep::perf

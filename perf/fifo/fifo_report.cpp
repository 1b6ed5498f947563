// SPDX-License-Identifier: Apache-2.0
#include "fifo/fifo_report.hpp"

#include <algorithm>

#include "line.hpp"
#include "measurement.hpp"
#include "version.hpp"

namespace ucclep::perf {
namespace {

std::string list_of(std::span<const int> values) {
  std::string text;
  for (int value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

// What a ring should do, by device: a rate with so many producers on one ring, and a ratio that may stand for it.
struct Target {
  const char* kind;
  uint32_t producers;
  double rate, ratio;  // 0: none
};
constexpr Target targets[] = {{"threads", 1, 20, 0.8}, {"host", 64, 5, 0}, {"cuda", 256, 100, 0}};
constexpr double trip_target = 1.3;  // on a GPU, of a bare flag

Json row_json(const FifoRow& row) {
  Json json = {{"name", row.name},        {"unit", row.unit},        {"producers", row.what.producers},
               {"rings", row.what.rings}, {"batch", row.what.batch}, {"ordered", row.what.ordered}};
  json.update(comparison_json(row, row.ratio()));
  return json;
}

}  // namespace

FifoReport::FifoReport(const FifoOptions& options, const std::string& kind, const std::string& device)
    : options_(options), kind_(kind), device_(device), environment_(read_environment()), start_time_(utc_now()) {
  line("# fifo_perf version {} commit {}: {}, one reader", version, commit, device);
  line("# commands {} rounds {} warmup runs: {} runs: {} poll {} reader on CPU {}, threads on {}", options.commands,
       options.rounds, options.warmup, options.repeats, options.poll, options.cpus.front(),
       list_of(options.other_cpus()));
  if (options.corrupt) line("# one bit of every run is corrupted: this run has to fail");
  line("#");
  line("# {:>9} {:>6} {:>6} {:<12} {:>5} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7}", "producers", "rings", "batch", "test",
       "unit", "p50", "min", "max", "bare", "ratio", "#wrong");
}

void FifoReport::row(const FifoRow& row) {
  const Statistics value = statistics(row.values);
  const bool bare = !row.bare.empty();
  line("  {:>9} {:>6} {:>6} {:<12} {:>5} {:>9.3f} {:>9.3f} {:>9.3f} {:>9} {:>7} {:>7}", row.what.producers,
       row.what.rings, row.what.batch, row.name, row.unit, value.p50, value.min, value.max,
       bare ? fmt::format("{:.3f}", statistics(row.bare).p50) : "-", bare ? fmt::format("{:.3f}", row.ratio()) : "-",
       row.wrong);
  rows_.push_back(row);
}

void FifoReport::report_targets() const {
  for (const Target& target : targets) {
    if (kind_ != target.kind) continue;
    double rate = 0, ratio = 0;
    for (const FifoRow& row : rows_) {
      if (row.name != "push" || row.what.producers != target.producers || row.what.rings != 1) continue;
      rate = std::max(rate, statistics(row.values).p50);
      ratio = std::max(ratio, row.ratio());
    }
    if (rate == 0) continue;
    const bool reached = rate > target.rate || (target.ratio > 0 && ratio >= target.ratio);
    const std::string other = target.ratio > 0 ? fmt::format(", or {} of a bare ring", target.ratio) : "";
    line("# Target: over {} M/s from {} producers to one ring{}: {}", target.rate, target.producers, other,
         reached ? "reached" : "missed");
  }
  for (const FifoRow& row : rows_) {
    if (row.name != "trip" || (kind_ != "cuda" && kind_ != "hip")) continue;
    line("# Target: a round trip within {} of a bare flag: {}", trip_target,
         row.ratio() <= trip_target ? "reached" : "missed");
  }
}

bool FifoReport::close() {
  report_targets();
  return conclude(rows_, "commands", options_.json.empty() ? "" : write_json());
}

std::string FifoReport::write_json() const {
  Json json = {{"version", 1},
               {"tool", "fifo_perf"},
               {"start_time", start_time_},
               {"end_time", utc_now()},
               {"arguments", options_.arguments},
               {"options",
                {{"device", kind_},
                 {"commands", options_.commands},
                 {"rounds", options_.rounds},
                 {"repeats", options_.repeats},
                 {"warmup", options_.warmup},
                 {"poll", options_.poll},
                 {"capacity_log2", options_.capacity_log2},
                 {"cpus", options_.cpus}}},
               {"environment", environment_json(environment_)},
               {"devices", {device_}},
               {"results", Json::array()}};
  for (const FifoRow& row : rows_) json["results"].push_back(row_json(row));
  return write_json_to(options_.json, json);
}

}  // namespace ucclep::perf

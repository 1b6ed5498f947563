// SPDX-License-Identifier: Apache-2.0
#include "transport/transport_report.hpp"

#include <algorithm>

#include "line.hpp"
#include "measurement.hpp"
#include "version.hpp"

namespace ucclep::perf {
namespace {

constexpr double target = 0.9;  // of bare libfabric, at these sizes with this window
constexpr uint64_t target_bytes[] = {7168, 65536};
constexpr uint32_t target_window = 64;

double gigabytes(const TransportRow& row) {
  const double value = statistics(row.values).p50;
  const double messages = row.what.test == TransportTest::write ? value * 1e3 : 1e6 / value;
  return messages * static_cast<double>(row.what.bytes) * 1e-9;
}

Json row_json(const TransportRow& row) {
  Json json = {{"name", row.name()},
               {"unit", row.unit()},
               {"bytes", row.what.bytes},
               {"window", row.what.window},
               {"slots", row.what.slots},
               {"both", row.what.both},
               {"messages", row.what.messages},
               {"gigabytes_per_second", gigabytes(row)}};
  json.update(comparison_json(row, row.ratio()));
  if (row.operation != nullptr) {
    json["operation"] = {{"name", row.operation->name},
                         {"tokens", row.operation->tokens},
                         {"us", row.operation->us},
                         {"wire_us", row.us()},
                         {"allowed_us", row.operation->allowed_us(row.us())}};
  }
  return json;
}

}  // namespace

TransportReport::TransportReport(const TransportOptions& options)
    : options_(options), environment_(read_environment()), start_time_(utc_now()) {
  line("# transport_perf version {} commit {}: {}{}{}, {} processes{}, {} memory", version, commit, options.transport,
       options.nic.empty() ? "" : " on ", options.nic, 2 * options.pairs, options.both ? " that all send" : "",
       options.memory);
  line("# runs of {} s: {} of each row{}", options.seconds, options.repeats,
       options.bare.empty() ? "" : ", in turn with the baseline");
  if (options.corrupt) line("# one bit of every run is corrupted: this run has to fail");
  line("#");
  line("# {:>9} {:>7} {:>10} {:<6} {:>5} {:>10} {:>10} {:>10} {:>8} {:>10} {:>7} {:>7}", "bytes", "window", "messages",
       "test", "unit", "p50", "min", "max", "GB/s", "bare", "ratio", "#wrong");
}

void TransportReport::row(const TransportRow& row) {
  const Statistics value = statistics(row.values);
  const bool bare = !row.bare.empty();
  line("  {:>9} {:>7} {:>10} {:<6} {:>5} {:>10.2f} {:>10.2f} {:>10.2f} {:>8.3f} {:>10} {:>7} {:>7}", row.what.bytes,
       row.what.window, row.what.messages, row.name(), row.unit(), value.p50, value.min, value.max, gigabytes(row),
       bare ? fmt::format("{:.2f}", statistics(row.bare).p50) : "-", bare ? fmt::format("{:.3f}", row.ratio()) : "-",
       row.wrong);
  rows_.push_back(row);
  if (row.operation == nullptr) return;
  const WireOperation& one = *row.operation;
  const double allowed = one.allowed_us(row.us());
  line("#   {}, {} tokens: {:.1f} us; a rank's bytes in as many writes, both ways: {:.1f} us; {:.1f} allowed: {}",
       one.name, one.tokens, one.us, row.us(), allowed, one.us <= allowed ? "kept" : "missed");
}

void TransportReport::report_target() const {
  for (const TransportRow& row : rows_) {
    const bool counts =
        row.what.test == TransportTest::write && row.what.window == target_window && !row.bare.empty() &&
        std::find(std::begin(target_bytes), std::end(target_bytes), row.what.bytes) != std::end(target_bytes);
    if (!counts) continue;
    line("# Target: {} of the baseline at {} bytes: {}", target, row.what.bytes,
         row.ratio() >= target ? "reached" : "missed");
  }
}

bool TransportReport::close() {
  report_target();
  return conclude(rows_, "messages", options_.json.empty() ? "" : write_json());
}

std::string TransportReport::write_json() const {
  Json json = {{"version", 1},
               {"tool", "transport_perf"},
               {"start_time", start_time_},
               {"end_time", utc_now()},
               {"arguments", options_.arguments},
               {"options",
                {{"transport", options_.transport},
                 {"nic", options_.nic},
                 {"memory", options_.memory},
                 {"pairs", options_.pairs},
                 {"cpus", options_.cpus},
                 {"seconds", options_.seconds},
                 {"messages", options_.messages},
                 {"repeats", options_.repeats}}},
               {"environment", environment_json(environment_)},
               {"results", Json::array()}};
  for (const TransportRow& row : rows_) json["results"].push_back(row_json(row));
  return write_json_to(options_.json, json);
}

}  // namespace ucclep::perf

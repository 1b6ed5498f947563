// SPDX-License-Identifier: Apache-2.0
#include "init/init_report.hpp"

#include <cstdlib>

#include "comparison.hpp"
#include "json_parts.hpp"
#include "line.hpp"
#include "measurement.hpp"
#include "version.hpp"

namespace ucclep::perf {
namespace {

// Of the last minute; other programs count as well.
double load() {
  double average = 0;
  return getloadavg(&average, 1) == 1 ? average : 0;
}

const char* name_of(const InitRow& row) {
  return row.real ? "real" : "simulated";
}

Json row_json(const InitRow& row) {
  return {{"name", name_of(row)},
          {"ranks", row.ranks},
          {"init_ms", statistics_json(row.init_ms)},
          {"group_create_ms", statistics_json(row.group_ms)},
          {"group_create_sent_bytes", statistics_json(row.sent)},
          {"group_create_received_bytes", statistics_json(row.received)},
          {"verified", row.verified},
          {"wrong", row.wrong}};
}

}  // namespace

InitReport::InitReport(const InitOptions& options)
    : options_(options), environment_(read_environment()), start_time_(utc_now()), start_load_(load()) {
  line("# init_perf version {} commit {}: init and group of a rank a node, {} cores, load {:.1f}", version, commit,
       environment_.cores, start_load_);
  line("# warmup runs: {} runs: {} timeout {} ms", options.warmup, options.repeats, options.timeout_ms);
  if (options.corrupt) line("# a rank sends too many bytes: this run has to fail");
  line("#");
  line("# {:>6} {:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>7}", "ranks", "are", "init", "min", "max",
       "group", "min", "max", "sent", "received", "#wrong");
  line("# {:>6} {:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10}", "", "", "ms", "ms", "ms", "ms", "ms", "ms",
       "bytes", "bytes");
}

void InitReport::row(const InitRow& row) {
  const Statistics init = statistics(row.init_ms), group = statistics(row.group_ms);
  line("  {:>6} {:<9} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>10.0f} {:>10.0f} {:>7}", row.ranks,
       name_of(row), init.p50, init.min, init.max, group.p50, group.min, group.max, statistics(row.sent).p50,
       statistics(row.received).p50, row.wrong);
  rows_.push_back(row);
}

bool InitReport::close() {
  uint64_t verified = 0, wrong = 0;
  for (const InitRow& row : rows_) {
    verified += row.verified;
    wrong += row.wrong;
  }
  return conclude(verified, wrong, "results", options_.json.empty() ? "" : write_json());
}

std::string InitReport::write_json() const {
  Json json = {{"version", 1},
               {"tool", "init_perf"},
               {"start_time", start_time_},
               {"end_time", utc_now()},
               {"arguments", options_.arguments},
               {"options",
                {{"ranks", options_.ranks},
                 {"most_real", options_.most_real},
                 {"repeats", options_.repeats},
                 {"warmup", options_.warmup},
                 {"timeout_ms", options_.timeout_ms},
                 {"device", "host"},
                 {"transport", "loopback"}}},
               {"environment", environment_json(environment_)},
               {"load_average", {{"start", start_load_}, {"end", load()}}},
               {"results", Json::array()}};
  for (const InitRow& row : rows_) json["results"].push_back(row_json(row));
  return write_json_to(options_.json, json);
}

}  // namespace ucclep::perf

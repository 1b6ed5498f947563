// SPDX-License-Identifier: Apache-2.0
#include "transport/measurements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.hpp"
#include "measurement.hpp"

namespace ucclep::perf {
namespace {

double value_of(const TransportRun& run, double seconds) {
  const auto messages = static_cast<double>(run.messages);
  return run.test == TransportTest::write ? messages / seconds * 1e-3 : seconds / messages / 2 * 1e6;
}

// The program prints the seconds that the same messages took.
double bare_seconds(const TransportOptions& options, const TransportRun& run) {
  const size_t colon = std::min(options.transport.find(':'), options.transport.size() - 1);
  std::string command =
      fmt::format("'{}' '{}' {} {} {} {}", options.bare, options.transport.substr(colon + 1),
                  run.test == TransportTest::write ? "write" : "trip", run.bytes, run.window, run.messages);
  for (const int cpu : options.cpus) command += fmt::format(" {}", cpu);
  const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.c_str(), "r"), pclose);
  double seconds = 0;
  if (output == nullptr || std::fscanf(output.get(), "%lf", &seconds) != 1 || seconds <= 0) {
    fail(ucclEpSystemError, "the baseline printed no result: {}", command);
  }
  return seconds;
}

// What is to be measured, without the numbers of messages that the time decides.
std::vector<TransportRow> rows_of(const TransportOptions& options) {
  std::vector<TransportRow> rows;
  const auto add = [&](TransportTest test, int window, uint64_t bytes, uint64_t messages) -> TransportRow& {
    TransportRun& run = rows.emplace_back().what;
    run.test = test;
    run.window = static_cast<uint32_t>(window);
    run.both = options.both && test == TransportTest::write;
    run.slots = test == TransportTest::trip ? 1 : std::max(options.slots, static_cast<uint64_t>(window));
    run.bytes = bytes;
    run.messages = messages;
    return rows.back();
  };
  if (!options.operations.empty()) {
    for (const WireOperation& one : options.operations) {
      TransportRow& row = add(TransportTest::write, options.windows.front(), one.bytes, one.messages);
      row.operation = &one;
      row.what.slots = one.messages;
    }
    return rows;
  }
  for (const int window : options.windows) {
    for (const uint64_t bytes : options.bytes) add(TransportTest::write, window, bytes, options.messages);
  }
  for (const uint64_t bytes : options.bytes) add(TransportTest::trip, 1, bytes, options.messages);
  return rows;
}

// The first messages connect the two sides.
void warm_up(const Lead& lead, TransportRun run) {
  run.messages = std::max<uint64_t>(100, 4 * run.window);
  lead(run);
}

// As many messages as take about the time that was asked for.
uint64_t messages_for(const Lead& lead, const TransportOptions& options, TransportRun run) {
  run.messages = 8 * std::max<uint64_t>(100, 4 * run.window);
  const double seconds = lead(run).seconds;
  return std::clamp<uint64_t>(static_cast<uint64_t>(options.seconds / seconds * static_cast<double>(run.messages)),
                              run.window, 1 << 26);
}

}  // namespace

double TransportRow::ratio() const {
  std::vector<double> ratios;
  for (size_t i = 0; i < bare.size(); ++i) ratios.push_back(values[i] / bare[i]);
  return ratios.empty() ? 0 : statistics(ratios).p50;
}

double TransportRow::us() const {
  const double value = statistics(values).p50;
  const auto messages = static_cast<double>(what.messages);
  return what.test == TransportTest::write ? messages / value * 1e3 : 2 * messages * value;
}

void measure_transport(const Lead& lead, const TransportOptions& options,
                       const std::function<void(const TransportRow&)>& done) {
  uint64_t number = 0;
  for (TransportRow& row : rows_of(options)) {
    row.what.number = ++number;
    warm_up(lead, row.what);
    if (row.what.messages == 0) row.what.messages = messages_for(lead, options, row.what);
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
      row.what.number = ++number;
      const TransportResult result = lead(row.what);
      row.values.push_back(value_of(row.what, result.seconds));
      row.verified += result.verified;
      row.wrong += result.wrong;
      if (!options.bare.empty()) row.bare.push_back(value_of(row.what, bare_seconds(options, row.what)));
    }
    done(row);
  }
  lead({});
}

}  // namespace ucclep::perf

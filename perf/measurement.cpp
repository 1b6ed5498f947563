// SPDX-License-Identifier: Apache-2.0
#include "measurement.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "team.hpp"

namespace ucclep::perf {

Statistics statistics(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = values.size();
  const auto percentile = [&](double p) {
    return values[std::max<size_t>(1, static_cast<size_t>(std::ceil(p * static_cast<double>(n)))) - 1];
  };
  Statistics result;
  result.p50 = percentile(0.50);
  result.p99 = percentile(0.99);
  result.min = values.front();
  result.max = values.back();
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(n);
  for (double v : values) result.deviation += (v - result.mean) * (v - result.mean);
  result.deviation = std::sqrt(result.deviation / static_cast<double>(n));
  return result;
}

Bandwidths bandwidths(const Series& series, int ranks, double time_us) {
  const double iterations = static_cast<double>(series.samples.size());
  const auto rate = [&](uint64_t rows) {
    const double bytes = static_cast<double>(rows) * static_cast<double>(series.row_bytes) / iterations / ranks;
    return time_us > 0 ? bytes / time_us * 1e-3 : 0.0;
  };
  return {rate(series.traffic.remote), rate(series.traffic.distinct), rate(series.traffic.selections)};
}

WireFigures wire_figures(const Series& series, const std::vector<int>& node_of_rank) {
  const double iterations = static_cast<double>(series.samples.size());
  size_t pairs = 0;
  for (const int one : node_of_rank) {
    for (const int other : node_of_rank) pairs += one != other ? 1 : 0;
  }
  WireFigures figures;
  figures.bytes = static_cast<double>(series.wire.bytes) / iterations;
  figures.messages = static_cast<double>(series.wire.messages) / iterations;
  figures.commands = static_cast<double>(series.wire.commands) / iterations;
  const Crossing& rows = series.wire.rows;
  for (const Part& part : series.parts) {
    const double crossing = static_cast<double>(part.by_node ? rows.to_nodes : rows.to_ranks) / iterations;
    figures.must_cross_rows += crossing;
    figures.must_cross_bytes += crossing * static_cast<double>(part.row_bytes);
  }
  figures.messages_allowed =
      2.0 * static_cast<double>(pairs) * series.operations() + static_cast<double>(rows.pieces) / iterations;
  return figures;
}

void merge(Team& team, SizeResult& result) {
  for (Series& series : result.series) {
    const size_t n = series.samples.size();
    std::vector<Sample> all(n * team.size());
    std::copy(series.samples.begin(), series.samples.end(), all.begin() + static_cast<ptrdiff_t>(n * team.rank()));
    team.allgather(all.data(), n * sizeof(Sample));
    for (size_t i = 0; i < all.size(); ++i) {
      Sample& slowest = series.samples[i % n];
      slowest.host_us = std::max(slowest.host_us, all[i].host_us);
      slowest.device_us = std::max(slowest.device_us, all[i].device_us);
      slowest.call_ns = std::max(slowest.call_ns, all[i].call_ns);
    }
    struct Counts {
      uint64_t verified, wrong, bytes, messages, commands;
    };
    const Counts mine{series.tally.verified, series.tally.wrong, series.wire.bytes, series.wire.messages,
                      series.wire.commands};
    series.tally.verified = series.tally.wrong = 0;
    series.wire.bytes = series.wire.messages = series.wire.commands = 0;
    for (const Counts& counts : team.gather(mine)) {
      series.tally.verified += counts.verified;
      series.tally.wrong += counts.wrong;
      series.wire.bytes += counts.bytes;
      series.wire.messages += counts.messages;
      series.wire.commands += counts.commands;
    }
  }
}

}  // namespace ucclep::perf

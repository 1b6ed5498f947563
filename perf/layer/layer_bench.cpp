// SPDX-License-Identifier: Apache-2.0
#include "layer/layer_bench.hpp"

#include <algorithm>

#include "api.hpp"
#include "environment.hpp"
#include "json_parts.hpp"
#include "layer/layer.hpp"
#include "line.hpp"
#include "measurement.hpp"
#include "runner.hpp"

namespace ucclep::perf {
namespace {

constexpr double tolerance = 1.0 / 64;  // of |expected| + rms(expected)

// A way as a graph; times of replays on this rank, then of the slowest.
struct WayRun {
  std::string name;
  std::unique_ptr<Graph> graph;
  std::vector<double> times;
};

// True if the results of all ways are right on this rank.
bool verify(LayerRank& rank, Layer& layer, int tokens) {
  std::vector<uint16_t> first;
  bool good = true;
  for (const std::string& way : rank.options.ways) {
    const std::vector<uint16_t> results = layer.results(way);
    const RowErrors errors = layer.compare(results);
    if (rank.team.rank() == 0) {
      line("# {} tokens, {}: largest error {:.5f}, allowed {:.5f}", tokens, way, errors.largest, tolerance);
    }
    if (errors.largest > tolerance) {
      good = false;
      line("# WRONG rank {} {}: token {} column {}: got {:g}, expected {:g}", rank.team.rank(), way, errors.row,
           errors.column, errors.got, errors.expected);
      line("# WRONG rank {} {}: largest error of tokens by expert: {}", rank.team.rank(), way,
           layer.describe_errors(results, tolerance));
    }
    if (first.empty()) first = results;
    if (results == first) continue;
    good = false;
    const auto place = std::mismatch(first.begin(), first.end(), results.begin()).first - first.begin();
    line("# WRONG rank {} {}: token {} column {} differs from {}'s", rank.team.rank(), way, place / rank.options.hidden,
         place % rank.options.hidden, rank.options.ways[0]);
  }
  if (layer.late()) line("# WRONG rank {}: a tile did not become ready within 20 s", rank.team.rank());
  if (layer.failed()) line("# WRONG rank {}: the fused kernel ended without results", rank.team.rank());
  return good && !layer.late() && !layer.failed();
}

// The replay before is not timed: the ranks meet in it, and the timed one does not wait for the host.
double timed(LayerRank& rank, const WayRun& run, GpuTimer& timer) {
  rank.team.barrier();
  run.graph->launch();
  timer.begin();
  run.graph->launch();
  const double us = timer.end();
  rank.synchronize();
  return us;
}

bool bench_size(LayerRank& rank, const GraphApi& api, int tokens, Json& json) {
  const Options& o = rank.options;
  Layer layer(rank, tokens);
  layer.clear();
  for (const std::string& way : o.ways) {
    layer.run(way);
    rank.synchronize();
  }
  bool good = verify(rank, layer, tokens);
  std::vector<WayRun> runs;
  for (const std::string& way : o.ways) {
    runs.push_back({way, std::make_unique<Graph>(api, rank.stream, [&] { layer.run(way); }), {}});
  }
  layer.clear();
  GpuTimer timer(rank.stream);
  for (int i = -o.warmup; i < o.iterations; ++i) {
    for (WayRun& run : runs) {
      const double us = timed(rank, run, timer);
      if (i >= 0) run.times.push_back(us);
    }
  }
  good = verify(rank, layer, tokens) && good;
  const std::vector<char> all_good = rank.team.gather(static_cast<char>(good));
  if (rank.team.rank() == 0) line("# {}", layer.describe());
  double base = 0;
  for (WayRun& run : runs) {
    for (double& time : run.times) {
      const std::vector<double> all = rank.team.gather(time);
      time = *std::max_element(all.begin(), all.end());
    }
    const Statistics s = statistics(run.times);
    if (base == 0) base = s.p50;
    if (rank.team.rank() != 0) continue;
    line("{:>8}  {:<12} {:>10.1f} {:>10.1f} {:>10.1f} {:>7.3f}", tokens, run.name, s.p50, s.p99, s.min, s.p50 / base);
    json.push_back(
        {{"tokens", tokens}, {"way", run.name}, {"ratio", s.p50 / base}, {"us", statistics_json(run.times)}});
  }
  return std::count(all_good.begin(), all_good.end(), 1) == rank.team.size();
}

void write_report(const LayerRank& rank, const Json& layers) {
  const Options& o = rank.options;
  if (o.json.empty()) return;
  line("# JSON: {}", write_json_to(o.json, {{"tool", "layer_perf"},
                                            {"utc", utc_now()},
                                            {"arguments", o.arguments},
                                            {"model", o.model},
                                            {"ranks", rank.team.size()},
                                            {"device", rank.info.device_name},
                                            {"experts", o.experts},
                                            {"topk", o.topk},
                                            {"hidden", o.hidden},
                                            {"intermediate", o.intermediate},
                                            {"waves", o.waves},
                                            {"layers", layers},
                                            {"environment", environment_json(read_environment())}}));
}

bool bench(LayerRank& rank) {
  const Options& o = rank.options;
  const GraphApi api = open_graph_api(UCCLEP_DEVICE_CUDA, rank.info.device_index);
  if (rank.team.rank() == 0) {
    line("# layer_perf: {}, {} experts top-{}, hidden {}, intermediate {}, {} ranks, {}", o.model, o.experts, o.topk,
         o.hidden, o.intermediate, rank.team.size(), rank.info.device_name);
    line("# tokens  way              p50 us     p99 us     min us   ratio");
  }
  bool good = true;
  Json layers = Json::array();
  for (const int tokens : o.sizes()) good = bench_size(rank, api, tokens, layers) && good;
  if (rank.team.rank() == 0) write_report(rank, layers);
  return good;
}

}  // namespace

bool bench_layers(const Options& options, Team& team) {
  bool good = false;
  LayerRank rank(options, team);
  report_failure(options, team, [&] { good = bench(rank); });
  return good;
}

}  // namespace ucclep::perf

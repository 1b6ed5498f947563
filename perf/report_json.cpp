// SPDX-License-Identifier: Apache-2.0
#include "report_json.hpp"

#include "json_parts.hpp"

namespace ucclep::perf {
namespace {

Json options_json(const Options& o) {
  Json json = {{"ranks", o.ranks()},
               {"processes", o.mpi_ranks > 0 ? o.mpi_ranks : std::max(o.processes, 1)},
               {"threads", o.threads},
               {"gpus", o.gpus},
               {"mpi", o.mpi_ranks > 0},
               {"min_tokens", o.min_tokens},
               {"max_tokens", o.max_tokens},
               {"step", o.step},
               {"factor", o.factor},
               {"iterations", o.iterations},
               {"warmup", o.warmup},
               {"check", o.check},
               {"mode", o.mode},
               {"layout", o.layout},
               {"hidden", o.hidden},
               {"experts", o.experts},
               {"topk", o.topk},
               {"dtype", o.dtype},
               {"quant", o.quant},
               {"skew", o.skew},
               {"late", o.late_rank < 0 ? Json() : Json{{"rank", o.late_rank}, {"us", o.late_us}}},
               {"device", o.device},
               {"share_gpus", o.share_gpus},
               {"nodes", o.nodes},
               {"transport", o.transport},
               {"time", o.time},
               {"sms", o.sms},
               {"graph", o.graph},
               {"windows", o.windows},
               {"ceiling", o.ceiling},
               {"corrupt", o.corrupt},
               {"seed", o.seed},
               {"timeout_ms", o.timeout_ms}};
  if (o.rounds > 0) {
    json.update({{"rounds", o.rounds},
                 {"forms", o.forms},
                 {"scopes", o.scopes},
                 {"blocks", o.blocks},
                 {"block_threads", o.block_threads}});
  }
  return json;
}

Json times_json(const std::vector<Sample>& samples, double Sample::* time) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(sample.*time);
  return statistics_json(values);
}

Json series_json(const Series& series, const SizeResult& result, const JsonInput& input) {
  const int ranks = input.options.ranks();
  Json json = {{"name", series.name},
               {"rounds", series.rounds},
               {"row_bytes", series.row_bytes},
               {"rows_of_all_ranks_and_iterations",
                {{"wire", series.traffic.remote},
                 {"logical", series.traffic.distinct},
                 {"selection", series.traffic.selections}}},
               {"host_us", times_json(series.samples, &Sample::host_us)},
               {"device_us", times_json(series.samples, &Sample::device_us)},
               {"call_ns", times_json(series.samples, &Sample::call_ns)},
               {"time", input.timing.events ? "device_us" : "host_us"}};
  if (series.row_bytes > 0) {
    const double p50 = json[json["time"].get<std::string>()]["p50"];
    const Bandwidths rate = bandwidths(series, ranks, p50);
    json["bandwidth_gb_s"] = {{"wire", rate.wire}, {"logical", rate.logical}, {"selection", rate.selection}};
  }
  if (series.wire.messages > 0) {
    const WireFigures f = wire_figures(series, input.node_of_rank);
    json["on_the_wire"] = {{"bytes", f.bytes},
                           {"messages", f.messages},
                           {"commands", f.commands},
                           {"must_cross_bytes", f.must_cross_bytes},
                           {"must_cross_rows", f.must_cross_rows},
                           {"messages_allowed", f.messages_allowed}};
  }
  if (const double yardstick = input.yardstick_us(series, result); yardstick > 0) {
    const std::string what = input.options.rounds > 0 ? "library" : "ceiling";
    json[what + "_us"] = yardstick;
    json["ratio_to_" + what] = json[json["time"].get<std::string>()]["p50"].get<double>() / yardstick;
  }
  json["verified"] = series.tally.verified;
  json["wrong"] = series.tally.wrong;
  return json;
}

}  // namespace

Json run_json(const JsonInput& input) {
  Json json = {{"version", 1},
               {"tool", input.options.tool},
               {"start_time", input.start_time},
               {"end_time", utc_now()},
               {"arguments", input.options.arguments},
               {"options", options_json(input.options)},
               {"aligned_by_untimed_operation", input.timing.aligned},
               {"environment", environment_json(input.environment)}};
  for (const RankInfo& rank : input.ranks) {
    json["ranks"].push_back({{"pid", rank.pid},
                             {"host", rank.host},
                             {"node", rank.node},
                             {"device", rank.device},
                             {"device_index", rank.device_index},
                             {"domain_size", rank.domain_size},
                             {"transport", rank.transport}});
  }
  json["group_memory"] = {
      {"query_device_bytes", input.memory.query_device_bytes},
      {"query_host_bytes", input.memory.query_host_bytes},
      {"measured_bytes", input.memory.measured_bytes > 0 ? Json(input.memory.measured_bytes) : Json()}};
  json["results"] = Json::array();
  for (const SizeResult& result : input.results) {
    Json row = {{"tokens", result.tokens}, {"series", Json::array()}};
    for (const Series& series : result.series) row["series"].push_back(series_json(series, result, input));
    json["results"].push_back(row);
  }
  json["verified"] = input.tally.verified;
  json["wrong"] = input.tally.wrong;
  json["out_of_bounds"] = {{"count", input.tally.wrong}, {"okay", input.tally.wrong == 0 && input.tally.verified > 0}};

  return json;
}

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "line.hpp"
#include "report_json.hpp"
#include "version.hpp"

namespace ucclep::perf {
namespace {

std::string ranks_in_words(const Options& o) {
  if (o.mpi_ranks > 0) return fmt::format("{} processes of an MPI launcher", o.mpi_ranks);
  if (o.processes > 0) return fmt::format("{} processes of {} threads", o.processes, o.ranks_per_process());
  return fmt::format("{} threads of one process", o.ranks_per_process());
}

double mean_rows(const Shape& shape, const Series& series) {
  const uint64_t rows = shape.per_expert() ? series.traffic.selections : series.traffic.distinct;
  return static_cast<double>(rows) / static_cast<double>(series.samples.size()) / shape.ranks;
}

constexpr double mebi = 1024.0 * 1024.0;

}  // namespace

Report::Report(const Options& options, std::vector<RankInfo> ranks, const GroupMemory& memory, const Timing& timing)
    : options_(options),
      environment_(read_environment()),
      ranks_(std::move(ranks)),
      memory_(memory),
      timing_(timing),
      start_time_(utc_now()) {
  if (!options.ceiling.empty()) ceiling_.emplace(options.ceiling, options);
}

Statistics Report::times(const Series& series) const {
  std::vector<double> values;
  for (const Sample& sample : series.samples) values.push_back(time_of(sample));
  return statistics(std::move(values));
}

double Report::ceiling_us(const Series& series, int tokens) const {
  double sum = 0;
  for (const Part& part : series.parts) {
    const double us = ceiling_ ? ceiling_->us(part.operation, tokens, part.row_bytes) : 0;
    if (us == 0) return 0;
    sum += us;
  }
  return sum;
}

double Report::yardstick_us(const Series& series, const SizeResult& result) const {
  return options_.rounds > 0 ? times(result.series.front()).p50 : ceiling_us(series, result.tokens);
}

std::string Report::figures(const Series& series, const SizeResult& result) const {
  const Statistics time = times(series);
  std::string text = fmt::format(" {:>10.1f} {:>10.1f}", time.p50, time.p99);
  if (series.row_bytes == 0) {
    text += fmt::format(" {:>7} {:>7} {:>7}", "-", "-", "-");
  } else {
    const Bandwidths rate = bandwidths(series, options_.ranks(), time.p50);
    text += fmt::format(" {:>7.3f} {:>7.3f} {:>7.3f}", rate.wire, rate.logical, rate.selection);
  }
  const double yardstick = yardstick_us(series, result);
  if (has_ratio()) text += yardstick > 0 ? fmt::format(" {:>6.3f}", time.p50 / yardstick) : fmt::format(" {:>6}", "-");
  return text + fmt::format(" {:>6}", series.tally.verified > 0 ? std::to_string(series.tally.wrong) : "N/A");
}

std::vector<int> Report::node_of_rank() const {
  std::vector<int> nodes;
  for (const RankInfo& rank : ranks_) nodes.push_back(rank.node);
  return nodes;
}

// Bytes, messages and commands of an iteration, beside what the routing asks for.
void Report::wire(const Series& series) const {
  if (series.wire.messages == 0) return;
  const WireFigures f = wire_figures(series, node_of_rank());
  line(
      "#   wire, {}: {:.0f} bytes in {:.1f} messages, by {:.1f} commands; {:.0f} bytes of {:.1f} rows must cross{}; "
      "{:.1f} messages allowed",
      series.name, f.bytes, f.messages, f.commands, f.must_cross_bytes, f.must_cross_rows,
      f.must_cross_bytes > 0 ? fmt::format(", {:.3f} of them went", f.bytes / f.must_cross_bytes) : "",
      f.messages_allowed);
}

void Report::header() const {
  const Options& o = options_;
  const Environment& e = environment_;
  line("# {} version {} commit {}, libucclep {}", o.tool, version, commit, e.library_version);
  line("# Collective test starting: {}", o.tool);
  line("# nRanks {} ({}) minTokens {} maxTokens {} step: {} warmup iters: {} iters: {} check: {} seed: {}", o.ranks(),
       ranks_in_words(o), o.min_tokens, o.max_tokens,
       o.step > 0 ? fmt::format("{} (increment)", o.step) : fmt::format("{} (factor)", o.factor), o.warmup,
       o.iterations, o.check, o.seed);
  if (o.rounds > 0) line("# Times of a round: {} in one launch; ratio: to the library's time", o.rounds);
  if (o.graph && o.rounds == 0) line("# Operations are captured once, and replayed as graphs");
  if (o.windows) line("# Outputs of dispatch and inputs of combine lie in registered windows");
  if (!o.ceiling.empty()) line("# ratio: to the times in {}", o.ceiling);
  line("# mode {} layout {} hidden {} experts {} topk {} type {}{} skew {} sms {}", o.mode, o.layout, o.hidden,
       o.experts, o.topk, o.dtype, o.quant ? " dispatched as fp8" : "", o.skew,
       o.sms > 0 ? std::to_string(o.sms) : "auto");
  const std::vector<int> nodes = node_of_rank();
  const int last_node = *std::max_element(nodes.begin(), nodes.end());
  if (last_node > 0) line("# {} nodes, over {}", last_node + 1, ranks_.front().transport);
  if (o.gpus_here > 0 && o.mpi_ranks == 0 && o.ranks() > o.gpus_here) {
    line("# {} ranks share {} GPUs: times are not those of ranks with a GPU each", o.ranks(), o.gpus_here);
  }
  if (o.late_rank >= 0) line("# rank {} enters every iteration {} us late", o.late_rank, o.late_us);
  if (o.corrupt) line("# one byte of every iteration is corrupted: this run has to fail");
  line("#\n# Using devices");
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const RankInfo& info = ranks_[r];
    line("#  Rank {:2} Pid {:6} on {:>10} node {:2} device {:2} {}", r, info.pid, info.host, info.node,
         info.device_index, info.device);
  }
  line("# CPU: {}, {} cores; {}; {}, {}", e.cpu, e.cores, e.system, e.compiler, e.build);
  std::istringstream build(e.library_build);
  for (std::string text; std::getline(build, text);) {
    if (!text.empty()) line("# {}", text);
  }
  line("# Group memory per rank: {:.1f} MiB of the device, {:.1f} MiB of the host (GroupQuery){}",
       static_cast<double>(memory_.query_device_bytes) / mebi, static_cast<double>(memory_.query_host_bytes) / mebi,
       memory_.measured_bytes > 0
           ? fmt::format("; measured {:.1f} MiB", static_cast<double>(memory_.measured_bytes) / mebi)
           : "");
  line("# Times of the slowest rank, by {}; bandwidths per rank at the median time",
       !timing_.events   ? "the clock around call and synchronisation"
       : timing_.aligned ? "events of the device, behind an untimed operation that aligns the ranks"
                         : "events of the device");
  line("#");
  const auto titles = [this](const std::vector<std::string>& cells) {
    const std::string text =
        fmt::format("# {:>8} {:>7} {:>7} {:>5}  {:<23} {:>10} {:>10} {:>7} {:>7} {:>7}{} {:>6}", cells[0], cells[1],
                    cells[2], cells[3], cells[4], cells[5], cells[6], cells[7], cells[8], cells[9],
                    has_ratio() ? fmt::format(" {:>6}", cells[10]) : "", cells[11]);
    line("{}", text.substr(0, text.find_last_not_of(' ') + 1));
  };
  titles({"tokens", "row", "count", "type", "operation", "time p50", "p99", "wire", "logical", "select", "ratio",
          "#wrong"});
  titles({"per rank", "(B)", "(rows)", "", "", "(us)", "(us)", "(GB/s)", "(GB/s)", "(GB/s)", "", ""});
}

void Report::row(const SizeResult& result) {
  const Shape shape = options_.shape();
  for (const Series& series : result.series) {
    line("  {:>8} {:>7} {:>7.0f} {:>5}  {:<23}{}", result.tokens, shape.wire_row_bytes(), mean_rows(shape, series),
         options_.dtype, series.name, figures(series, result));
    tally_ += series.tally;
  }
  for (const Series& series : result.series) wire(series);
  results_.push_back(result);
}

Json Report::close() {
  const bool good = tally_.wrong == 0 && tally_.verified > 0;
  double wire = 0;
  int count = 0;
  for (const SizeResult& result : results_) {
    for (const Series& series : result.series) {
      if (series.row_bytes == 0) continue;
      wire += bandwidths(series, options_.ranks(), times(series).p50).wire;
      ++count;
    }
  }
  line("# Out of bounds values : {} {}", tally_.wrong, good ? "OK" : "FAILED");
  line("# Avg wire bandwidth   : {:.4g}", count > 0 ? wire / count : 0.0);
  line("#\n# Collective test concluded: {}", options_.tool);
  const auto yardstick = [this](const Series& series, const SizeResult& result) {
    return yardstick_us(series, result);
  };
  return run_json(
      {options_, environment_, ranks_, memory_, timing_, start_time_, results_, tally_, node_of_rank(), yardstick});
}

}  // namespace ucclep::perf

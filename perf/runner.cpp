// SPDX-License-Identifier: Apache-2.0
#include "runner.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>

#include "api.hpp"
#include "json_parts.hpp"
#include "line.hpp"
#include "processes.hpp"
#include "report.hpp"

namespace ucclep::perf {
namespace {

RankInfo describe_rank(const Endpoint& endpoint) {
  RankInfo info;
  info.pid = getpid();
  info.device_index = endpoint.info().device_index;
  info.node = endpoint.info().node;
  info.domain_size = endpoint.info().domain_size;
  gethostname(info.host, sizeof info.host - 1);
  const auto copy = []<size_t n>(char(&to)[n], const char(&from)[n]) { std::memcpy(to, from, n); };
  copy(info.transport, endpoint.info().transport);
  copy(info.device, endpoint.info().device_name);
  return info;
}

Series begin_series(const Plan& plan) {
  Series series;
  series.name = plan.name;
  series.parts = plan.parts;
  series.rounds = plan.rounds;
  for (const Part& part : plan.parts) series.row_bytes += part.row_bytes;
  return series;
}

Sample of_a_round(Sample sample, int rounds) {
  sample.host_us /= rounds;
  sample.device_us /= rounds;
  sample.call_ns /= rounds;
  return sample;
}

// Iteration i of a series; those before 0 warm up.
void measure_once(Endpoint& endpoint, const Plan& plan, int i, Series& series) {
  const Options& o = endpoint.options();
  o.rounds > 0 ? endpoint.prepare_both() : endpoint.prepare();
  if (plan.before) endpoint.run(plan.before);
  const Wire before = endpoint.wire();
  const Sample sample = of_a_round(endpoint.timed(plan.operation, plan.captures), plan.rounds);
  const Wire after = endpoint.wire();
  if (i < 0) return;
  series.samples.push_back(sample);
  series.traffic += endpoint.traffic();
  // An aligned measurement has run the operation twice.
  const uint64_t runs = (endpoint.timing().aligned ? 2u : 1u) * static_cast<uint64_t>(plan.rounds);
  series.wire.bytes += (after.bytes - before.bytes) / runs;
  series.wire.messages += (after.messages - before.messages) / runs;
  series.wire.commands += (after.commands - before.commands) / runs;
  series.wire.rows += endpoint.crossing(plan.parts);
  const bool last = i + 1 == o.iterations;
  if (o.check > 0 && (last || (i + 1) % o.check == 0)) series.tally += plan.check();
}

SizeResult measure_size(Endpoint& endpoint, const std::vector<Plan>& plans, int tokens) {
  const Options& o = endpoint.options();
  const int iterations = static_cast<int>(plans.size()) * (o.warmup + o.iterations);
  endpoint.begin_size(tokens, o.rounds > 0 ? 2 * iterations : iterations);
  SizeResult result{tokens, {}};
  for (const Plan& plan : plans) result.series.push_back(begin_series(plan));
  // One series after the other, or in turns: then each turn captures anew.
  const int turns = o.rounds > 0 ? o.warmup + o.iterations : 1, of_a_turn = (o.warmup + o.iterations) / turns;
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t s = 0; s < plans.size(); ++s) {
      endpoint.begin_series();
      for (int i = 0; i < of_a_turn; ++i) measure_once(endpoint, plans[s], turn + i - o.warmup, result.series[s]);
    }
  }
  return result;
}

std::unique_ptr<Report> make_report(const Endpoint& endpoint, const std::vector<RankInfo>& ranks) {
  const ucclEpGroupLimits_t& limits = endpoint.group_limits();
  const GroupMemory memory{limits.device_bytes, limits.host_bytes, endpoint.measured_group_bytes()};
  return std::make_unique<Report>(endpoint.options(), ranks, memory, endpoint.timing());
}

// What all runs found; rank 0 has their JSON, too.
struct Outcome {
  Tally tally;
  Json runs = Json::array();
};

void measure(Endpoint& endpoint, const Tool& tool, Team& team, Outcome& outcome) {
  const std::vector<RankInfo> ranks = team.gather(describe_rank(endpoint));
  const std::vector<Plan> plans = tool.plan(endpoint);
  std::unique_ptr<Report> report;
  if (team.rank() == 0) {
    report = make_report(endpoint, ranks);
    report->header();
  }
  for (int tokens : endpoint.options().sizes()) {
    SizeResult result = measure_size(endpoint, plans, tokens);
    for (const Series& series : result.series) {
      if (series.tally.wrong == 0) continue;
      std::fprintf(stderr, "# rank %d, %s, %d tokens, first mistake: %s\n", team.rank(), series.name.c_str(), tokens,
                   series.tally.first.c_str());
    }
    merge(team, result);
    for (const Series& series : result.series) outcome.tally += series.tally;
    if (report) report->row(result);
  }
  if (report) outcome.runs.push_back(report->close());
}

void run_once(const Options& options, const Tool& tool, Team& team, Outcome& outcome) {
  Endpoint endpoint(options, team, tool.combines);
  report_failure(options, team, [&] { measure(endpoint, tool, team, outcome); });
}

// One rank's work from beginning to end. True if all rows of all ranks were right.
bool run_rank(const Options& options, const Tool& tool, Team& team) {
  Outcome outcome;
  for (const Options& run : options.runs()) run_once(run, tool, team, outcome);
  if (team.rank() == 0) {
    if (!options.json.empty()) {
      const Json& file = outcome.runs.size() == 1 ? outcome.runs[0] : outcome.runs;
      line("# JSON: {}", write_json_to(options.json, file));
    }
    line("verified {} rows, {} wrong", outcome.tally.verified, outcome.tally.wrong);
  }
  return outcome.tally.wrong == 0 && outcome.tally.verified > 0;
}

// As `rank`, with every failure reported to the team.
bool run_member(const Options& options, Team& team, const std::function<bool(Team&)>& rank) {
  bool good = false;
  try {
    report_failure(options, team, [&] { good = rank(team); });
  } catch (const TeamFailed&) {
  }
  return good;
}

bool run_threads(const Options& options, SharedMemoryTeam& team, int first_rank,
                 const std::function<bool(Team&)>& rank) {
  std::atomic<bool> good{true};
  std::vector<std::thread> threads;
  for (int i = 0; i < options.ranks_per_process(); ++i) {
    threads.emplace_back([&, number = first_rank + i] {
      const std::unique_ptr<Team> member = team.member(number);
      if (!run_member(options, *member, rank)) good = false;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return good;
}

bool run_mpi(const Options& options, const std::function<bool(Team&)>& rank) {
  const std::unique_ptr<Team> team = open_mpi_team();
  if (team->size() != options.ranks()) {
    throw PerfError(
        fmt::format("MPI has {} ranks, but the launcher's environment names {}", team->size(), options.ranks()));
  }
  return run_member(options, *team, rank);
}

}  // namespace

void report_failure(const Options& options, Team& team, const std::function<void()>& work) {
  try {
    work();
  } catch (const TeamFailed&) {  // the rank that failed has said why
    throw;
  } catch (const std::exception& error) {
    team.fail(fmt::format("{}: rank {}: {}", options.tool, team.rank(), error.what()));
    throw TeamFailed(error.what());
  }
}

bool run_ranks(const Options& options, const std::function<bool(Team&)>& rank) {
  if (options.mpi_ranks > 0) return run_mpi(options, rank);
  if (options.child_fd >= 0) {  // the parent prints a failure
    SharedMemoryTeam team(options.ranks(), options.child_fd);
    return run_threads(options, team, options.child_index * options.ranks_per_process(), rank);
  }
  SharedMemoryTeam team(options.ranks());
  const bool good = options.processes > 0 ? run_processes(options, team) : run_threads(options, team, 0, rank);
  if (!team.failure().empty()) std::fprintf(stderr, "%s\n", team.failure().c_str());
  return good && team.failure().empty();
}

int run_main(const std::string& tool, const std::function<bool()>& work) {
  try {
    return work() ? 0 : 1;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n", tool.c_str(), error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", tool.c_str(), error.what());
    return 1;
  }
}

int run_tool(int argc, char** argv, const Tool& tool) {
  return run_main(tool.name, [&] {
    bool done = false;
    const Options options = parse_options(argc, argv, tool.name, tool.description, &done, tool.timed);
    return done || run_ranks(options, [&](Team& team) { return run_rank(options, tool, team); });
  });
}

}  // namespace ucclep::perf

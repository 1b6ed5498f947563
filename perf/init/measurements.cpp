// SPDX-License-Identifier: Apache-2.0
#include "init/measurements.hpp"

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "api.hpp"
#include "bootstrap/bootstrap.hpp"
#include "init/children.hpp"
#include "init/crowd.hpp"
#include "measurement.hpp"

namespace ucclep::perf {
namespace {

struct Bytes {
  double sent = 0, received = 0;
};
struct Span {
  double begin = 0, end = 0;  // ms of the machine's steady clock
};

// What one process of a row writes down.
struct Samples {
  static constexpr int most = 100;
  double init_ms[most], group_ms[most], sent[most], received[most];
  uint64_t verified, wrong;

  InitRow row(int ranks, bool real, int repeats) const {
    const auto list = [&](const double* values) { return std::vector<double>(values, values + repeats); };
    return {ranks, real, list(init_ms), list(group_ms), list(sent), list(received), verified, wrong};
  }
};

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Begins on all ranks at once. From the first one's begin to the last one's end.
template <class Step>
double timed(Team& team, Step&& step) {
  team.barrier();
  Span mine{now_ms(), 0};
  step();
  mine.end = now_ms();
  double begin = mine.begin, end = mine.end;
  for (const Span& one : team.gather(mine)) {
    begin = std::min(begin, one.begin);
    end = std::max(end, one.end);
  }
  return end - begin;
}

// Of this process's connections over TCP: a rank other than 0 has one, to the hub. What a rank has sent is acknowledged
// when a round has ended.
Bytes bytes_of_connections() {
  Bytes sum;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t length = sizeof info;
    const int number = std::atoi(entry.path().filename().c_str());
    if (getsockopt(number, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    sum.sent += static_cast<double>(info.tcpi_bytes_acked);
    sum.received += static_cast<double>(info.tcpi_bytes_received);
  }
  return sum;
}

// Each rank is a node of its own, and may choose one expert of each rank.
class RealRank {
 public:
  RealRank(const InitOptions& options, Team& team) : options_(options), team_(team) {}

  void run(int repeat, Samples& samples) {
    ucclEpUniqueId id = {};
    if (team_.rank() == 0) check(ucclEpGetUniqueId(&id), "ucclEpGetUniqueId");
    id = team_.gather(id)[0];
    const double init_ms = timed(team_, [&] { init(id); });
    const Bytes before = bytes_of_connections();
    const double group_ms = timed(team_, [&] { create_group(); });
    const Bytes after = bytes_of_connections();
    const auto all = team_.gather(Bytes{after.sent - before.sent, after.received - before.received});
    check(ucclEpGroupDestroy(group_), "ucclEpGroupDestroy", comm_);
    check(ucclEpCommDestroy(comm_), "ucclEpCommDestroy");
    if (team_.rank() != 0 || repeat < 0) return;
    samples.init_ms[repeat] = init_ms;
    samples.group_ms[repeat] = group_ms;
    for (const Bytes& one : std::span(all).subspan(1)) {
      samples.sent[repeat] += one.sent / (team_.size() - 1);
      samples.received[repeat] += one.received / (team_.size() - 1);
    }
    samples.verified += 2 * static_cast<uint64_t>(team_.size());
  }

 private:
  void init(const ucclEpUniqueId& id) {
    ucclEpCommConfig_t config = UCCLEP_COMM_CONFIG_INIT;
    config.device = UCCLEP_DEVICE_HOST;
    config.timeout_ms = options_.timeout_ms;
    config.ranks_per_node = 1;
    config.transport = "loopback";
    check(ucclEpCommInitRank(&comm_, team_.size(), id, team_.rank(), &config), "ucclEpCommInitRank");
  }

  void create_group() {
    ucclEpGroupConfig_t config = UCCLEP_GROUP_CONFIG_INIT;
    config.num_experts = team_.size();
    config.top_k = 1;
    config.max_tokens_per_rank = 1;
    config.max_token_bytes = 128;
    check(ucclEpGroupCreate(&group_, comm_, &config), "ucclEpGroupCreate", comm_);
  }

  const InitOptions& options_;
  Team& team_;
  ucclEpComm_t comm_ = nullptr;
  ucclEpGroup_t group_ = nullptr;
};

// One process is rank 0, the other one all others.
class SimulatedRanks {
 public:
  SimulatedRanks(const InitOptions& options, Team& team, int ranks) : options_(options), team_(team), ranks_(ranks) {}

  void run(int repeat, Samples& samples) {
    ucclEpUniqueId id = {};
    if (is_rank0()) id = open_rendezvous("");
    id = team_.gather(id)[0];
    const double init_ms = timed(team_, [&] { init(id); });
    const CrowdCounts before = crowd_ ? crowd_->counts() : CrowdCounts{};
    const double group_ms = timed(team_, [&] { come_to(rounds_of_group()); });
    if (crowd_ && repeat >= 0) {
      const CrowdCounts& after = crowd_->counts();
      samples.init_ms[repeat] = init_ms;
      samples.group_ms[repeat] = group_ms;
      samples.sent[repeat] = static_cast<double>(after.sent - before.sent) / (ranks_ - 1);
      samples.received[repeat] = static_cast<double>(after.received - before.received) / (ranks_ - 1);
      samples.verified += after.results;
      samples.wrong += after.wrong;
    }
    bootstrap_.reset();
    if (crowd_) crowd_->wait_for_goodbye(Deadline::after_ms(options_.timeout_ms));
    crowd_.reset();
  }

 private:
  bool is_rank0() const { return team_.rank() == 0; }
  Deadline deadline() const { return Deadline::after_ms(options_.timeout_ms); }

  void init(const ucclEpUniqueId& id) {
    if (is_rank0()) {
      bootstrap_ = Bootstrap::join(id, 0, ranks_, "", deadline());
    } else {
      crowd_ = std::make_unique<Crowd>(id, ranks_);
      if (options_.corrupt) crowd_->corrupt();
      crowd_->join(0, deadline());
      check_finished("joined");
    }
    come_to(rounds_of_init());
  }

  void come_to(std::span<const HubRound> rounds) {
    if (is_rank0()) {
      for (const HubRound& round : rounds) take_part(*bootstrap_, round, deadline());
    } else {
      crowd_->run(rounds, deadline());
      check_finished("finished all rounds");
    }
  }

  void check_finished(const char* what) const {
    const CrowdCounts& counts = crowd_->counts();
    if (counts.finished == ranks_ - 1) return;
    throw PerfError(fmt::format("{} of {} simulated ranks {} within {} ms{}{}", counts.finished, ranks_ - 1, what,
                                options_.timeout_ms, counts.text.empty() ? "" : "; ", counts.text));
  }

  const InitOptions& options_;
  Team& team_;
  int ranks_;
  std::unique_ptr<Bootstrap> bootstrap_;
  std::unique_ptr<Crowd> crowd_;
};

void repeat_all(const InitOptions& options, const auto& run) {
  for (int repeat = -options.warmup; repeat < options.repeats; ++repeat) run(repeat);
}

}  // namespace

InitRow measure_real(const InitOptions& options, int ranks) {
  const Shared<Samples> samples;
  run_in_children(ranks, [&](Team& team) {
    repeat_all(options, [&](int repeat) { RealRank(options, team).run(repeat, *samples); });
  });
  return samples->row(ranks, true, options.repeats);
}

InitRow measure_simulated(const InitOptions& options, int ranks) {
  const Shared<Samples> samples;
  run_in_children(2, [&](Team& team) {
    repeat_all(options, [&](int repeat) { SimulatedRanks(options, team, ranks).run(repeat, *samples); });
  });
  return samples->row(ranks, false, options.repeats);
}

bool same_bytes(const InitRow& real, const InitRow& simulated) {
  const auto near = [](const std::vector<double>& a, const std::vector<double>& b) {
    const double of_a = statistics(a).p50, of_b = statistics(b).p50;
    return std::abs(of_a - of_b) <= 0.02 * of_a;
  };
  return near(real.sent, simulated.sent) && near(real.received, simulated.received);
}

}  // namespace ucclep::perf

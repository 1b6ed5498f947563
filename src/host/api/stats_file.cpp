// SPDX-License-Identifier: Apache-2.0
#include "host/api/stats_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "base/best_effort.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/quiet_signals.hpp"
#include "host/context/communicator.hpp"
#include "host/group/group.hpp"
#include "host/group/masks.hpp"
#include "host/network/network.hpp"

namespace ucclep {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds interval{500};
constexpr size_t max_masked_listed = 64;  // bounds the file

// With its process id, when a process began names it for as long as the machine runs: field 22 of /proc/self/stat,
// behind a name that may contain anything but ends with the last bracket. 0: nobody knows.
uint64_t start_of_process() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string field;
  constexpr int first_behind_name = 3, starttime = 22;
  for (int i = first_behind_name; i < starttime; ++i) fields >> field;
  uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

// Of all groups, under comm.groups_mutex.
struct OfGroups {
  size_t groups = 0;
  uint64_t called[num_kinds] = {};
  std::set<uint32_t> masked;
  bool evicted = false;
};

OfGroups of_groups(const ucclEpComm& comm) {
  OfGroups all;
  const std::lock_guard lock(comm.groups_mutex);
  all.groups = comm.groups.size();
  for (ucclEpGroup_t group : comm.groups) {
    for (uint32_t kind = 0; kind < num_kinds; ++kind) {
      all.called[kind] += std::atomic_ref(group->called[kind]).load(std::memory_order_relaxed);
    }
    if (!group->mask_words) continue;
    all.evicted = all.evicted || is_complete(group->mask_words->evicted);
    for (uint32_t rank = 0; rank < group->shape().ranks; ++rank) {
      if (is_masked(*group, rank)) all.masked.insert(rank);
    }
  }
  return all;
}

json counters_of(const ucclEpComm& comm) {
  const OfGroups groups = of_groups(comm);
  const ucclEpStats_t stats = comm.network ? comm.network->statistics() : ucclEpStats_t(UCCLEP_STATS_INIT);
  const NetworkDepths depths = comm.network ? comm.network->depths() : NetworkDepths{};
  json listed = json::array();
  for (const uint32_t rank : groups.masked) {
    if (listed.size() < max_masked_listed) listed.push_back(rank);
  }
  return {{"time_ns", std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1)},
          {"groups", groups.groups},
          {"updates", groups.called[static_cast<uint32_t>(Kind::update)]},
          {"dispatches", groups.called[static_cast<uint32_t>(Kind::dispatch)]},
          {"combines", groups.called[static_cast<uint32_t>(Kind::combine)]},
          {"commands", stats.commands},
          {"messages", stats.messages},
          {"bytes_sent", stats.bytes_sent},
          {"bytes_received", stats.bytes_received},
          {"ring_full_stalls", stats.ring_full_stalls},
          {"credit_stalls", stats.credit_stalls},
          {"nic_stalls", stats.nic_stalls},
          {"reorder_depth_max", stats.reorder_depth_max},
          {"commands_waiting", depths.commands_waiting},
          {"in_flight_max", depths.in_flight_max},
          {"masked", groups.masked.size()},
          {"masked_ranks", listed},
          {"evicted", groups.evicted}};
}

json identity_of(const ucclEpComm& comm) {
  return {{"version", 1},
          {"pid", ::getpid()},
          {"process_start", start_of_process()},
          {"rank", comm.rank()},
          {"nranks", comm.nranks()},
          {"host", comm.bootstrap->host_name(comm.rank())},
          {"device", comm.traits.name},
          {"transport", comm.topology.plan.domains.size() == 1 ? "shared memory" : comm.transport}};
}

std::string text_of(const json& identity, const ucclEpComm& comm) {
  json all = identity;
  all.update(counters_of(comm));
  all["error"] = comm.faults->current().text;
  return all.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string next_name() {
  static std::atomic<uint64_t> taken{0};
  return fmt::format("{}.{}.json", ::getpid(), taken.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace

StatsFile::StatsFile(std::string folder) : folder_name_(std::move(folder)), name_(next_name()) {
  constexpr mode_t owner_only = 0700;
  if (::mkdir(folder_name_.c_str(), owner_only) == 0 || errno == EEXIST) {
    folder_ = Fd(::open(folder_name_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  if (!folder_) fail(ucclEpSystemError, "UCCLEP_STATS_DIR: cannot open {}: {}", folder_name_, errno_text(errno));
}

StatsFile::~StatsFile() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ended_changed_.notify_all();
  thread_.join();
  ::unlinkat(folder_.get(), name_.c_str(), 0);
}

void StatsFile::start(const ucclEpComm& comm) {
  thread_ = start_service_thread("ucclep-stats", comm.rank(), [this, &comm] { serve(comm); });
}

void StatsFile::serve(const ucclEpComm& comm) {
  const json identity = identity_of(comm);
  for (std::unique_lock lock(mutex_); !ended_;) {
    lock.unlock();
    best_effort("stats", "statistics were not written", [&] { replace(text_of(identity, comm)); });
    lock.lock();
    ended_changed_.wait_for(lock, interval, [this] { return ended_; });
  }
}

// A reader finds the old file or the new one, whole. Whatever has the temporary name is left from a process that had
// this one's number.
void StatsFile::replace(const std::string& text) noexcept {
  const std::string fresh = "." + name_;
  const QuietSignals quiet;
  ::unlinkat(folder_.get(), fresh.c_str(), 0);
  const Fd file(::openat(folder_.get(), fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const bool written = file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::renameat(folder_.get(), fresh.c_str(), folder_.get(), name_.c_str()) == 0;
  if (written || std::exchange(failed_, true)) return;
  log::warn("stats", "cannot write {}/{}: {}; later failures are not logged", folder_name_, name_, errno_text(errno));
}

}  // namespace ucclep

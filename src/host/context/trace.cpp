// SPDX-License-Identifier: Apache-2.0
#include "host/context/trace.hpp"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "base/best_effort.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/kept.hpp"
#include "base/log.hpp"
#include "base/quiet_signals.hpp"
#include "device/kernels/kernels.hpp"
#include "device/kernels/trace_clock.hpp"
#include "host/context/trace_marks.hpp"

namespace ucclep {
namespace {

using nlohmann::json;

constexpr int64_t calls_track = 0, first_group_track = 100, tracks_of_group = 100;
constexpr int64_t max_tracks_of_kind = 8;  // operations in flight
constexpr size_t batch_calls = 4096;       // are kept before they are written
constexpr std::array<const char*, num_kinds> kind_names{"update", "dispatch", "combine"};

// A step ends with a mark.
const char* step_name(Mark mark) {
  return mark == Mark::slots_free ? "slots" : mark == Mark::headers_in ? "headers" : "rows";
}

template <class Clock>
int64_t ns_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

json span(int rank, int64_t track, std::string name, double begin_us, double end_us) {
  return {{"ph", "X"},      {"pid", rank},
          {"tid", track},   {"name", std::move(name)},
          {"ts", begin_us}, {"dur", std::max(0.0, end_us - begin_us)}};
}

// The device's clock may be any: it is read between two looks at the host's, and of several tries the closest counts.
int64_t device_to_host_ns(Device& device, Deadline deadline) {
  constexpr int tries = 5;
  const auto give_back = [](auto&& free) {
    best_effort("trace", "the memory for reading the device's clock was not freed", free);
  };
  const std::shared_ptr<uint64_t> now(static_cast<uint64_t*>(device.alloc_host(sizeof(uint64_t))),
                                      [&](uint64_t* word) { give_back([&] { device.free_host(word); }); });
  const std::shared_ptr<void> stream(device.stream_create(),
                                     [&](void* made) { give_back([&] { device.stream_destroy(made); }); });
  int64_t closest = std::numeric_limits<int64_t>::max(), difference = 0;
  const TraceClockArgs args{now.get()};
  for (int i = 0; i < tries; ++i) {
    const int64_t before = Trace::now_ns();
    device.launch(kernels::trace_clock, {}, &args, sizeof args, stream.get());
    if (device.stream_synchronize(stream.get(), deadline.remaining_ms()) != ucclEpSuccess) {
      keep_for_ever(now);  // the kernel may still write it
      keep_for_ever(stream);
      fail(ucclEpTimeout, "UCCLEP_TRACE: {} did not return its time within {} ms", device.traits().name,
           deadline.total_ms());
    }
    const int64_t after = Trace::now_ns();
    if (after - before >= closest) continue;
    closest = after - before;
    difference =
        before + (after - before) / 2 - static_cast<int64_t>(std::atomic_ref(*now).load(std::memory_order_acquire));
  }
  log::info("trace", "the clock of {} is known to {} ns", device.traits().name, closest / 2);
  return difference;
}

// Another rank writes its events in no time. False: somebody holds the file, and does not go on.
bool lock_soon(int fd) {
  for (const Deadline deadline = Deadline::after_ms(1000); ::flock(fd, LOCK_EX | LOCK_NB) != 0;) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

TraceFile::TraceFile(std::string name) : name_(std::move(name)) {
  fd_ = open_to_append(name_);
  if (!fd_) fail(ucclEpSystemError, "UCCLEP_TRACE: cannot open {}: {}", name_, why_not_opened(errno));
}

void TraceFile::append(const std::vector<json>& events) noexcept {
  best_effort("trace", "events were lost", [&] {
    std::string text;
    for (const json& event : events) text += ",\n" + event.dump();
    if (text.empty() || failed_) return;
    if (!lock_soon(fd_.get())) {
      failed_ = true;
      log::warn("trace", "cannot write to {}: another process keeps it locked; the rest of the trace is lost", name_);
      return;
    }
    struct stat facts = {};
    if (::fstat(fd_.get(), &facts) == 0 && facts.st_size == 0) text[0] = '[';
    const QuietSignals quiet;
    for (std::string_view left = text; !left.empty();) {
      const ssize_t written = ::write(fd_.get(), left.data(), left.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        failed_ = true;
        log::warn("trace", "cannot write to {}: {}; the rest of the trace is lost", name_, errno_text(errno));
        break;
      }
      left.remove_prefix(static_cast<size_t>(written));
    }
    ::flock(fd_.get(), LOCK_UN);
  });
}

Trace::Trace(const std::string& pattern, int rank, Device& device, Deadline deadline)
    : rank_(rank), file_(log::expand_file_name(pattern, rank)) {
  host_to_wall_ = ns_of<std::chrono::system_clock>() - now_ns();
  device_to_wall_ = device_to_host_ns(device, deadline) + host_to_wall_;
  write({{{"ph", "M"}, {"pid", rank}, {"name", "process_name"}, {"args", {{"name", fmt::format("rank {}", rank)}}}},
         {{"ph", "M"}, {"pid", rank}, {"name", "process_sort_index"}, {"args", {{"sort_index", rank}}}},
         track_name(calls_track, "calls")});
}

Trace::~Trace() {
  write(std::exchange(calls_, {}));
}

int64_t Trace::now_ns() {
  return ns_of<std::chrono::steady_clock>();
}

void Trace::write(const std::vector<json>& events) noexcept {
  const std::lock_guard lock(mutex_);
  file_.append(events);
}

json Trace::track_name(int64_t track, const std::string& name) const {
  return {{"ph", "M"}, {"pid", rank_}, {"tid", track}, {"name", "thread_name"}, {"args", {{"name", name}}}};
}

void Trace::add_call(const char* function, int64_t begin_ns, int64_t end_ns) noexcept {
  constexpr int64_t min_ns = 1000;
  if (end_ns - begin_ns < min_ns) return;
  best_effort("trace", "a call was not noted", [&] {
    const std::lock_guard lock(mutex_);
    calls_.push_back(span(rank_, calls_track, function, host_us(begin_ns), host_us(end_ns)));
    if (calls_.size() >= batch_calls) file_.append(std::exchange(calls_, {}));
  });
}

GroupTrace::GroupTrace(Trace& trace, Device& device, const GroupShape& shape)
    : trace_(trace),
      device_(device),
      number_(trace.groups_++),
      in_flight_(shape.in_flight),
      entries_(static_cast<TraceEntry*>(device.alloc_host(sizeof(TraceEntry) * num_kinds * trace_depth))) {}

GroupTrace::~GroupTrace() {
  best_effort("trace", "memory of a trace was not freed", [&] { device_.free_host(entries_); });
}

// Operations of a kind that may overlap are in tracks of their own: a track's spans lie within each other or apart.
void GroupTrace::add_operations(std::vector<json>& events, Kind kind) const {
  const auto k = static_cast<uint32_t>(kind);
  const int64_t first_track = first_group_track + tracks_of_group * number_ + max_tracks_of_kind * k;
  const auto track_of = [&](const TracedOperation& operation) { return first_track + operation.seq % in_flight_; };
  const std::vector<TracedOperation> all = operations_in({entries_ + k * trace_depth, trace_depth});
  for (size_t slot = 0; slot < std::min<size_t>(in_flight_, all.size()); ++slot) {
    events.push_back(trace_.track_name(track_of(all[slot]), fmt::format("group {}: {}", number_, kind_names[k])));
  }
  for (const TracedOperation& operation : all) {
    const auto add = [&](std::string name, uint64_t from, uint64_t to) {
      events.push_back(
          span(trace_.rank_, track_of(operation), std::move(name), trace_.device_us(from), trace_.device_us(to)));
    };
    add(fmt::format("{} {}{}", kind_names[k], operation.seq, operation.ended() ? "" : ", not ended"), operation.begin,
        operation.end());
    for (const TracedStep& step : operation.steps) add(step_name(step.mark), step.begin, step.end);
  }
}

// Transfers overlap as the network likes: asynchronous events have tracks of their own by name.
void GroupTrace::add_transfer(std::vector<json>& events, const proxy::Transfer& transfer) const {
  const char* const kind = kind_names[static_cast<uint32_t>(transfer.kind)];
  const std::string name = fmt::format("{} {}", kind, transfer.seq);
  const std::string track = fmt::format("group {}: {} rank {}", number_, transfer.sent ? "to" : "from", transfer.peer);
  const std::string id =
      fmt::format("{}.{}.{}.{}.{}", trace_.rank_, number_, transfer.sent ? "to" : "from", transfer.peer, name);
  const json common{{"pid", trace_.rank_}, {"tid", calls_track}, {"cat", track}, {"id", id}, {"name", name}};
  json begin = common, end = common;
  begin.update({{"ph", "b"}, {"ts", trace_.host_us(transfer.first_ns)}, {"args", {{"messages", transfer.messages}}}});
  end.update({{"ph", "e"}, {"ts", trace_.host_us(transfer.last_ns)}});
  events.push_back(std::move(begin));
  events.push_back(std::move(end));
}

void GroupTrace::write(const std::vector<proxy::Transfer>& transfers) noexcept {
  best_effort("trace", "a group's operations were lost", [&] {
    std::vector<json> events;
    for (const Kind kind : {Kind::update, Kind::dispatch, Kind::combine}) add_operations(events, kind);
    for (const proxy::Transfer& transfer : transfers) add_transfer(events, transfer);
    trace_.write(events);
  });
}

}  // namespace ucclep

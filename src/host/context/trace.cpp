// SPDX-License-Identifier: Apache-2.0
#include "host/context/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/best_effort.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/kept.hpp"
#include "base/log.hpp"
#include "device/kernels/kernels.hpp"
#include "device/kernels/trace_clock.hpp"
#include "host/context/trace_marks.hpp"

namespace ucclep {
namespace {

constexpr size_t batch_events = 4096;  // of calls, kept before they are written
constexpr std::array<const char*, num_kinds> kind_names{"update", "dispatch", "combine"};

// A step ends with a mark.
const char* step_name(Mark mark) {
  return mark == Mark::slots_free ? "slots" : mark == Mark::headers_in ? "headers" : "rows";
}

template <class Clock>
int64_t ns_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
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
      fail(ucclEpTimeout, "UCCLEP_TRACE: cannot read the clock of {} within {} ms", device.traits().name,
           deadline.total_ms());
    }
    const int64_t after = Trace::now_ns();
    if (after - before >= closest) continue;
    closest = after - before;
    difference =
        before + (after - before) / 2 - static_cast<int64_t>(std::atomic_ref(*now).load(std::memory_order_acquire));
  }
  log::info("trace", "the clock of {} is known with an error of {} ns", device.traits().name, closest / 2);
  return difference;
}

}  // namespace

Trace::Trace(const std::string& pattern, int rank, Device& device, Deadline deadline)
    : rank_(rank), file_(log::expand_file_name(pattern, rank)), call_tracks_(rank, "calls") {
  host_to_wall_ = ns_of<std::chrono::system_clock>() - now_ns();
  device_to_wall_ = device_to_host_ns(device, deadline) + host_to_wall_;
  write({{{"ph", "M"}, {"pid", rank}, {"name", "process_name"}, {"args", {{"name", fmt::format("rank {}", rank)}}}},
         {{"ph", "M"}, {"pid", rank}, {"name", "process_sort_index"}, {"args", {{"sort_index", rank}}}}});
}

Trace::~Trace() {
  write(std::exchange(calls_, {}));
}

int64_t Trace::now_ns() {
  return ns_of<std::chrono::steady_clock>();
}

void Trace::write(const TraceEvents& events) noexcept {
  const std::lock_guard lock(mutex_);
  file_.append(events);
}

// Calls of several threads may overlap. A call is noted when it ends, after all that began later and have ended.
void Trace::add_call(const char* function, int64_t begin_ns, int64_t end_ns) noexcept {
  constexpr int64_t min_ns = 1000;
  if (end_ns - begin_ns < min_ns) return;
  best_effort("trace", "a call was not recorded", [&] {
    const std::lock_guard lock(mutex_);
    const double begin = host_us(begin_ns), end = host_us(end_ns);
    const uint32_t track = call_tracks_.take(begin, end, calls_);
    calls_.push_back(begin_span(rank_, track, function, begin));
    calls_.push_back(end_span(rank_, track, function, end));
    if (calls_.size() >= batch_events) file_.append(std::exchange(calls_, {}));
  });
}

GroupTrace::GroupTrace(Trace& trace, Device& device)
    : trace_(trace),
      device_(device),
      number_(trace.groups_++),
      entries_(static_cast<TraceEntry*>(device.alloc_host(sizeof(TraceEntry) * num_kinds * trace_depth))) {}

GroupTrace::~GroupTrace() {
  best_effort("trace", "memory of a trace was not freed", [&] { device_.free_host(entries_); });
}

// Operations of a kind overlap where several are in flight; the steps of one follow each other.
void GroupTrace::add_operations(TraceEvents& events, Kind kind) const {
  const auto k = static_cast<uint32_t>(kind);
  TrackSet tracks(trace_.rank_, fmt::format("group {}: {}", number_, kind_names[k]));
  for (const TracedOperation& operation : operations_in({entries_ + k * trace_depth, trace_depth})) {
    const double begin = trace_.device_us(operation.begin), end = trace_.device_us(operation.end());
    const uint32_t track = tracks.take(begin, end, events);
    const std::string name =
        fmt::format("{} {}{}", kind_names[k], operation.seq, operation.ended() ? "" : ", not ended");
    events.push_back(begin_span(trace_.rank_, track, name, begin));
    for (const TracedStep& step : operation.steps) {
      events.push_back(begin_span(trace_.rank_, track, step_name(step.mark), trace_.device_us(step.begin)));
      events.push_back(end_span(trace_.rank_, track, step_name(step.mark), trace_.device_us(step.end)));
    }
    events.push_back(end_span(trace_.rank_, track, name, end));
  }
}

// Transfers overlap as the network likes.
void GroupTrace::add_transfers(TraceEvents& events, std::vector<proxy::Transfer> transfers) const {
  std::ranges::sort(transfers, {}, &proxy::Transfer::first_ns);
  std::map<std::pair<bool, uint32_t>, TrackSet> tracks;  // by direction and peer
  for (const proxy::Transfer& transfer : transfers) {
    const std::string track_name =
        fmt::format("group {}: {} rank {}", number_, transfer.sent ? "to" : "from", transfer.peer);
    const double begin = trace_.host_us(transfer.first_ns), end = trace_.host_us(transfer.last_ns);
    const uint32_t track = tracks.try_emplace({transfer.sent, transfer.peer}, trace_.rank_, track_name)
                               .first->second.take(begin, end, events);
    const std::string name = fmt::format("{} {}", kind_names[static_cast<uint32_t>(transfer.kind)], transfer.seq);
    events.push_back(begin_span(trace_.rank_, track, name, begin));
    events.back()["args"]["messages"] = transfer.messages;
    events.push_back(end_span(trace_.rank_, track, name, end));
  }
}

void GroupTrace::write(const std::vector<proxy::Transfer>& transfers) noexcept {
  best_effort("trace", "a group's operations were lost", [&] {
    TraceEvents events;
    for (const Kind kind : {Kind::update, Kind::dispatch, Kind::combine}) add_operations(events, kind);
    add_transfers(events, transfers);
    trace_.write(events);
  });
}

}  // namespace ucclep

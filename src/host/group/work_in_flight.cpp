// SPDX-License-Identifier: Apache-2.0
#include "host/group/work_in_flight.hpp"

#include <algorithm>

#include "base/best_effort.hpp"

namespace ucclep {
namespace {

// Beyond so many, a stream that is new takes over an event whose work has ended.
constexpr size_t many_streams = 64;

}  // namespace

WorkInFlight::~WorkInFlight() {
  for (const Last& last : last_) {
    best_effort("group", "an event was not destroyed", [&] { device_.event_destroy(last.event); });
  }
}

ucclEpEvent_t WorkInFlight::event_of(ucclEpStream_t stream, bool captured) {
  for (const Last& last : last_) {
    if (last.stream == stream && last.captured == captured) return last.event;
  }
  if (last_.size() >= many_streams && !captured) {
    const auto ended = std::ranges::find_if(last_, [&](const Last& last) {
      return !last.captured && device_.event_synchronize(last.event, 0) == ucclEpSuccess;
    });
    if (ended != last_.end()) {
      ended->stream = stream;
      return ended->event;
    }
  }
  last_.reserve(last_.size() + 1);
  last_.push_back({stream, captured, device_.marker_create()});
  return last_.back().event;
}

ucclEpResult_t WorkInFlight::wait(Deadline deadline) const {
  for (const Last& last : last_) {
    const ucclEpResult_t result = device_.event_synchronize(last.event, deadline.remaining_ms());
    if (result != ucclEpSuccess) return result;
  }
  return ucclEpSuccess;
}

}  // namespace ucclep

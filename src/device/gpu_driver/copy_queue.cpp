// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/copy_queue.hpp"

#include <chrono>
#include <thread>

namespace ucclep::gpu {
namespace {

constexpr std::chrono::seconds last_wait{10};

}  // namespace

// Memory that a copy still reads or writes may go next.
DriverCopyQueue::~DriverCopyQueue() {
  best_effort("device", "cannot wait for copies", [&] {
    const auto begin = std::chrono::steady_clock::now();
    for (ended(); !begun_.empty(); ended()) {
      if (std::chrono::steady_clock::now() - begin > last_wait)
        fail(ucclEpTimeout, "some copies did not end within 10 s");
      std::this_thread::yield();
    }
  });
  for (Event event : begun_) unused_.push_back(event);
  for (Event event : unused_) {
    undo(driver_, context_, "destroying an event", [event](const DriverApi& api) { return api.event_destroy(event); });
  }
}

void DriverCopyQueue::copy(void* to, const void* from, size_t bytes) {
  const Current current(driver_, context_);
  const Event event = next_event();
  unused_.push_back(event);  // until it is recorded
  driver_.copy(to, from, bytes, stream_.get());
  driver_.check(driver_.api().event_record(event, stream_.get()), "recording an event");
  unused_.pop_back();
  begun_.push_back(event);
}

uint64_t DriverCopyQueue::ended() {
  if (begun_.empty()) return ended_;
  const Current current(driver_, context_);
  const OutsideCapture outside(driver_);
  for (; !begun_.empty(); begun_.pop_front(), ++ended_) {
    const Code code = driver_.api().event_query(begun_.front());
    if (code == not_ready) break;
    driver_.check(code, "copying the data of a put");
    unused_.push_back(begun_.front());
  }
  return ended_;
}

Event DriverCopyQueue::next_event() {
  Event event = nullptr;
  if (unused_.empty()) {
    driver_.check(driver_.api().event_create(&event, event_untimed), "creating an event");
    return event;
  }
  event = unused_.back();
  unused_.pop_back();
  return event;
}

}  // namespace ucclep::gpu

// SPDX-License-Identifier: Apache-2.0
// Streams and events: the host device's own. Calls need a current context, as a driver's do.
#include <set>

#include "doubles/capture.hpp"
#include "doubles/exports.hpp"

namespace ucclep::doubles {
namespace {

std::mutex mutex;
std::set<void*> untimed;

// After a kernel's fault every answer is that fault.
Device& healthy_device() {
  Gpu& gpu = current_gpu();
  expect(!gpu.faulted, launch_failed);
  return *gpu.device;
}

}  // namespace

void follow_streams(Gpu& gpu) {
  const std::lock_guard lock(mutex);
  for (const Stream stream : gpu.streams) gpu.device->stream_synchronize(stream, 0);
}

Code stream_create(Stream* stream, unsigned flags, int priority) {
  return answer(__func__, [&] {
    expect(flags == stream_non_blocking && priority <= normal_priority, invalid_value);
    *stream = static_cast<Stream>(healthy_device().stream_create());
    const std::lock_guard lock(mutex);
    current_gpu().streams.insert(*stream);
    if (priority < normal_priority) ++service_streams;
    ++live_objects;
  });
}

Code stream_destroy(Stream stream) {
  return answer(__func__, [&] {
    expect(stream != nullptr, invalid_handle);
    const std::lock_guard lock(mutex);
    current_gpu().device->stream_destroy(stream);
    current_gpu().streams.erase(stream);
    --live_objects;
  });
}

Code stream_query(Stream stream) {
  return answer(__func__, [&] {
    expect(!is_captured(stream), capture_unsupported);
    const ucclEpResult_t done = healthy_device().stream_synchronize(stream, 0);
    expect(done == ucclEpSuccess, not_ready);
    healthy_device();
  });
}

Code stream_wait_event(Stream stream, Event event, unsigned flags) {
  return answer(__func__, [&] {
    expect(flags == 0, invalid_value);
    Device& device = healthy_device();
    if (!capture_wait(stream, event)) device.stream_wait_event(stream, event);
  });
}

// At once and not in the stream's order: the library writes into a stream that has nothing else to do.
Code stream_write(Stream stream, void* word, uint32_t value, unsigned flags) {
  return answer(__func__, [&] {
    expect(flags == 0 && reinterpret_cast<uintptr_t>(word) % sizeof value == 0, invalid_value);
    Device& device = *current_gpu().device;
    expect(device.stream_synchronize(stream, 0) == ucclEpSuccess, not_supported);
    device.poke(static_cast<uint32_t*>(word), value);
  });
}

Code event_create(Event* event, unsigned flags) {
  return answer(__func__, [&] {
    expect(flags == 0 || flags == event_untimed, invalid_value);
    *event = static_cast<Event>(healthy_device().event_create());
    ++live_objects;
    const std::lock_guard lock(mutex);
    if (flags == event_untimed) untimed.insert(*event);
  });
}

Code event_destroy(Event event) {
  return answer(__func__, [&] {
    current_gpu().device->event_destroy(event);
    forget_captured(event);
    --live_objects;
    const std::lock_guard lock(mutex);
    untimed.erase(event);
  });
}

Code event_record(Event event, Stream stream) {
  return answer(__func__, [&] {
    Device& device = healthy_device();
    if (!capture_record(event, stream)) device.event_record(event, stream);
  });
}

Code event_query(Event event) {
  return answer(__func__, [&] {
    expect_no_capture();
    expect_not_captured(event);
    const ucclEpResult_t done = healthy_device().event_synchronize(event, 0);
    expect(done == ucclEpSuccess, not_ready);
    healthy_device();
  });
}

Code event_elapsed_ms(float* ms, Event begin, Event end) {
  return answer(__func__, [&] {
    {
      const std::lock_guard lock(mutex);
      expect(untimed.count(begin) + untimed.count(end) == 0, invalid_handle);
    }
    *ms = healthy_device().event_elapsed_ms(begin, end);
  });
}

}  // namespace ucclep::doubles

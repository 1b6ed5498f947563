// SPDX-License-Identifier: Apache-2.0
// Memory, streams and events of the communicator's device.
#include "base/best_effort.hpp"
#include "host/boundary/guard.hpp"
#include "host/context/communicator.hpp"

namespace ucclep {
namespace {

// A kernel's own deadline and the host's wait for it end at about the same time: the kernel's record, which names the
// peer, gets the grace.
int64_t longest_wait_ms(const ucclEpComm& comm) {
  return comm.deadline().with_grace().remaining_ms();
}

void check_event(const ucclEpComm& comm, ucclEpEvent_t event, const char* name) {
  require(event, name);
  if (comm.traits.kind == UCCLEP_DEVICE_HOST && comm.events.count(event) == 0) {
    fail(ucclEpInvalidArgument, "{} {} was not made by ucclEpEventCreate on this communicator", name, event);
  }
}

void check_recorded(const ucclEpComm& comm, ucclEpEvent_t event, const char* name) {
  if (comm.captured_events.count(event) == 0) return;
  fail(ucclEpInvalidUsage,
       "{} {} was last recorded in a stream capture, so it cannot be queried or waited for: record it again outside "
       "the capture",
       name, event);
}

template <class Memory>
void forget(Memory& memory, void* pointer, const char* made_by) {
  if (memory.erase(pointer) == 0) {
    fail(ucclEpInvalidArgument, "ptr {} was not returned by {} on this communicator", pointer, made_by);
  }
}

// What the communicator made goes whatever the device says; what it says of the caller's own, the caller hears.
template <class Object, class Destroy>
void destroy(std::set<Object>& made, Object object, Destroy&& destroy) {
  if (made.erase(object) == 0) return destroy();
  best_effort("comm", "a stream or an event was not destroyed", destroy);
}

}  // namespace
}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpMemAlloc(ucclEpComm_t comm, void** ptr, size_t bytes) {
  return guarded("ucclEpMemAlloc", comm, [&] {
    require(comm, "comm");
    require(ptr, "ptr");
    refuse_in_capture(*comm);
    void* memory = nullptr;
    if (bytes != 0) {
      Device& device = *comm->device;
      memory = device.alloc_shareable(bytes, !comm->one_process());
      comm->device_memory.emplace(memory, std::make_shared<DeviceMemory>(device, memory, bytes));
    }
    *ptr = memory;
  });
}

ucclEpResult_t ucclEpMemFree(ucclEpComm_t comm, void* ptr) {
  return guarded_destroying_part("ucclEpMemFree", comm, [&] {
    require(comm, "comm");
    if (ptr == nullptr) return;
    forget(comm->device_memory, ptr, "ucclEpMemAlloc");  // freed, or when the last window over it goes
  });
}

ucclEpResult_t ucclEpMemAllocHost(ucclEpComm_t comm, void** ptr, size_t bytes) {
  return guarded("ucclEpMemAllocHost", comm, [&] {
    require(comm, "comm");
    require(ptr, "ptr");
    refuse_in_capture(*comm);
    void* memory = bytes == 0 ? nullptr : comm->device->alloc_host(bytes);
    if (memory) comm->host_memory.insert(memory);
    *ptr = memory;
  });
}

ucclEpResult_t ucclEpMemFreeHost(ucclEpComm_t comm, void* ptr) {
  return guarded_destroying_part("ucclEpMemFreeHost", comm, [&] {
    require(comm, "comm");
    if (ptr == nullptr) return;
    forget(comm->host_memory, ptr, "ucclEpMemAllocHost");
    best_effort("comm", "host memory of the device was not freed", [&] { comm->device->free_host(ptr); });
  });
}

ucclEpResult_t ucclEpMemcpy(ucclEpComm_t comm, void* dst, const void* src, size_t bytes, ucclEpStream_t stream) {
  return guarded("ucclEpMemcpy", comm, [&] {
    usable(comm);
    if (bytes == 0) return;
    require(dst, "dst");
    require(src, "src");
    comm->device->memcpy_async(dst, src, bytes, checked_stream(*comm, stream));
  });
}

ucclEpResult_t ucclEpStreamCreate(ucclEpComm_t comm, ucclEpStream_t* stream) {
  return guarded("ucclEpStreamCreate", comm, [&] {
    usable(comm);
    require(stream, "stream");
    refuse_in_capture(*comm);
    const ucclEpStream_t made = comm->device->stream_create();
    comm->streams.insert(made);
    *stream = made;
  });
}

ucclEpResult_t ucclEpStreamDestroy(ucclEpComm_t comm, ucclEpStream_t stream) {
  return guarded_destroying_part("ucclEpStreamDestroy", comm, [&] {
    require(comm, "comm");
    if (stream == nullptr) return;
    checked_stream(*comm, stream);
    if (comm->device->stream_capture() && comm->device->is_capturing(stream)) {
      fail(ucclEpInvalidUsage, "the stream is being captured into a graph: end the capture first");
    }
    destroy(comm->streams, stream, [&] { comm->device->stream_destroy(stream); });
  });
}

ucclEpResult_t ucclEpStreamSynchronize(ucclEpComm_t comm, ucclEpStream_t stream) {
  return guarded("ucclEpStreamSynchronize", comm, [&] {
    require(comm, "comm");
    checked_stream(*comm, stream);
    if (comm->device->is_capturing(stream)) fail(ucclEpInvalidUsage, "the stream is being captured into a graph");
    check_wait(*comm, comm->device->stream_synchronize(stream, longest_wait_ms(*comm)), "the stream");
  });
}

ucclEpResult_t ucclEpEventCreate(ucclEpComm_t comm, ucclEpEvent_t* event) {
  return guarded("ucclEpEventCreate", comm, [&] {
    usable(comm);
    require(event, "event");
    refuse_in_capture(*comm);
    const ucclEpEvent_t made = comm->device->event_create();
    comm->events.insert(made);
    *event = made;
  });
}

ucclEpResult_t ucclEpEventDestroy(ucclEpComm_t comm, ucclEpEvent_t event) {
  return guarded_destroying_part("ucclEpEventDestroy", comm, [&] {
    require(comm, "comm");
    if (event == nullptr) return;
    check_event(*comm, event, "event");
    destroy(comm->events, event, [&] { comm->device->event_destroy(event); });
    comm->captured_events.erase(event);
  });
}

ucclEpResult_t ucclEpEventRecord(ucclEpComm_t comm, ucclEpEvent_t event, ucclEpStream_t stream) {
  return guarded("ucclEpEventRecord", comm, [&] {
    usable(comm);
    check_event(*comm, event, "event");
    comm->device->event_record(event, checked_stream(*comm, stream));
    if (comm->device->is_capturing(stream)) {
      comm->captured_events.insert(event);
    } else {
      comm->captured_events.erase(event);
    }
  });
}

ucclEpResult_t ucclEpStreamWaitEvent(ucclEpComm_t comm, ucclEpStream_t stream, ucclEpEvent_t event) {
  return guarded("ucclEpStreamWaitEvent", comm, [&] {
    usable(comm);
    check_event(*comm, event, "event");
    comm->device->stream_wait_event(checked_stream(*comm, stream), event);
  });
}

ucclEpResult_t ucclEpEventSynchronize(ucclEpComm_t comm, ucclEpEvent_t event) {
  return guarded("ucclEpEventSynchronize", comm, [&] {
    require(comm, "comm");
    check_event(*comm, event, "event");
    refuse_in_capture(*comm);
    check_recorded(*comm, event, "event");
    check_wait(*comm, comm->device->event_synchronize(event, longest_wait_ms(*comm)), "the event");
  });
}

ucclEpResult_t ucclEpEventElapsed(ucclEpComm_t comm, ucclEpEvent_t a, ucclEpEvent_t b, float* ms) {
  return guarded("ucclEpEventElapsed", comm, [&] {
    require(comm, "comm");
    require(ms, "ms");
    check_event(*comm, a, "a");
    check_event(*comm, b, "b");
    check_recorded(*comm, a, "a");
    check_recorded(*comm, b, "b");
    *ms = comm->device->event_elapsed_ms(a, b);
  });
}

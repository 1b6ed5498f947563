// SPDX-License-Identifier: Apache-2.0
// What the library asks of a device: memory that peers can map, streams, events, launches. The host device
// (host/host_device.hpp) implements it on CPU threads; the GPU driver layer implements it over libcuda and libamdhip64.
// Every function throws ucclep::Error.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "device/nic_access.hpp"
#include "ucclep/ucclep.h"

namespace ucclep::executor {
struct HostKernel;
}

namespace ucclep {

struct DeviceTraits {
  std::string name;  // "host (wave 32)"
  int kind = 0;      // UCCLEP_DEVICE_CUDA | _HIP | _HOST
  int index = 0;
  uint64_t place = 0;             // of a GPU on its machine's bus: ranks with the same one share it. 0: not shared
  unsigned wave = 32;             // lanes of a warp
  unsigned num_sms = 0;           // blocks of max_block threads that are resident at once
  unsigned max_block = 0;         // threads of a block that the library's kernels use at most
  size_t shared_bytes = 0;        // shared memory of one block
  unsigned line_bytes = 0;        // P15: the kernels' lines have an epoch in so many bytes
  unsigned line_payload = 0;      // and carry this many bytes of data
  unsigned whole_bytes = 0;       // of a store that arrive whole at a linked device; in a communicator, at all ranks
  size_t window_granularity = 1;  // window memory takes a multiple of it
  bool nics_reach = true;         // memory that is shared or offered, and not only share_pinned's. Of a GPU: the
                                  // communicator finds out (network_memory.hpp)
};

// What another process needs to know to map memory. It travels as it is; a descriptor travels besides.
struct MemoryTicket {
  // address: within this process only. pinned: a descriptor, too, of host memory that kernels access.
  enum class Way : uint32_t { address, descriptor, pinned, ipc_handle };
  Way way = Way::address;
  uint64_t allocation_bytes = 0;  // of the whole allocation, which is what can be mapped
  uint64_t offset = 0;            // of the memory in it
  uint64_t bytes = 0;
  char ipc_handle[64] = {};

  bool has_descriptor() const { return way == Way::descriptor || way == Way::pinned; }
};

// Memory that peers can map: a memfd on the host, a VMM handle or an IPC handle on a GPU. What this object mapped or
// opened goes with it.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual void* data() const = 0;                     // for kernels
  virtual void* host_data() const { return data(); }  // for threads of the host and NICs; NULL: out of their reach
  virtual MemoryTicket ticket() const = 0;
  virtual int fd() const = 0;  // for SCM_RIGHTS, -1 where the way is another one; stays owned by this object
  size_t bytes() const { return ticket().bytes; }
};

struct LaunchShape {
  unsigned grid = 1;
  unsigned block = 1;
  size_t shared_bytes = 0;
};

// Opaque to the layers above: kernels.hpp declares one per kernel, each device finds its own code for it.
struct Kernel {
  const char* name;
  // Its blocks meet at a barrier: the device makes sure that all of them are resident, or refuses the launch.
  bool meets = true;
  const executor::HostKernel* users = nullptr;  // a kernel of the user's, for the host device alone
};

// What was captured from a stream, to be run again and again. What is in flight when it goes still ends.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch(ucclEpStream_t stream) = 0;
};

class StreamCapture {
 public:
  virtual ~StreamCapture() = default;
  virtual void begin_capture(ucclEpStream_t stream) = 0;
  virtual std::unique_ptr<Graph> end_capture(ucclEpStream_t stream) = 0;
  // In a captured stream: each replay records the event, as if it were recorded outside of any graph.
  virtual void record_at_replay(ucclEpEvent_t event, ucclEpStream_t stream) = 0;
  // Of a captured stream: expires with the capture and every graph that its operations have come into. A replay that is
  // in flight then still ends.
  virtual std::weak_ptr<const void> lifetime(ucclEpStream_t stream) = 0;
};

// Copies between host memory and the device's while kernels run, one after the other. For one thread. What has begun
// ends before its destructor does, if it ends in time.
class CopyQueue {
 public:
  virtual ~CopyQueue() = default;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  virtual uint64_t ended() = 0;  // so many of the copies, in their order
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceTraits& traits() const = 0;

  // A fault that no kernel reported itself (a diagnosed deadlock, a failed launch): called once, from any thread.
  virtual void on_fault(std::function<void(const Error& fault)> handler) = 0;

  virtual void* alloc(size_t bytes) = 0;  // zeroed, 4096-byte aligned
  // The same, and any part of it can be offered to peers, in other processes where beyond_process is set.
  virtual void* alloc_shareable(size_t bytes, bool beyond_process) = 0;
  virtual void free(void* data) = 0;           // of either
  virtual void* alloc_host(size_t bytes) = 0;  // host memory that kernels can access; zeroed
  virtual void free_host(void* data) = 0;
  // Where the host's memory comes from that it allocates from now on: a NUMA node as the kernel counts them.
  virtual void place_host_memory(int /*node*/) {}                 // a device that is the host has it from its threads
  virtual std::unique_ptr<SharedMemory> share(size_t bytes) = 0;  // new window memory, zeroed
  // The same in host memory that stays where it is: threads of the host reach it, and any NIC.
  virtual std::unique_ptr<SharedMemory> share_pinned(size_t bytes) = 0;
  // Memory that exists already, the caller's too; it stays his. Error(ucclEpNotSupported) says why peers, in other
  // processes where beyond_process is set, cannot reach it.
  virtual std::unique_ptr<SharedMemory> offer(void* data, size_t bytes, bool beyond_process) = 0;
  virtual std::unique_ptr<SharedMemory> map(const MemoryTicket& ticket, Fd fd) = 0;  // what another process offers
  // Memory that another device of this process and of this kind shares: kernels of this one may access it from now on.
  virtual void allow(SharedMemory& memory) = 0;
  virtual NicAccess* nic_access() { return nullptr; }  // NULL: its memory is the host's

  virtual ucclEpStream_t stream_create() = 0;
  // For kernels that wait for work of other streams. A GPU has few queues, in which a kernel waits for the one before
  // it, also of another stream. Streams of other priorities have other queues.
  virtual ucclEpStream_t service_stream_create() = 0;
  virtual void stream_destroy(ucclEpStream_t stream) = 0;  // work in flight still ends
  // ucclEpSuccess, or ucclEpTimeout after timeout_ms. NULL is the device's default stream, here and below.
  virtual ucclEpResult_t stream_synchronize(ucclEpStream_t stream, int64_t timeout_ms) = 0;
  virtual ucclEpEvent_t event_create() = 0;
  virtual ucclEpEvent_t marker_create() = 0;  // an event that is only waited for: it has no time
  virtual void event_destroy(ucclEpEvent_t event) = 0;
  virtual void event_record(ucclEpEvent_t event, ucclEpStream_t stream) = 0;
  virtual void stream_wait_event(ucclEpStream_t stream, ucclEpEvent_t event) = 0;
  virtual ucclEpResult_t event_synchronize(ucclEpEvent_t event, int64_t timeout_ms) = 0;
  virtual float event_elapsed_ms(ucclEpEvent_t begin, ucclEpEvent_t end) = 0;
  virtual bool is_capturing(ucclEpStream_t stream) = 0;        // into a graph
  virtual StreamCapture* stream_capture() { return nullptr; }  // NULL: that is the business of a GPU's run-time

  // Writes a word of device memory at once, while kernels run that poll it. From any thread.
  virtual void poke(uint32_t* word, uint32_t value) = 0;
  virtual void memcpy_async(void* dst, const void* src, size_t bytes, ucclEpStream_t stream) = 0;
  virtual std::unique_ptr<CopyQueue> copy_queue() = 0;
  // args: a trivially copyable struct, copied during the call.
  virtual void launch(const Kernel& kernel, const LaunchShape& shape, const void* args, size_t arg_bytes,
                      ucclEpStream_t stream) = 0;
};

}  // namespace ucclep

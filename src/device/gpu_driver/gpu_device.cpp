// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/gpu_device.hpp"

#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "base/env.hpp"
#include "base/log.hpp"
#include "base/near_node.hpp"
#include "device/gpu_driver/copy_queue.hpp"
#include "device/gpu_driver/gpu_nic_access.hpp"
#include "device/gpu_driver/gpu_traits.hpp"
#include "device/gpu_driver/kernel_code.hpp"
#include "device/gpu_driver/offered_memory.hpp"
#include "device/gpu_driver/own_stream.hpp"
#include "device/gpu_driver/pinned_memory.hpp"
#include "device/gpu_driver/primary_context.hpp"
#include "device/gpu_driver/shared_memory.hpp"

namespace ucclep::gpu {
namespace {

constexpr int64_t setup_timeout_ms = 60000;

Stream stream_of(ucclEpStream_t stream) {
  return static_cast<Stream>(stream);
}
Event event_of(ucclEpEvent_t event) {
  return static_cast<Event>(event);
}

// Asks until the driver says that the work is done: spinning first, since most waits are short, then napping.
template <class Query>
ucclEpResult_t poll(const Driver& driver, int64_t timeout_ms, const char* what, Query&& query) {
  using Clock = std::chrono::steady_clock;
  constexpr auto spin = std::chrono::microseconds(200), nap = std::chrono::microseconds(20);
  const auto begin = Clock::now();
  while (true) {
    const Code code = query();
    if (code == success) return ucclEpSuccess;
    if (code != not_ready) driver.check(code, what);
    const auto waited = Clock::now() - begin;
    if (waited >= std::chrono::milliseconds(timeout_ms)) return ucclEpTimeout;
    if (waited > spin) std::this_thread::sleep_for(nap);
  }
}

class GpuDevice : public Device {
 public:
  GpuDevice(const Driver& driver, int index)
      : driver_(driver),
        context_(driver, device_ordinal(driver, index)),
        traits_(gpu_device_traits(driver, index)),
        code_(driver, context_.get(), context_.ordinal(), traits_.shared_bytes, traits_.name),
        starts_early_(env::flag("UCCLEP_EARLY_START").value_or(false) && driver.has_early_start() &&
                      code_.starts_early()),
        setup_stream_(driver, context_.get()),
        nic_access_(driver, context_.ordinal(), context_.get()) {}

  const DeviceTraits& traits() const override { return traits_; }
  void on_fault(std::function<void(const Error&)> handler) override { on_fault_ = std::move(handler); }

  void* alloc(size_t bytes) override {
    const Current current = enter();
    const OutsideCapture outside(driver_);
    void* data = nullptr;
    driver_.check(api().mem_alloc(&data, bytes != 0 ? bytes : 1), "allocating device memory");
    try {
      zero(data, bytes);
    } catch (...) {
      undo(driver_, context_.get(), "freeing device memory",
           [data](const DriverApi& api) { return api.mem_free(data); });
      throw;
    }
    return data;
  }
  void* alloc_shareable(size_t bytes, bool) override {
    const Current current = enter();
    const OutsideCapture outside(driver_);
    auto memory = MappedAllocation::create(driver_, context_.ordinal(), bytes, false);
    void* data = memory->data();
    zero(data, bytes);
    shareable_.emplace(data, std::move(memory));
    return data;
  }
  void free(void* data) override {
    if (shareable_.erase(data) != 0) return;
    const Current current = enter();
    const OutsideCapture outside(driver_);
    driver_.check(api().mem_free(data), "freeing device memory");
  }
  void* alloc_host(size_t bytes) override {
    const Current current = enter();
    const OutsideCapture outside(driver_);
    const NearNode near(node_of_host_memory_);
    void* data = nullptr;
    const unsigned flags = host_portable | host_mapped | driver_.facts().coherent;
    driver_.check(api().host_alloc(&data, bytes != 0 ? bytes : 1, flags), "allocating host memory for the device");
    std::memset(data, 0, bytes);
    return data;
  }
  void free_host(void* data) override {
    const Current current = enter();
    const OutsideCapture outside(driver_);
    driver_.check(api().host_free(data), "freeing host memory of the device");
  }
  void place_host_memory(int node) override { node_of_host_memory_ = node; }
  std::unique_ptr<SharedMemory> share(size_t bytes) override {
    const Current current = enter();
    auto memory = MappedAllocation::create(driver_, context_.ordinal(), bytes, true);
    zero(memory->data(), bytes);
    return memory;
  }
  std::unique_ptr<SharedMemory> share_pinned(size_t bytes) override {
    const Current current = enter();
    const OutsideCapture outside(driver_);
    const NearNode near(node_of_host_memory_);
    return std::make_unique<PinnedMemory>(driver_, context_.ordinal(), bytes);
  }
  std::unique_ptr<SharedMemory> offer(void* data, size_t bytes, bool beyond_process) override {
    const Current current = enter();
    return std::make_unique<OfferedMemory>(driver_, context_.ordinal(), context_.get(), data, bytes, beyond_process);
  }
  std::unique_ptr<SharedMemory> map(const MemoryTicket& ticket, Fd fd) override {
    const Current current = enter();
    if (ticket.way == MemoryTicket::Way::ipc_handle) return open_ipc_memory(driver_, context_.get(), ticket);
    if (ticket.way == MemoryTicket::Way::pinned) {
      const OutsideCapture outside(driver_);
      return std::make_unique<PinnedMemory>(driver_, context_.ordinal(), ticket, std::move(fd));
    }
    return MappedAllocation::import(driver_, context_.ordinal(), ticket, fd);
  }
  void allow(SharedMemory& memory) override {
    const Current current = enter();
    static_cast<ReachableMemory&>(memory).allow(context_.ordinal());
  }
  NicAccess* nic_access() override { return &nic_access_; }

  ucclEpStream_t stream_create() override { return create_stream(normal_priority); }
  ucclEpStream_t service_stream_create() override { return create_stream(highest_priority); }
  void stream_destroy(ucclEpStream_t stream) override {
    const Current current = enter();
    driver_.check(api().stream_destroy(stream_of(stream)), "destroying a stream");
  }
  ucclEpResult_t stream_synchronize(ucclEpStream_t stream, int64_t timeout_ms) override {
    const Current current = enter();
    const OutsideCapture outside(driver_);
    return watched([&] {
      return poll(driver_, timeout_ms, "waiting for a stream", [&] { return api().stream_query(stream_of(stream)); });
    });
  }
  ucclEpEvent_t event_create() override { return create_event(0); }
  ucclEpEvent_t marker_create() override { return create_event(event_untimed); }
  void event_destroy(ucclEpEvent_t event) override {
    const Current current = enter();
    driver_.check(api().event_destroy(event_of(event)), "destroying an event");
  }
  void event_record(ucclEpEvent_t event, ucclEpStream_t stream) override {
    const Current current = enter();
    driver_.check(api().event_record(event_of(event), stream_of(stream)), "recording an event");
  }
  void stream_wait_event(ucclEpStream_t stream, ucclEpEvent_t event) override {
    const Current current = enter();
    driver_.check(api().stream_wait_event(stream_of(stream), event_of(event), 0), "making a stream wait for an event");
  }
  ucclEpResult_t event_synchronize(ucclEpEvent_t event, int64_t timeout_ms) override {
    const Current current = enter();
    const OutsideCapture outside(driver_);
    return watched([&] {
      return poll(driver_, timeout_ms, "waiting for an event", [&] { return api().event_query(event_of(event)); });
    });
  }
  float event_elapsed_ms(ucclEpEvent_t begin, ucclEpEvent_t end) override {
    const Current current = enter();
    float ms = 0;
    driver_.check(api().event_elapsed_ms(&ms, event_of(begin), event_of(end)), "reading the time between two events");
    return ms;
  }
  bool is_capturing(ucclEpStream_t stream) override {
    const Current current = enter();
    int status = capture_none;
    driver_.check(api().stream_is_capturing(stream_of(stream), &status), "reading a stream's capture status");
    return status != capture_none;
  }

  void poke(uint32_t* word, uint32_t value) override {
    const Current current = enter();
    driver_.check(api().stream_write(setup_stream_.get(), word, value, 0), "writing a word of device memory");
  }
  void memcpy_async(void* dst, const void* src, size_t bytes, ucclEpStream_t stream) override {
    const Current current = enter();
    driver_.copy(dst, src, bytes, stream_of(stream));
  }
  std::unique_ptr<CopyQueue> copy_queue() override {
    return std::make_unique<DriverCopyQueue>(driver_, context_.get());
  }
  void launch(const Kernel& kernel, const LaunchShape& shape, const void* args, size_t,
              ucclEpStream_t stream) override {
    const Current current = enter();
    log::info("device", "{}: launching {} on {} blocks of {} lanes, with {} bytes of shared memory", traits_.name,
              kernel.name, shape.grid, shape.block, shape.shared_bytes);
    driver_.check(start(kernel, shape, const_cast<void*>(args), stream_of(stream)), kernel.name);
  }

 private:
  const DriverApi& api() const { return driver_.api(); }
  Current enter() const { return Current(driver_, context_.get()); }

  // The driver copies the arguments.
  Code start(const Kernel& kernel, const LaunchShape& shape, void* args, Stream stream) {
    const Function function = code_.find(kernel.name);
    const auto shared = static_cast<unsigned>(shape.shared_bytes);
    if (kernel.meets) {
      return api().launch_cooperative(function, shape.grid, 1, 1, shape.block, 1, 1, shared, stream, &args);
    }
    if (!starts_early_) {
      return api().launch(function, shape.grid, 1, 1, shape.block, 1, 1, shared, stream, &args, nullptr);
    }
    const LaunchConfig config{shape.grid, 1, 1, shape.block, 1, 1, shared, stream, &early_start, 1};
    return api().launch_with(&config, function, &args, nullptr);
  }

  ucclEpStream_t create_stream(int priority) {
    const Current current = enter();
    Stream stream = nullptr;
    driver_.check(api().stream_create(&stream, stream_non_blocking, priority), "creating a stream");
    return stream;
  }

  ucclEpEvent_t create_event(unsigned flags) const {
    const Current current = enter();
    Event event = nullptr;
    driver_.check(api().event_create(&event, flags), "creating an event");
    return event;
  }

  void zero(void* data, size_t bytes) {
    driver_.check(api().memset_async(data, 0, bytes, setup_stream_.get()), "clearing memory");
    const ucclEpResult_t done =
        poll(driver_, setup_timeout_ms, "clearing memory", [this] { return api().stream_query(setup_stream_.get()); });
    if (done != ucclEpSuccess)
      fail(done, "{}: clearing {} bytes took more than {} ms", traits_.name, bytes, setup_timeout_ms);
  }

  // What the driver says of a kernel that went wrong comes with some later call: the communicator hears of it too.
  template <class Wait>
  ucclEpResult_t watched(Wait&& wait) {
    try {
      return wait();
    } catch (const Error& error) {
      if (on_fault_) on_fault_(Error(ucclEpInternalError, error.what()));
      throw;
    }
  }

  const Driver& driver_;
  PrimaryContext context_;
  const DeviceTraits traits_;
  KernelCode code_;
  const bool starts_early_;  // kernels whose blocks do not meet
  OwnStream setup_stream_;
  GpuNicAccess nic_access_;
  std::map<void*, std::unique_ptr<MappedAllocation>> shareable_;
  int node_of_host_memory_ = -1;
  std::function<void(const Error&)> on_fault_;
};

}  // namespace

std::unique_ptr<Device> open_gpu_device(const Driver& driver, int index) {
  return std::make_unique<GpuDevice>(driver, checked_index(driver, index));
}

}  // namespace ucclep::gpu

// SPDX-License-Identifier: Apache-2.0
#include "device/host/host_device.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/best_effort.hpp"
#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "device/host/capture.hpp"
#include "device/host/kernel_table.hpp"
#include "device/host/memory.hpp"
#include "device/host/pool.hpp"
#include "device/host/stream.hpp"

namespace ucclep {
namespace {

using executor::DeviceState;
using executor::Event;
using executor::Launch;
using executor::Stream;

// The threads, and the streams that feed them.
struct Machine {
  executor::Pool pool;
  executor::StreamTable streams;

  Machine(unsigned workers, uint64_t seed) : pool(workers, seed), streams(pool) {}
  ~Machine() { pool.stop(); }  // before the streams are gone, to which workers return their launches
};

struct Machines {
  std::mutex mutex;
  std::map<std::pair<unsigned, uint64_t>, std::weak_ptr<Machine>> by_workers_and_seed;
};

std::shared_ptr<Machine> share_machine(const HostDeviceConfig& config) {
  constinit static PerProcess<Machines> machines;
  Machines& all = machines.get();
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const unsigned usual = config.seed != 0 ? 1 : cores;
  const unsigned workers = config.workers != 0 ? config.workers : usual;
  std::lock_guard lock(all.mutex);
  std::weak_ptr<Machine>& known = all.by_workers_and_seed[{workers, config.seed}];
  std::shared_ptr<Machine> machine = known.lock();
  if (machine == nullptr) {
    machine = std::make_shared<Machine>(workers, config.seed);
    known = machine;
  }
  return machine;
}

// A copy is made a while after it has begun: who does not wait for it does not find it.
class LateCopies : public CopyQueue {
 public:
  ~LateCopies() override {
    while (!begun_.empty()) make_first();
  }
  void copy(void* to, const void* from, size_t bytes) override {
    begun_.push_back({to, from, bytes, Clock::now() + std::chrono::microseconds(500)});
  }
  uint64_t ended() override {
    while (!begun_.empty() && begun_.front().due <= Clock::now()) make_first();
    return ended_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
    Clock::time_point due;
  };
  void make_first() {
    const Copy& copy = begun_.front();
    std::memcpy(copy.to, copy.from, copy.bytes);
    begun_.pop_front();
    ++ended_;
  }
  std::deque<Copy> begun_;
  uint64_t ended_ = 0;
};

class HostDevice : public Device, public StreamCapture {
 public:
  HostDevice(int index, const HostDeviceConfig& config)
      : traits_(host_device_traits(index, config)),
        machine_(share_machine(config)),
        state_(std::make_shared<DeviceState>()) {
    state_->index = static_cast<unsigned>(index);
    state_->wave = config.wave;
    state_->residency = config.residency;
    state_->lockstep = config.lockstep;
    state_->deferred = config.deferred;
    state_->torn = config.torn;
    state_->watchdog_ns = config.watchdog_ms * 1'000'000;
    default_stream_ = streams().create_stream();
    streams().add_user(1);
  }
  ~HostDevice() override {
    streams().add_user(-1);
    best_effort("device", "the default stream of a host device was not destroyed",
                [this] { streams().destroy_stream(default_stream_.get()); });
    state_->on_fault(nullptr);
    if (!machine_->pool.close(*state_)) {
      log::warn("device", "host device {}: a kernel still runs; its memory is not freed", traits_.index);
      for (auto& [data, memory] : memory_) memory.leak();
      shareable_.leak();
    }
  }

  const DeviceTraits& traits() const override { return traits_; }
  void on_fault(std::function<void(const Error&)> handler) override { state_->on_fault(std::move(handler)); }

  void* alloc(size_t bytes) override {
    executor::DeviceMemory memory(bytes != 0 ? bytes : 1);
    void* data = memory.data();
    std::lock_guard lock(mutex_);
    memory_.emplace(data, std::move(memory));
    return data;
  }
  void* alloc_shareable(size_t bytes, bool beyond_process) override {
    if (!beyond_process) return alloc(bytes);
    std::lock_guard lock(mutex_);
    return shareable_.alloc(bytes != 0 ? bytes : 1);
  }
  void free(void* data) override {
    std::lock_guard lock(mutex_);
    if (data != nullptr && memory_.erase(data) == 0 && !shareable_.free(data)) {
      fail(ucclEpInvalidArgument, "{} was not allocated by host device {}", data, traits_.index);
    }
  }
  void* alloc_host(size_t bytes) override { return alloc(bytes); }
  void free_host(void* data) override { free(data); }
  std::unique_ptr<SharedMemory> share(size_t bytes) override { return executor::create_shared_memory(bytes); }
  std::unique_ptr<SharedMemory> share_pinned(size_t bytes) override { return share(bytes); }
  std::unique_ptr<SharedMemory> offer(void* data, size_t bytes, bool beyond_process) override {
    const bool splits = [&] {
      std::lock_guard lock(mutex_);
      return shareable_.splits(data, bytes);
    }();
    if (splits) executor::refuse_to_share(data, bytes);
    return executor::offer_memory(data, bytes, beyond_process);
  }
  std::unique_ptr<SharedMemory> map(const MemoryTicket& ticket, Fd fd) override {
    return executor::map_shared_memory(ticket, std::move(fd));
  }
  void allow(SharedMemory&) override {}  // every lane reaches all memory of the process

  ucclEpStream_t stream_create() override { return streams().create_stream().get(); }
  ucclEpStream_t service_stream_create() override { return stream_create(); }
  void stream_destroy(ucclEpStream_t stream) override { streams().destroy_stream(static_cast<Stream*>(stream)); }
  ucclEpResult_t stream_synchronize(ucclEpStream_t stream, int64_t timeout_ms) override {
    return streams().synchronize(*find(stream), timeout_ms);
  }
  ucclEpEvent_t event_create() override { return streams().create_event().get(); }
  ucclEpEvent_t marker_create() override { return event_create(); }
  void event_destroy(ucclEpEvent_t event) override { streams().destroy_event(static_cast<Event*>(event)); }
  void event_record(ucclEpEvent_t event, ucclEpStream_t stream) override {
    streams().record(find(stream), streams().event(event));
  }
  void stream_wait_event(ucclEpStream_t stream, ucclEpEvent_t event) override {
    streams().wait(find(stream), streams().event(event));
  }
  ucclEpResult_t event_synchronize(ucclEpEvent_t event, int64_t timeout_ms) override {
    return streams().synchronize(*streams().event(event), timeout_ms);
  }
  float event_elapsed_ms(ucclEpEvent_t begin, ucclEpEvent_t end) override {
    return streams().elapsed_ms(*streams().event(begin), *streams().event(end));
  }

  bool is_capturing(ucclEpStream_t stream) override { return streams().is_captured(*find(stream)); }
  StreamCapture* stream_capture() override { return this; }
  void begin_capture(ucclEpStream_t stream) override { streams().begin_capture(find(stream)); }
  std::unique_ptr<Graph> end_capture(ucclEpStream_t stream) override {
    return std::make_unique<HostGraph>(*this, streams().end_capture(*find(stream)));
  }
  void record_at_replay(ucclEpEvent_t event, ucclEpStream_t stream) override {
    streams().record_at_replay(find(stream), streams().event(event));
  }
  std::weak_ptr<const void> lifetime(ucclEpStream_t stream) override { return streams().lifetime(*find(stream)); }

  void poke(uint32_t* word, uint32_t value) override { std::atomic_ref(*word).store(value, std::memory_order_release); }
  void memcpy_async(void* dst, const void* src, size_t bytes, ucclEpStream_t stream) override {
    streams().copy(find(stream), dst, src, bytes);
  }
  std::unique_ptr<CopyQueue> copy_queue() override { return std::make_unique<LateCopies>(); }
  void launch(const Kernel& kernel, const LaunchShape& shape, const void* args, size_t arg_bytes,
              ucclEpStream_t stream) override {
    check(kernel, shape);
    auto launch = std::make_unique<Launch>();
    launch->kernel = kernel.name;
    launch->code = kernel.users != nullptr ? *kernel.users : own_kernel(kernel.name);
    if (launch->code.arg_bytes != arg_bytes) {
      fail(ucclEpInternalError, "kernel {} has {} bytes of arguments, but the launch passes {}", kernel.name,
           launch->code.arg_bytes, arg_bytes);
    }
    launch->shape = shape;
    launch->device = state_;
    executor::give_arguments(*launch, args, arg_bytes);
    log::info("device",
              "host device {}: launching {} on {} blocks of {} lanes, wave {}, with {} bytes of shared memory",
              traits_.index, kernel.name, shape.grid, shape.block, traits_.wave, shape.shared_bytes);
    streams().launch(find(stream), std::move(launch));
  }

 private:
  class HostGraph : public Graph {
   public:
    HostGraph(HostDevice& device, std::shared_ptr<executor::Graph> steps) : device_(device), steps_(std::move(steps)) {}
    void launch(ucclEpStream_t stream) override { device_.streams().launch(*steps_, device_.find(stream)); }

   private:
    HostDevice& device_;
    const std::shared_ptr<executor::Graph> steps_;
  };

  executor::StreamTable& streams() { return machine_->streams; }
  std::shared_ptr<Stream> find(ucclEpStream_t stream) {
    return stream == nullptr ? default_stream_ : streams().stream(stream);
  }
  void check(const Kernel& kernel, const LaunchShape& shape) const {
    constexpr unsigned max_threads = 1024;
    if (shape.grid == 0 || shape.block == 0 || shape.block > max_threads || shape.shared_bytes > traits_.shared_bytes) {
      fail(
          ucclEpInvalidArgument,
          "kernel {}: a launch of {} blocks of {} threads with {} bytes of shared memory, expected at least 1 block, 1 "
          "to {} threads and at most {} bytes",
          kernel.name, shape.grid, shape.block, shape.shared_bytes, max_threads, traits_.shared_bytes);
    }
    if (kernel.users != nullptr && state_->residency != 0 && shape.grid > state_->residency) {
      fail(ucclEpInvalidArgument,
           "kernel {}: {} blocks cannot be resident at once, host device {} has room for {} (UCCLEP_HOST_MODE)",
           kernel.name, shape.grid, traits_.index, state_->residency);
    }
  }
  const executor::HostKernel& own_kernel(const char* name) const {
    const executor::HostKernel* known = executor::find_kernel(traits_.wave, name);
    if (known == nullptr) {
      fail(ucclEpInternalError, "host device {} has no kernel {} for wave {}", traits_.index, name, traits_.wave);
    }
    return *known;
  }

  const DeviceTraits traits_;
  const std::shared_ptr<Machine> machine_;
  const std::shared_ptr<DeviceState> state_;
  std::shared_ptr<Stream> default_stream_;
  std::mutex mutex_;
  std::unordered_map<void*, executor::DeviceMemory> memory_;
  executor::SharedHeap shareable_;
};

}  // namespace

namespace executor {

void DeviceState::on_fault(std::function<void(const Error&)> handler) {
  std::lock_guard lock(mutex_);
  handler_ = std::move(handler);
}

void DeviceState::report(const Error& fault) {
  log::warn("device", "{}", fault.what());
  std::lock_guard lock(mutex_);
  if (std::exchange(reported_, true) || handler_ == nullptr) return;
  handler_(fault);
}

}  // namespace executor

DeviceTraits host_device_traits(int index, const HostDeviceConfig& config) {
  DeviceTraits traits;
  traits.name = fmt::format("host (wave {})", config.wave);
  traits.kind = UCCLEP_DEVICE_HOST;
  traits.index = index;
  traits.wave = config.wave;
  traits.num_sms = config.sms != 0 ? config.sms : config.residency != 0 ? config.residency : host_num_sms;
  traits.max_block = host_max_block;
  traits.shared_bytes = host_shared_bytes;
  traits.line_bytes = sizeof(uint64_t) * 2;
  traits.line_payload = sizeof(uint64_t);
  traits.whole_bytes = config.torn != 0 ? config.torn : traits.line_bytes;
  traits.nics_reach = !config.apart;
  return traits;
}

std::unique_ptr<Device> open_host_device(int index, const HostDeviceConfig& config) {
  return std::make_unique<HostDevice>(index, config);
}

}  // namespace ucclep

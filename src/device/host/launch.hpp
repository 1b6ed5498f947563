// SPDX-License-Identifier: Apache-2.0
// A launch on its way: from the stream that orders it, through the pool that hands out its blocks, to its last block.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.hpp"
#include "device/device.hpp"
#include "ucclep/device/arch/host_executor.hpp"

namespace ucclep::executor {

struct Stream;
class Identities;

// What a launch needs of its device. It outlives the device while launches are under way.
struct DeviceState {
  unsigned index = 0;
  unsigned wave = 32;
  unsigned residency = 0;  // blocks resident at once; 0: all
  bool lockstep = false;
  bool deferred = false;
  unsigned torn = 0;        // as in HostDeviceConfig
  int64_t watchdog_ns = 0;  // 0: off

  unsigned resident = 0;             // guarded by the pool
  std::atomic<bool> closed = false;  // nothing of it runs any more

  // The first fault is told; those that follow are its consequences.
  void report(const Error& fault);
  void on_fault(std::function<void(const Error&)> handler);

 private:
  std::mutex mutex_;
  bool reported_ = false;
  std::function<void(const Error&)> handler_;
};

struct Launch {
  std::string kernel;  // its name, which may outlive the program's
  HostKernel code{};
  LaunchShape shape;
  std::unique_ptr<void, decltype(&std::free)> args{nullptr, &std::free};
  size_t arg_bytes = 0;
  std::shared_ptr<DeviceState> device;
  std::shared_ptr<Stream> stream;
  // Tags: what came before in the stream happens before the lanes, they before the rest.
  char begun = 0;
  void* order = nullptr;  // the stream's

  Identities* identities = nullptr;  // the stream's, for the lanes

  std::atomic<unsigned> next_block = 0;  // the first that no worker has taken; changed by the pool
  std::atomic<unsigned> unfinished = 0;  // blocks
  std::atomic<bool> failed = false;      // diagnosed
  // Its blocks are dropped where they stand.
  bool dropped() const {
    return failed.load(std::memory_order_relaxed) || device->closed.load(std::memory_order_relaxed);
  }
  std::atomic<int64_t> progress_ns = 0;  // when a block of it last did something else than spin
};

void give_arguments(Launch& launch, const void* args, size_t bytes);
std::unique_ptr<Launch> copy_of(const Launch& launch);  // to be enqueued once more

}  // namespace ucclep::executor

// SPDX-License-Identifier: Apache-2.0
// Window memory of a GPU: an allocation of the driver's virtual memory management, mapped here, that other processes
// can map through a file descriptor.
#pragma once
#include <memory>
#include <mutex>
#include <set>

#include "base/fd.hpp"
#include "device/device.hpp"
#include "device/gpu_driver/driver.hpp"

namespace ucclep::gpu {

// Window memory of the device takes a multiple of this.
size_t window_granularity(const Driver& driver, DeviceOrdinal device);

class MappedAllocation : public SharedMemory {
 public:
  // New memory of one device. Its content is not defined.
  static std::unique_ptr<MappedAllocation> create(const Driver& driver, DeviceOrdinal device, size_t bytes);
  // A peer's memory, made accessible for `device`.
  static std::unique_ptr<MappedAllocation> import(const Driver& driver, DeviceOrdinal device, Fd fd, size_t bytes);
  ~MappedAllocation() override;

  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }
  int fd() const override { return fd_.get(); }

  // Another device of this process reads and writes it at the same address. From any thread.
  void allow(DeviceOrdinal device);

 private:
  MappedAllocation(const Driver& driver, size_t bytes) : driver_(driver), bytes_(bytes) {}
  void map(DeviceOrdinal device, AllocationHandle handle);

  const Driver& driver_;
  size_t bytes_ = 0;   // as asked
  size_t mapped_ = 0;  // rounded up to what the driver maps: on both sides of an exchange alike
  void* data_ = nullptr;
  bool holds_mapping_ = false;
  Fd fd_;
  std::mutex mutex_;
  std::set<DeviceOrdinal> allowed_;  // a driver refuses to be told twice
};

}  // namespace ucclep::gpu

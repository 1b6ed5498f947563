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
  // What another process offers, made accessible for `device`.
  static std::unique_ptr<MappedAllocation> import(const Driver& driver, DeviceOrdinal device,
                                                  const MemoryTicket& ticket, const Fd& fd);
  ~MappedAllocation() override;

  void* data() const override { return static_cast<char*>(base_) + offset_; }
  MemoryTicket ticket() const override { return {MemoryTicket::Way::descriptor, mapped_, offset_, bytes_, {}}; }
  int fd() const override { return fd_.get(); }

  // Another device of this process reads and writes it at the same address. From any thread.
  void allow(DeviceOrdinal device);

 private:
  MappedAllocation(const Driver& driver, size_t mapped, size_t offset, size_t bytes)
      : driver_(driver), mapped_(mapped), offset_(offset), bytes_(bytes) {}
  void map(DeviceOrdinal device, AllocationHandle handle);

  const Driver& driver_;
  size_t mapped_ = 0;  // the whole allocation: on both sides of an exchange alike
  size_t offset_ = 0;  // of the memory in it
  size_t bytes_ = 0;   // as asked
  void* base_ = nullptr;
  bool holds_mapping_ = false;
  Fd fd_;
  std::mutex mutex_;
  std::set<DeviceOrdinal> allowed_;  // a driver refuses to be told twice
};

}  // namespace ucclep::gpu

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

// Memory to which another device of this process can be given access.
class ReachableMemory : public SharedMemory {
 public:
  // Reads and writes it at the same address from now on. A context of the device is current. From any thread.
  virtual void allow(DeviceOrdinal device) = 0;
};

class MappedAllocation : public ReachableMemory {
 public:
  // New memory of one device, with a descriptor if it is to be exchanged as a whole. Its content is not defined.
  static std::unique_ptr<MappedAllocation> create(const Driver& driver, DeviceOrdinal device, size_t bytes,
                                                  bool with_descriptor);
  // What another process offers, made accessible for `device`.
  static std::unique_ptr<MappedAllocation> import(const Driver& driver, DeviceOrdinal device,
                                                  const MemoryTicket& ticket, const Fd& fd);
  ~MappedAllocation() override;

  void* data() const override { return static_cast<char*>(base_) + offset_; }
  void* host_data() const override { return nullptr; }
  MemoryTicket ticket() const override { return {MemoryTicket::Way::descriptor, mapped_, offset_, bytes_, {}}; }
  int fd() const override { return fd_.get(); }
  void allow(DeviceOrdinal device) override;

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

// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that is there already, the library's or the caller's, as peers get at it: virtual memory by a
// descriptor of its allocation, ordinary memory by an IPC handle, and among threads both where they are.
#pragma once
#include <memory>

#include "base/fd.hpp"
#include "device/gpu_driver/driver.hpp"
#include "device/gpu_driver/held_allocation.hpp"
#include "device/gpu_driver/shared_memory.hpp"

namespace ucclep::gpu {

class OfferedMemory : public ReachableMemory {
 public:
  // Of `device`, whose primary context is `context` and current.
  OfferedMemory(const Driver& driver, DeviceOrdinal device, Context context, void* data, size_t bytes,
                bool beyond_process);

  void* data() const override { return data_; }
  void* host_data() const override { return nullptr; }
  MemoryTicket ticket() const override { return ticket_; }
  int fd() const override { return fd_.get(); }
  void allow(DeviceOrdinal device) override;

 private:
  [[noreturn]] void refuse(const char* why, Code code) const;
  void find_allocation();
  void offer_descriptor(const HeldAllocation& allocation);
  void offer_ipc_handle();

  const Driver& driver_;
  DeviceOrdinal owner_;
  Context context_;
  void* data_;
  void* base_ = nullptr;  // of the allocation
  bool virtual_memory_ = false;
  MemoryTicket ticket_;
  Fd fd_;
};

// Ordinary memory of another process, opened in `context`, which is current.
std::unique_ptr<SharedMemory> open_ipc_memory(const Driver& driver, Context context, const MemoryTicket& ticket);

}  // namespace ucclep::gpu

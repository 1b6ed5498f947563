// SPDX-License-Identifier: Apache-2.0
// Window memory of the host that GPUs access over their bus: a sealed memfd, mapped and pinned in every process that
// reaches it, so that ranks share it as they share memory of a GPU, and every transport can write to it.
#pragma once
#include "base/sealed_memory.hpp"
#include "device/gpu_driver/primary_context.hpp"
#include "device/gpu_driver/shared_memory.hpp"

namespace ucclep::gpu {

class PinnedMemory : public ReachableMemory {
 public:
  // New and zeroed. The device's primary context is current, here and below.
  PinnedMemory(const Driver& driver, DeviceOrdinal device, size_t bytes);
  // What another process offers.
  PinnedMemory(const Driver& driver, DeviceOrdinal device, const MemoryTicket& ticket, Fd fd);
  ~PinnedMemory() override;

  void* data() const override { return on_device_; }
  void* host_data() const override { return memory_.data(); }
  MemoryTicket ticket() const override { return {MemoryTicket::Way::pinned, memory_.bytes(), 0, bytes_, {}}; }
  int fd() const override { return memory_.fd(); }
  void allow(DeviceOrdinal) override {}  // all devices of the process may access it

 private:
  PinnedMemory(const Driver& driver, DeviceOrdinal device, SealedMemory memory, size_t bytes);

  const Driver& driver_;
  PrimaryContext context_;  // a rank of this process may keep the memory for longer than its owner keeps the device
  SealedMemory memory_;
  size_t bytes_;
  void* on_device_ = nullptr;
};

}  // namespace ucclep::gpu

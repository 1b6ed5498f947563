// SPDX-License-Identifier: Apache-2.0
// What a GPU's driver does for NICs (GPUDirect).
#pragma once
#include "device/gpu_driver/driver.hpp"
#include "device/nic_access.hpp"

namespace ucclep::gpu {

class GpuNicAccess : public NicAccess {
 public:
  // context: the device's primary one, which outlives this.
  GpuNicAccess(const Driver& driver, DeviceOrdinal device, Context context);

  const NicFacts& facts() const override { return facts_; }
  DmaBuf dma_buf(const void* data, size_t bytes) override;
  void flush(NicWritesReach readers) override;

 private:
  const Driver& driver_;
  Context context_;
  NicFacts facts_;
};

}  // namespace ucclep::gpu

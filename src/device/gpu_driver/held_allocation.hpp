// SPDX-License-Identifier: Apache-2.0
// A handle of an allocation of the driver's virtual memory management, released at the end of the scope: mappings and
// descriptors keep the memory alive by themselves.
#pragma once
#include "base/fd.hpp"
#include "device/gpu_driver/driver.hpp"

namespace ucclep::gpu {

class HeldAllocation {
 public:
  explicit HeldAllocation(const Driver& driver) : driver_(driver) {}
  ~HeldAllocation();
  HeldAllocation(const HeldAllocation&) = delete;
  HeldAllocation& operator=(const HeldAllocation&) = delete;

  // For the driver to fill; hold() says that it has.
  AllocationHandle* receive() { return &value_; }
  void hold() { held_ = true; }
  AllocationHandle value() const { return value_; }

  // success, or what the driver answers.
  Code to_descriptor(Fd& fd) const;

 private:
  const Driver& driver_;
  AllocationHandle value_ = 0;
  bool held_ = false;
};

}  // namespace ucclep::gpu

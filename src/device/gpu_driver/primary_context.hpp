// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "device/gpu_driver/driver.hpp"

namespace ucclep::gpu {

// A device's primary context, the one that the CUDA and HIP runtimes, and frameworks over them, use. It is there as
// long as anybody holds it.
class PrimaryContext {
 public:
  PrimaryContext(const Driver& driver, DeviceOrdinal ordinal) : driver_(driver), ordinal_(ordinal) {
    driver.check(driver.api().primary_context_retain(&context_, ordinal), "retaining a device's primary context");
  }
  ~PrimaryContext() {
    if (driver_.api().primary_context_release(ordinal_) != success) {
      log::warn("device", "{}: a primary context could not be released", driver_.facts().vendor);
    }
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  DeviceOrdinal ordinal() const { return ordinal_; }
  Context get() const { return context_; }

 private:
  const Driver& driver_;
  DeviceOrdinal ordinal_;
  Context context_ = nullptr;
};

}  // namespace ucclep::gpu

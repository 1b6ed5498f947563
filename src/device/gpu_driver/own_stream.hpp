// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "device/gpu_driver/driver.hpp"

namespace ucclep::gpu {

// The library's own stream on a device.
class OwnStream {
 public:
  OwnStream(const Driver& driver, Context context) : driver_(driver), context_(context) {
    const Current current(driver, context);
    driver.check(driver.api().stream_create(&stream_, stream_non_blocking, normal_priority), "creating a stream");
  }
  ~OwnStream() {
    undo(driver_, context_, "destroying a stream",
         [this](const DriverApi& api) { return api.stream_destroy(stream_); });
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  Stream get() const { return stream_; }

 private:
  const Driver& driver_;
  Context context_;
  Stream stream_ = nullptr;
};

}  // namespace ucclep::gpu

// SPDX-License-Identifier: Apache-2.0
// Device memory with an owner.
#pragma once
#include <cstddef>

#include "base/best_effort.hpp"
#include "device/device.hpp"

namespace ucclep {

class DeviceMemory {
 public:
  // data: of alloc or alloc_shareable.
  DeviceMemory(Device& device, void* data, size_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    best_effort("device", "device memory was not freed", [this] { device_.free(data_); });
  }

  void* data() const { return data_; }
  bool holds(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(data_) < bytes_;
  }

 private:
  Device& device_;
  void* data_;
  size_t bytes_;
};

}  // namespace ucclep

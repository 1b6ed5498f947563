// SPDX-License-Identifier: Apache-2.0
// Several host devices in one process, each with a window that all others see.
#pragma once
#include <memory>
#include <vector>

#include "device/host/host_device.hpp"

namespace ucclep::test {

constexpr int64_t timeout_ms = 60'000;

class Ranks {
 public:
  Ranks(unsigned count, size_t window_bytes, const HostDeviceConfig& config) {
    for (unsigned i = 0; i < count; ++i) {
      devices_.push_back(open_host_device(static_cast<int>(i), config));
      windows_.push_back(devices_.back()->share(window_bytes));
    }
  }
  unsigned count() const { return static_cast<unsigned>(devices_.size()); }
  Device& device(unsigned rank) { return *devices_[rank]; }
  unsigned char* window(unsigned rank) { return static_cast<unsigned char*>(windows_[rank]->data()); }
  bool synchronize() {
    for (auto& device : devices_) {
      if (device->stream_synchronize(nullptr, timeout_ms) != ucclEpSuccess) return false;
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<SharedMemory>> windows_;
};

}  // namespace ucclep::test

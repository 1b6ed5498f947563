// SPDX-License-Identifier: Apache-2.0
// Device memory that no peer sees: from the caller's alloc_fn if a group has one, else from the device.
#pragma once
#include <cstddef>
#include <vector>

#include "base/deadline.hpp"
#include "device/device.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

class Workspace {
 public:
  Workspace() = default;
  // 128-byte aligned; the first bytes of it are `image`, the rest is undefined.
  Workspace(Device& device, const ucclEpGroupConfig_t& config, size_t bytes, std::vector<char> image,
            Deadline deadline);
  Workspace(Workspace&& other) noexcept { swap(other); }
  Workspace& operator=(Workspace&& other) noexcept {
    Workspace old;
    old.swap(*this);
    swap(other);
    return *this;
  }
  ~Workspace();

  char* data() const { return data_; }
  void swap(Workspace& other) noexcept;

 private:
  Workspace(Device& device, const ucclEpGroupConfig_t& config, size_t bytes);

  Device* device_ = nullptr;
  int (*free_)(void*, void*) = nullptr;
  void* context_ = nullptr;
  void* allocated_ = nullptr;
  char* data_ = nullptr;
};

}  // namespace ucclep

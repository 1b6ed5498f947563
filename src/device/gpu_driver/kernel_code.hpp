// SPDX-License-Identifier: Apache-2.0
// The library's kernels on one GPU: the embedded code that fits it, and its functions by name.
#pragma once
#include <mutex>
#include <string>
#include <unordered_map>

#include "device/gpu_driver/driver.hpp"

namespace ucclep::gpu {

class KernelCode {
 public:
  // In the context that is current. Throws ucclEpNotSupported when no embedded code runs on the device.
  KernelCode(const Driver& driver, size_t shared_bytes, const std::string& device_name);
  ~KernelCode();
  KernelCode(const KernelCode&) = delete;
  KernelCode& operator=(const KernelCode&) = delete;

  const char* target() const { return target_; }  // "sm_90a"
  // A kernel that may use all the shared memory of a block.
  Function find(const char* name);

 private:
  const Driver& driver_;
  size_t shared_bytes_;
  const char* target_ = nullptr;
  Module module_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<std::string, Function> functions_;
};

}  // namespace ucclep::gpu

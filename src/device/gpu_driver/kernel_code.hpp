// SPDX-License-Identifier: Apache-2.0
// The library's kernels on one GPU: the embedded code that fits it, and its functions by name.
#pragma once
#include <mutex>
#include <string>
#include <unordered_map>

#include "device/gpu_driver/driver.hpp"

namespace ucclep::gpu {

// P15, of the code for this vendor's devices. Throws ucclEpNotSupported when there is none.
unsigned line_lanes(const Driver& driver, const std::string& device_name);

class KernelCode {
 public:
  // Throws ucclEpNotSupported when no embedded code runs on the context's device.
  KernelCode(const Driver& driver, Context context, size_t shared_bytes, const std::string& device_name);
  ~KernelCode();
  KernelCode(const KernelCode&) = delete;
  KernelCode& operator=(const KernelCode&) = delete;

  // In the context. A kernel that may use all the shared memory of a block.
  Function find(const char* name);

 private:
  void load_all();
  Function load(const char* name);  // NULL: the code has none of that name

  const Driver& driver_;
  Context context_;
  size_t shared_bytes_;
  Module module_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<std::string, Function> functions_;
};

}  // namespace ucclep::gpu

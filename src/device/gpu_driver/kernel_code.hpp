// SPDX-License-Identifier: Apache-2.0
// The library's kernels on one GPU: the embedded code that fits it, and its functions by name.
#pragma once
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/gpu_driver/driver.hpp"
#include "device/kernels/gpu_code.hpp"

namespace ucclep::gpu {

// The embedded images that may run on a device, the best one first; with UCCLEP_GPU_IMAGE that one alone. Never empty:
// throws ucclEpNotSupported when there is none, and ucclEpInvalidArgument when the wanted one is not here or does not
// fit.
std::vector<GpuCode> images_for(const Driver& driver, DeviceOrdinal device, const std::string& device_name);

class KernelCode {
 public:
  // Throws ucclEpNotSupported when no embedded code runs on the context's device.
  KernelCode(const Driver& driver, Context context, DeviceOrdinal device, size_t shared_bytes,
             const std::string& device_name);
  ~KernelCode();
  KernelCode(const KernelCode&) = delete;
  KernelCode& operator=(const KernelCode&) = delete;

  // Its kernels wait for the stream themselves, so that launches may ask for early_start.
  bool starts_early() const { return starts_early_; }
  // In the context. A kernel that may use all the shared memory of a block.
  Function find(const char* name);

 private:
  void load_all();
  Function load(const char* name);  // NULL: the code has none of that name

  const Driver& driver_;
  Context context_;
  size_t shared_bytes_;
  Module module_ = nullptr;
  bool starts_early_ = false;
  std::mutex mutex_;
  std::unordered_map<std::string, Function> functions_;
};

}  // namespace ucclep::gpu

// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/kernel_code.hpp"

#include <string_view>

#include "base/log.hpp"
#include "device/kernels/gpu_code.hpp"

namespace ucclep::gpu {

namespace {

bool is_for(const GpuCode& blob, const Driver& driver) {
  return std::string_view(blob.target).starts_with(driver.facts().code) && !blob.code.empty();
}

[[noreturn]] void refuse(const std::string& device_name) {
  fail(ucclEpNotSupported, "no code in this library runs on {}; it holds: {}", device_name, gpu_code_summary());
}

}  // namespace

unsigned line_lanes(const Driver& driver, const std::string& device_name) {
  for (const GpuCode& blob : gpu_code()) {
    if (is_for(blob, driver)) return blob.line_lanes;
  }
  refuse(device_name);
}

// The driver itself says which code runs: it refuses what was built for another architecture.
KernelCode::KernelCode(const Driver& driver, Context context, size_t shared_bytes, const std::string& device_name)
    : driver_(driver), context_(context), shared_bytes_(shared_bytes) {
  const Current current(driver, context);
  for (const GpuCode& blob : gpu_code()) {
    if (!is_for(blob, driver)) continue;
    const Code loaded = driver.api().module_load(&module_, blob.code.data());
    if (loaded == success) {
      log::info("device", "{}: the code for {}", device_name, blob.target);
      return;
    }
    if (loaded != no_binary_for_gpu) driver.check(loaded, "loading the library's kernels");
  }
  refuse(device_name);
}

KernelCode::~KernelCode() {
  undo(driver_, context_, "unloading the library's kernels",
       [this](const DriverApi& api) { return api.module_unload(module_); });
}

Function KernelCode::find(const char* name) {
  std::lock_guard lock(mutex_);
  Function& function = functions_[name];
  if (function != nullptr) return function;
  const OutsideCapture outside(driver_);
  Function found = nullptr;
  const std::string symbol = std::string("ucclep_") + name;
  driver_.check(driver_.api().module_function(&found, module_, symbol.c_str()), symbol.c_str());
  driver_.check(
      driver_.api().function_set_attribute(found, function_max_dynamic_shared, static_cast<int>(shared_bytes_)),
      "asking for a block's shared memory");
  function = found;
  return function;
}

}  // namespace ucclep::gpu

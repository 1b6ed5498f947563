// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/kernel_code.hpp"

#include <string_view>

#include "base/log.hpp"
#include "device/kernels/gpu_code.hpp"
#include "device/kernels/kernels.hpp"

namespace ucclep::gpu {

namespace {

bool is_for(const GpuCode& blob, const Driver& driver) {
  return std::string_view(blob.target).starts_with(driver.facts().code) && !blob.code.empty();
}

std::string symbol_of(const char* name) {
  return std::string("ucclep_") + name;
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
      load_all();
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

// A driver may load a kernel when it is first asked for, and wait for kernels that run, and all that comes after waits
// with it: also the word that would end those (docs/decisions.md).
void KernelCode::load_all() {
  try {
    for (const char* name : kernels::names) load(name);
  } catch (...) {
    driver_.api().module_unload(module_);
    throw;
  }
}

Function KernelCode::load(const char* name) {
  Function function = nullptr;
  const std::string symbol = symbol_of(name);
  const Code code = driver_.api().module_function(&function, module_, symbol.c_str());
  if (code == not_found) return nullptr;
  driver_.check(code, symbol.c_str());
  driver_.check(
      driver_.api().function_set_attribute(function, function_max_dynamic_shared, static_cast<int>(shared_bytes_)),
      "asking for a block's shared memory");
  return functions_[name] = function;
}

Function KernelCode::find(const char* name) {
  const std::lock_guard lock(mutex_);
  if (const auto known = functions_.find(name); known != functions_.end()) return known->second;
  const OutsideCapture outside(driver_);
  const Function function = load(name);  // of a test, which has code of its own
  if (function == nullptr) driver_.check(not_found, symbol_of(name).c_str());
  return function;
}

}  // namespace ucclep::gpu

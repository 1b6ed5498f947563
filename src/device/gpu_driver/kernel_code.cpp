// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/kernel_code.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/env.hpp"
#include "base/log.hpp"
#include "device/kernels/kernels.hpp"

namespace ucclep::gpu {

namespace {

std::string symbol_of(const char* name) {
  return std::string("ucclep_") + name;
}

bool is_of_nvidia(std::string_view target) {
  return target.starts_with("sm_") || target.starts_with("compute_");
}

// NVIDIA's rule: code for 8.0 runs on 8.6, code whose target ends with a letter on no other GPU, and PTX is compiled
// for all that came later. An AMD driver says itself what it runs.
bool fits(std::string_view target, const Driver& driver, int capability) {
  if (driver.facts().kind != UCCLEP_DEVICE_CUDA) return !is_of_nvidia(target);
  if (!is_of_nvidia(target)) return false;
  const int least = std::atoi(target.data() + target.find('_') + 1);
  if (target.starts_with("compute_")) return capability >= least;
  const bool exact = std::isdigit(static_cast<unsigned char>(target.back())) == 0;
  return exact ? capability == least : capability / 10 == least / 10 && capability >= least;
}

// Major and minor in one, as in the names of targets.
int capability_of(const Driver& driver, DeviceOrdinal device) {
  const auto& attribute = driver.facts().attribute;
  if (attribute.capability_major == 0) return 0;
  const auto ask = [&](int which) {
    int value = 0;
    driver.check(driver.api().device_attribute(&value, which, device), "reading a device's compute capability");
    return value;
  };
  return 10 * ask(attribute.capability_major) + ask(attribute.capability_minor);
}

std::string in_words(const Driver& driver, const std::string& device_name, int capability) {
  if (driver.facts().kind != UCCLEP_DEVICE_CUDA) return device_name;
  return fmt::format("{}, compute capability {}.{}", device_name, capability / 10, capability % 10);
}

[[noreturn]] void refuse(const std::string& device) {
  fail(ucclEpNotSupported, "no code in this library runs on {}; it holds: {}", device, gpu_code_summary());
}

void check_wanted(const std::string& wanted, const Driver& driver, const std::string& device, int capability) {
  const auto images = gpu_code();
  const auto image = std::ranges::find(images, wanted, &GpuCode::target);
  if (image == images.end() || image->code.empty()) {
    fail(ucclEpInvalidArgument, "UCCLEP_GPU_IMAGE is {}, which this library does not hold; it holds: {}", wanted,
         gpu_code_summary());
  }
  if (!fits(wanted, driver, capability)) {
    fail(ucclEpInvalidArgument, "UCCLEP_GPU_IMAGE is {}, which does not run on {}; unset it", wanted, device);
  }
}

}  // namespace

std::vector<GpuCode> images_for(const Driver& driver, DeviceOrdinal device, const std::string& device_name) {
  const int capability = capability_of(driver, device);
  const std::string words = in_words(driver, device_name, capability);
  const std::optional<std::string> wanted = env::text("UCCLEP_GPU_IMAGE");
  if (wanted) check_wanted(*wanted, driver, words, capability);
  std::vector<GpuCode> images = gpu_code();
  std::erase_if(images, [&](const GpuCode& image) {
    return image.code.empty() || (wanted && *wanted != image.target) || !fits(image.target, driver, capability);
  });
  if (images.empty()) refuse(words);
  return images;
}

// The driver has the last word: it refuses code for another architecture, and PTX that is newer than it.
KernelCode::KernelCode(const Driver& driver, Context context, DeviceOrdinal device, size_t shared_bytes,
                       const std::string& device_name)
    : driver_(driver), context_(context), shared_bytes_(shared_bytes) {
  const Current current(driver, context);
  for (const GpuCode& image : images_for(driver, device, device_name)) {
    const Code loaded = driver.api().module_load(&module_, image.code.data());
    if (loaded == success) {
      log::info("device", "{}: using the code for {}", device_name, image.target);
      starts_early_ = image.starts_early;
      load_all();
      return;
    }
    if (loaded != no_binary_for_gpu && loaded != unsupported_ptx) driver.check(loaded, "loading the library's kernels");
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
  driver_.check(code, ("loading " + symbol).c_str());
  driver_.check(
      driver_.api().function_set_attribute(function, function_max_dynamic_shared, static_cast<int>(shared_bytes_)),
      "setting the shared memory of a block");
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

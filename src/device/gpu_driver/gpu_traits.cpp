// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/gpu_traits.hpp"

#include "device/gpu_driver/gpu_links.hpp"
#include "device/gpu_driver/kernel_code.hpp"
#include "device/gpu_driver/shared_memory.hpp"
#include "device/whole_stores.hpp"

namespace ucclep::gpu {

DeviceOrdinal device_ordinal(const Driver& driver, int index) {
  DeviceOrdinal ordinal = 0;
  driver.check(driver.api().device_get(&ordinal, index), "opening a device");
  return ordinal;
}

namespace {

constexpr unsigned max_threads = 512;  // of the library's kernels

int current_index(const Driver& driver) {
  Context context = nullptr;
  driver.check(driver.api().context_get_current(&context), "reading the current context");
  if (context == nullptr) return 0;
  DeviceOrdinal current = 0;
  driver.check(driver.api().context_get_device(&current), "reading the current device");
  for (int index = 0; index < driver.device_count(); ++index) {
    if (device_ordinal(driver, index) == current) return index;
  }
  return 0;
}

}  // namespace

int checked_index(const Driver& driver, int index) {
  if (index == UCCLEP_DEVICE_INDEX_CURRENT) index = current_index(driver);
  if (index < 0 || index >= driver.device_count()) {
    fail(ucclEpInvalidArgument, "config.device_index is {}, but the {} driver has {} devices", index,
         driver.facts().vendor, driver.device_count());
  }
  return index;
}

DeviceTraits gpu_device_traits(const Driver& driver, int index) {
  const DriverApi& api = driver.api();
  const auto& attribute = driver.facts().attribute;
  const DeviceOrdinal ordinal = device_ordinal(driver, index);
  const auto ask = [&](int which) {
    int value = 0;
    driver.check(api.device_attribute(&value, which, ordinal), "reading an attribute of a device");
    return static_cast<unsigned>(value);
  };
  char name[64] = {};
  driver.check(api.device_name(name, sizeof name, ordinal), "reading a device's name");
  DeviceTraits traits;
  traits.name = fmt::format("{} {} ({})", driver.facts().vendor, index, name);
  traits.kind = driver.facts().kind;
  traits.index = index;
  traits.place = place_of(driver, ordinal);
  traits.wave = ask(attribute.warp_size);
  traits.num_sms = ask(attribute.multiprocessors);
  traits.max_block = max_threads;
  traits.shared_bytes = ask(attribute.shared_bytes_per_block);
  traits.line_bytes = 16 * images_for(driver, ordinal, traits.name).front().line_lanes;
  traits.line_payload = traits.line_bytes - 8;
  traits.whole_bytes = whole_stores_of(driver.facts().maker).linked;
  if (ask(attribute.cooperative_launch) == 0)
    fail(ucclEpNotSupported, "{} does not support cooperative launches", traits.name);
  if (ask(attribute.virtual_memory) == 0)
    fail(ucclEpNotSupported, "{} does not support virtual memory management", traits.name);
  traits.window_granularity = window_granularity(driver, ordinal);
  traits.nics_reach = false;
  return traits;
}

}  // namespace ucclep::gpu

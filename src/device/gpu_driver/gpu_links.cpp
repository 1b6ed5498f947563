// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/gpu_links.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace ucclep::gpu {
namespace {

// libcuda has no name for the link between two GPUs. What NVLink can do and PCIe cannot are all atomic operations.
constexpr int native_atomics = 3;  // CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
constexpr uint32_t xgmi = 4;       // HSA_AMD_LINK_INFO_TYPE_XGMI

// Drivers refuse to answer for some pairs that cannot reach each other at all.
bool are_linked(const DriverApi& api, DeviceOrdinal a, DeviceOrdinal b) {
  if (api.peer_attribute != nullptr) {
    int atomics = 0;
    return api.peer_attribute(&atomics, native_atomics, a, b) == success && atomics != 0;
  }
  uint32_t type = 0, hops = 0;
  return api.link_type(a, b, &type, &hops) == success && type == xgmi;
}

using LinkTable = std::vector<std::vector<bool>>;  // [gpu][gpu]

// For each GPU the least that links lead to, over others, too.
std::vector<size_t> joined(const LinkTable& linked) {
  std::vector<size_t> first(linked.size());
  std::iota(first.begin(), first.end(), size_t{0});
  for (size_t b = 0; b < first.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      if (first[a] == first[b] || !linked[a][b]) continue;
      const auto [least, other] = std::minmax(first[a], first[b]);
      std::ranges::replace(first, size_t{other}, size_t{least});
    }
  }
  return first;
}

// Do links join any two GPUs that can be reached from this one? Else some of their stores go by PCIe.
bool is_island(const LinkTable& linked, const std::vector<size_t>& first, size_t gpu) {
  for (size_t b = 0; b < first.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      if (first[a] == first[gpu] && first[b] == first[gpu] && !linked[a][b]) return false;
    }
  }
  return true;
}

std::string model_of(const Driver& driver, DeviceOrdinal device) {
  char name[64] = {};
  driver.check(driver.api().device_name(name, sizeof name, device), "reading a device's name");
  return name;
}

}  // namespace

uint64_t place_of(const Driver& driver, DeviceOrdinal device) {
  const auto ask = [&](int which) {
    int value = 0;
    driver.check(driver.api().device_attribute(&value, which, device), "reading a device's PCI address");
    return static_cast<uint64_t>(value);
  };
  const auto& attribute = driver.facts().attribute;
  return 1 + (ask(attribute.pci_domain) << 32 | ask(attribute.pci_bus) << 16 | ask(attribute.pci_device));
}

std::vector<ShownGpu> shown_gpus(const Driver& driver) {
  std::vector<DeviceOrdinal> ordinals(static_cast<size_t>(driver.device_count()));
  std::vector<ShownGpu> gpus;
  for (int index = 0; index < driver.device_count(); ++index) {
    DeviceOrdinal& ordinal = ordinals[static_cast<size_t>(index)];
    driver.check(driver.api().device_get(&ordinal, index), "opening a device");
    gpus.push_back({place_of(driver, ordinal), model_of(driver, ordinal), index});
  }
  LinkTable linked(gpus.size(), std::vector<bool>(gpus.size()));
  for (size_t b = 0; b < gpus.size(); ++b) {
    for (size_t a = 0; a < b; ++a) linked[a][b] = are_linked(driver.api(), ordinals[a], ordinals[b]);
  }
  const std::vector<size_t> first = joined(linked);
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (is_island(linked, first, i)) gpus[i].island = static_cast<int>(first[i]);
  }
  return gpus;
}

}  // namespace ucclep::gpu

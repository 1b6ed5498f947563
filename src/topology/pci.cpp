// SPDX-License-Identifier: Apache-2.0
#include "topology/pci.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace ucclep::topology {

std::optional<PciAddress> PciAddress::parse(std::string_view text) {
  const std::string copy(text);
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  int end = 0;
  const bool whole = std::sscanf(copy.c_str(), "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) == 4 &&
                     end == static_cast<int>(copy.size());
  if (!whole) {
    domain = 0;
    const bool bare = std::sscanf(copy.c_str(), "%2x:%2x.%1x%n", &bus, &device, &function, &end) == 3 &&
                      end == static_cast<int>(copy.size());
    if (!bare) return std::nullopt;
  }
  if (device > 31 || function > 7) return std::nullopt;
  return PciAddress{domain, static_cast<uint8_t>(bus), static_cast<uint8_t>(device), static_cast<uint8_t>(function)};
}

std::string PciAddress::text() const {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

const char* name(Path path) {
  constexpr const char* names[] = {"PCIe switch", "host bridge", "NUMA node", "machine"};
  return names[static_cast<int>(path)];
}

Distance distance(const PciPlace& a, const PciPlace& b) {
  const bool one_root = a.host_bridge >= 0 && a.host_bridge == b.host_bridge;
  if (!one_root) return {a.numa >= 0 && a.numa == b.numa ? Path::numa_node : Path::machine, 0};
  const auto [fork, other] = std::mismatch(a.bridges.begin(), a.bridges.end(), b.bridges.begin(), b.bridges.end());
  const auto shared = static_cast<int>(fork - a.bridges.begin());
  return {shared > 0 ? Path::pcie_switch : Path::host_bridge, shared};
}

}  // namespace ucclep::topology

// SPDX-License-Identifier: Apache-2.0
// Where a device sits on the PCIe of its machine, and how far apart two devices are.
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ucclep::topology {

struct PciAddress {
  uint32_t domain = 0;
  uint8_t bus = 0, device = 0, function = 0;

  static std::optional<PciAddress> parse(std::string_view text);  // "0000:1b:00.0", or without the domain
  std::string text() const;
  auto operator<=>(const PciAddress&) const = default;
};

struct PciPlace {
  PciAddress address;
  int numa = -1;                    // index in Machine::numa_nodes; -1: unknown
  int host_bridge = -1;             // counts the machine's; -1: unknown
  std::vector<PciAddress> bridges;  // from the host bridge down to the device
  auto operator<=>(const PciPlace&) const = default;
};

// What two devices have in common, from near to far; nvidia-smi says PIX or PXB, PHB, NODE, SYS.
enum class Path { pcie_switch, host_bridge, numa_node, machine };
const char* name(Path path);

struct Distance {
  Path path = Path::machine;
  int shared_bridges = 0;  // the more, the nearer
  // Near is less.
  friend std::strong_ordering operator<=>(const Distance& a, const Distance& b) {
    if (a.path != b.path) return a.path <=> b.path;
    return b.shared_bridges <=> a.shared_bridges;
  }
  friend bool operator==(const Distance&, const Distance&) = default;
};

Distance distance(const PciPlace& a, const PciPlace& b);

}  // namespace ucclep::topology

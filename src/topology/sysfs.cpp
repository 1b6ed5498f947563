// SPDX-License-Identifier: Apache-2.0
#include "topology/sysfs.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ucclep::topology {
namespace {

namespace fs = std::filesystem;

// Its first line; empty when there is none, or the kernel refuses, as it does the speed of an interface that is down.
std::string line_of(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::error_code none;
  std::vector<fs::path> paths;
  for (fs::directory_iterator it(folder, none), end; !none && it != end; it.increment(none))
    paths.push_back(it->path());
  std::ranges::sort(paths);
  return paths;
}

const fs::path verbs_devices = "/sys/class/infiniband", interfaces = "/sys/class/net";

void read_ports(Nic& nic) {
  const std::vector<fs::path> ports = entries(verbs_devices / nic.name / "ports");
  if (!ports.empty()) nic.up = false;
  for (const fs::path& port : ports) {
    nic.up |= line_of(port / "state").starts_with("4");  // "4: ACTIVE"
    nic.gigabits =
        std::max(nic.gigabits, std::strtod(line_of(port / "rate").c_str(), nullptr));  // "400 Gb/sec (4X NDR)"
  }
}

void read_interface(Nic& nic) {
  const std::string state = line_of(interfaces / nic.name / "operstate");
  if (!state.empty()) nic.up = state == "up" || state == "unknown";
  const double megabits = std::strtod(line_of(interfaces / nic.name / "speed").c_str(), nullptr);
  if (megabits > 0) nic.gigabits = megabits / 1000;
}

// Not the loopback interface, not WiFi; "bonding_masters" beside the interfaces has no index.
bool can_reach_a_node(const fs::path& interface) {
  constexpr unsigned long iff_loopback = 8;
  std::error_code none;
  const bool loopback = (std::strtoul(line_of(interface / "flags").c_str(), nullptr, 16) & iff_loopback) != 0;
  return fs::exists(interface / "ifindex", none) && !fs::exists(interface / "phy80211", none) && !loopback;
}

bool knows(const Machine& machine, const std::string& name) {
  return std::ranges::any_of(machine.nics, [&](const Nic& nic) {
    return nic.name == name || std::ranges::find(nic.interfaces, name) != nic.interfaces.end();
  });
}

}  // namespace

void add_what_sysfs_knows(Machine& machine) {
  for (const fs::path& device : entries(verbs_devices)) {
    if (knows(machine, device.filename())) continue;
    Nic nic;
    nic.name = device.filename();
    nic.rdma = true;
    machine.nics.push_back(nic);
  }
  for (const fs::path& interface : entries(interfaces)) {
    if (knows(machine, interface.filename()) || !can_reach_a_node(interface)) continue;
    Nic nic;
    nic.name = interface.filename();
    machine.nics.push_back(nic);
  }
  for (Nic& nic : machine.nics) {
    if (nic.rdma) {
      read_ports(nic);
    } else {
      read_interface(nic);
    }
  }
}

}  // namespace ucclep::topology

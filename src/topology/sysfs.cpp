// SPDX-License-Identifier: Apache-2.0
#include "topology/sysfs.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "topology/words.hpp"

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

double number_of(const fs::path& file) {
  return leading_number(line_of(file));
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::error_code none;
  std::vector<fs::path> paths;
  for (fs::directory_iterator it(folder, none), end; !none && it != end; it.increment(none))
    paths.push_back(it->path());
  std::ranges::sort(paths);
  return paths;
}

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

// amdgpu names the hive, a set of GPUs that xGMI links, of each of its devices; 0 is none.
void read_hive(Gpu& gpu, const fs::path& device) {
  const std::string hive = line_of(device / "xgmi_hive_info" / "xgmi_hive_id");
  if (gpu.links.kind.empty() && !hive.empty() && hive != "0") gpu.links = {"xgmi", hive, ""};
}

void read_ports(Nic& nic, const fs::path& device) {
  const std::vector<fs::path> ports = entries(device / "ports");
  if (!ports.empty()) nic.up = false;
  for (const fs::path& port : ports) {
    nic.up |= line_of(port / "state").starts_with("4");               // "4: ACTIVE"
    nic.gigabits = std::max(nic.gigabits, number_of(port / "rate"));  // "400 Gb/sec (4X NDR)"
  }
}

void read_interface(Nic& nic, const fs::path& interface) {
  const std::string state = line_of(interface / "operstate");
  if (!state.empty()) nic.up = state == "up" || state == "unknown";
  if (const double megabits = number_of(interface / "speed"); megabits > 0) nic.gigabits = megabits / 1000;
}

// Not the loopback interface, not WiFi; "bonding_masters" beside the interfaces has no index.
bool can_reach_a_node(const fs::path& interface) {
  constexpr unsigned long iff_loopback = 8;
  const bool loopback = (std::strtoul(line_of(interface / "flags").c_str(), nullptr, 16) & iff_loopback) != 0;
  return is_there(interface / "ifindex") && !is_there(interface / "phy80211") && !loopback;
}

void add_if_new(Machine& machine, const std::string& name, bool rdma) {
  const bool known = std::ranges::any_of(machine.nics, [&](const Nic& nic) {
    return nic.name == name || std::ranges::find(nic.interfaces, name) != nic.interfaces.end();
  });
  if (known) return;
  Nic nic;
  nic.name = name;
  nic.rdma = rdma;
  machine.nics.push_back(nic);
}

}  // namespace

void add_what_sysfs_knows(Machine& machine, const std::string& root) {
  const fs::path classes = fs::path(root) / "class", verbs = classes / "infiniband", interfaces = classes / "net";
  for (const fs::path& device : entries(verbs)) add_if_new(machine, device.filename(), true);
  for (const fs::path& interface : entries(interfaces)) {
    if (can_reach_a_node(interface)) add_if_new(machine, interface.filename(), false);
  }
  for (Nic& nic : machine.nics) {
    if (nic.rdma) {
      read_ports(nic, verbs / nic.name);
    } else {
      read_interface(nic, interfaces / nic.name);
    }
  }
  for (Gpu& gpu : machine.gpus) read_hive(gpu, fs::path(root) / "bus" / "pci" / "devices" / gpu.place.address.text());
}

}  // namespace ucclep::topology

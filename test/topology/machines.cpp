// SPDX-License-Identifier: Apache-2.0
#include "machines.hpp"

#include <algorithm>

#include "topology/discover.hpp"

namespace ucclep::test {

const char* const machine_names[6] = {"h100-cx7", "p5en", "p5", "mi300x-thor2", "pcie-only", "laptop"};

std::string topology_path(const std::string& name) {
  return std::string(UCCLEP_TEST_TOPOLOGIES "/") + name + ".xml";
}

std::shared_ptr<const topology::Machine> saved_machine(const std::string& name) {
  return std::make_shared<const topology::Machine>(topology::read_topology_file(topology_path(name)));
}

std::string nearest_nics(const topology::Machine& machine, size_t gpu) {
  const auto from_gpu = [&](const topology::Nic& nic) { return distance(machine.gpus[gpu].place, nic.place); };
  std::string names;
  for (const topology::Nic& nic : machine.nics) {
    if (from_gpu(nic) > from_gpu(std::ranges::min(machine.nics, {}, from_gpu))) continue;
    names += (names.empty() ? "" : " ") + nic.name;
  }
  return names;
}

}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// What sysfs knows of this machine and hwloc does not tell.
#pragma once
#include <string>

#include "topology/topology.hpp"

namespace ucclep::topology {

// The islands of AMD's GPUs, unless they are known; rates and states of the NICs; NICs without a PCI device (Soft-RoCE,
// veth, bonds), but neither WiFi nor the loopback interface.
void add_what_sysfs_knows(Machine& machine, const std::string& root = "/sys");

}  // namespace ucclep::topology

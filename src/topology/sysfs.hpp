// SPDX-License-Identifier: Apache-2.0
// What sysfs knows of this machine's NICs and hwloc does not tell.
#pragma once
#include "topology/topology.hpp"

namespace ucclep::topology {

// Rates and states of the NICs, and NICs without a PCI device (Soft-RoCE, veth, bonds), but neither WiFi nor the
// loopback interface.
void add_what_sysfs_knows(Machine& machine);

}  // namespace ucclep::topology

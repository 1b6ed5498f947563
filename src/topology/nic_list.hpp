// SPDX-License-Identifier: Apache-2.0
// Which NICs of a machine a rank may use.
#pragma once
#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace ucclep::topology {

// A NIC goes by its verbs device, its network interface, or the libfabric domain that provider efa makes of it
// ("...-rdm").
bool goes_by(const Nic& nic, const std::string& name);

// Indexes in machine.nics, in the order of the names. `owner` begins the message of the ucclEpInvalidArgument that a
// name gets which does not exist, or twice: "UCCLEP_NICS of rank 3".
std::vector<int> nics_by_name(const Machine& machine, const std::vector<std::string>& names, const std::string& owner);

// Without names: what is up, of the first kind that the machine has: RDMA, Ethernet cards, interfaces made of software.
// A NIC with less than a quarter of the fastest one's rate is for something else.
std::vector<int> best_nics(const Machine& machine);

}  // namespace ucclep::topology

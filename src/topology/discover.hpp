// SPDX-License-Identifier: Apache-2.0
// From a live machine, or from a saved hwloc XML file, to a Machine. `lstopo --whole-io machine.xml` writes such a
// file.
//
// What is read besides hwloc's own objects, in info attributes of a PCI device or of an OS device below it:
//   GPUModel                                              the name of a GPU, as hwloc's GPU components write it; else
//   PCIDevice UcclepLinkKind, UcclepLinkIsland, UcclepLinkFabric    of a GPU: GpuLinks, word for word XGMIHiveID of a
//   GPU: hwloc's name for the island of xGMI links UcclepGigabits                                        of a NIC: what
//   its ports carry per second Port1State, Port2State, ...                           of a NIC, as hwloc writes them: 4
//   is active
// Without any of these an NVSwitch in the PCI tree says that the machine's NVIDIA GPUs are linked with each other.
#pragma once
#include <string>

#include "topology/topology.hpp"

namespace ucclep::topology {

// This machine, with the CPUs that this process may use. ucclEpNotSupported without hwloc, ucclEpSystemError when it
// fails.
Machine discover();

// The same as far as it can be known without hwloc: no place of anything on PCIe, no GPU, one NUMA node.
Machine discover_without_hwloc();

// Needs no hwloc. ucclEpInvalidArgument, with the file's name, when it is not what hwloc 2 writes.
Machine read_topology_file(const std::string& path);

}  // namespace ucclep::topology

// SPDX-License-Identifier: Apache-2.0
// What one machine is made of, as far as moving rows between GPUs and NICs goes. Plain data: it can be compared, sent
// to other ranks (json.hpp) and written by hand in a test.
#pragma once
#include <string>
#include <vector>

#include "topology/pci.hpp"

namespace ucclep::topology {

struct NumaNode {
  int number = 0;                       // as the kernel counts
  std::vector<std::vector<int>> cores;  // the CPUs of each core that this process may run on
  bool operator==(const NumaNode&) const = default;
};

// How GPUs reach each other without PCIe. GPUs of a machine with the same island are linked; GPUs of several machines
// are with the same fabric, which is unique in the world (MNNVL: the cluster's UUID with the clique).
struct GpuLinks {
  std::string kind;  // "nvlink", "xgmi"; empty: none
  std::string island;
  std::string fabric;
  bool operator==(const GpuLinks&) const = default;
};

struct Gpu {
  PciPlace place;
  std::string vendor;  // "NVIDIA", "AMD"
  std::string model;
  GpuLinks links;
  bool operator==(const Gpu&) const = default;
};

struct Nic {
  PciPlace place;
  std::string name;                     // the verbs device, or where there is none the network interface
  std::vector<std::string> interfaces;  // network interfaces of the same PCI function
  bool rdma = false;                    // there is a verbs device
  bool up = true;                       // a port is active, or nothing is known
  double gigabits = 0;                  // per second; 0: unknown
  bool operator==(const Nic&) const = default;
};

struct Machine {
  std::string name;  // for people; says nothing of identity
  std::vector<NumaNode> numa_nodes;
  std::vector<Gpu> gpus;  // by PCI address
  std::vector<Nic> nics;  // by PCI address
  bool operator==(const Machine&) const = default;
};

}  // namespace ucclep::topology

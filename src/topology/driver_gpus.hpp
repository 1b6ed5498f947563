// SPDX-License-Identifier: Apache-2.0
// What the drivers of GPUs know that the PCI tree does not tell: which GPUs NVLink or xGMI joins.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "device/gpu_driver/driver.hpp"
#include "topology/topology.hpp"

namespace ucclep::topology {

struct DriverGpu {
  PciAddress address;
  std::string vendor, model;
  std::optional<GpuLinks> links;  // none: of a GPU that it shows alone a driver knows nothing
};

PciAddress address_of(uint64_t place);  // of DeviceTraits

std::vector<DriverGpu> driver_gpus(const gpu::Driver& driver);
std::vector<DriverGpu> gpus_of_all_drivers();  // that are there

// The driver's word wins over that of the PCI tree and of info attributes. A GPU that the machine lacks is added:
// containers and virtual machines may hide the PCI tree.
void add_driver_gpus(const std::vector<DriverGpu>& gpus, Machine& machine);

// The GPU's index in machine.gpus; -1: it is not there.
int index_of_gpu(const Machine& machine, const PciAddress& address);

}  // namespace ucclep::topology

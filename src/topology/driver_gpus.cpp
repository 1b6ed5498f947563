// SPDX-License-Identifier: Apache-2.0
#include "topology/driver_gpus.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "device/gpu_driver/gpu_links.hpp"

namespace ucclep::topology {

PciAddress address_of(uint64_t place) {
  const uint64_t bits = place - 1;
  return {static_cast<uint32_t>(bits >> 32), static_cast<uint8_t>(bits >> 16), static_cast<uint8_t>(bits), 0};
}

std::vector<DriverGpu> driver_gpus(const gpu::Driver& driver) {
  const std::vector<gpu::ShownGpu> shown = gpu::shown_gpus(driver);
  std::vector<DriverGpu> gpus;
  for (const gpu::ShownGpu& one : shown) {
    DriverGpu& gpu = gpus.emplace_back();
    gpu.address = address_of(one.place);
    gpu.vendor = driver.facts().maker;
    gpu.model = one.model;
    if (shown.size() == 1) continue;
    gpu.links.emplace();
    if (std::ranges::count(shown, one.island, &gpu::ShownGpu::island) == 1) continue;
    // An address is the same name to all processes, which may see other GPUs in another order.
    const gpu::ShownGpu& first = shown[static_cast<size_t>(one.island)];
    gpu.links = GpuLinks{driver.facts().link, address_of(first.place).text(), ""};
  }
  return gpus;
}

std::vector<DriverGpu> gpus_of_all_drivers() {
  std::vector<DriverGpu> all;
  for (const gpu::DriverFacts* facts : {&gpu::cuda_facts, &gpu::hip_facts}) {
    try {
      std::ranges::move(driver_gpus(gpu::Driver::get(*facts)), std::back_inserter(all));
    } catch (const Error& error) {
      log::info("topology", "{}", error.what());
    }
  }
  return all;
}

void add_driver_gpus(const std::vector<DriverGpu>& gpus, Machine& machine) {
  for (const DriverGpu& given : gpus) {
    int index = index_of_gpu(machine, given.address);
    if (index < 0) {
      const Gpu gpu{{given.address, -1, -1, {}}, given.vendor, given.model, {}};
      const auto after = std::ranges::upper_bound(machine.gpus, gpu.place, {}, &Gpu::place);
      index = static_cast<int>(after - machine.gpus.begin());
      machine.gpus.insert(after, gpu);
    }
    if (given.links) machine.gpus[static_cast<size_t>(index)].links = *given.links;
  }
}

int index_of_gpu(const Machine& machine, const PciAddress& address) {
  // Drivers do not tell the function.
  const auto is_it = [&](const Gpu& gpu) {
    const PciAddress& other = gpu.place.address;
    return std::tie(other.domain, other.bus, other.device) == std::tie(address.domain, address.bus, address.device);
  };
  const auto found = std::ranges::find_if(machine.gpus, is_it);
  return found == machine.gpus.end() ? -1 : static_cast<int>(found - machine.gpus.begin());
}

}  // namespace ucclep::topology

// SPDX-License-Identifier: Apache-2.0
#include "host/context/open_device.hpp"

#include <string>

#include "base/error.hpp"
#include "base/log.hpp"
#include "device/gpu_driver/gpu_device.hpp"
#include "device/gpu_driver/gpu_traits.hpp"
#include "device/host/host_device.hpp"

namespace ucclep {
namespace {

// on_gpu(driver) for a device of the kind, or on_host().
template <class OnGpu, class OnHost>
auto choose(int kind, OnGpu&& on_gpu, OnHost&& on_host) -> decltype(on_host()) {
  switch (kind) {
    case UCCLEP_DEVICE_CUDA:
      return on_gpu(gpu::Driver::get(gpu::cuda_facts));
    case UCCLEP_DEVICE_HIP:
      return on_gpu(gpu::Driver::get(gpu::hip_facts));
    case UCCLEP_DEVICE_HOST:
      return on_host();
    case UCCLEP_DEVICE_AUTO:
      break;
    default:
      fail(ucclEpInvalidArgument, "config.device is {}, expected one of UCCLEP_DEVICE_*", kind);
  }
  std::string why;
  for (const gpu::DriverFacts* facts : {&gpu::cuda_facts, &gpu::hip_facts}) {
    try {
      return on_gpu(gpu::Driver::get(*facts));
    } catch (const Error& error) {
      if (error.code() != ucclEpNotSupported) throw;
      why += why.empty() ? error.what() : fmt::format("; {}", error.what());
    }
  }
  log::info("device", "using the host device: {}", why);
  return on_host();
}

}  // namespace

std::unique_ptr<Device> open_device(int kind, int index, int rank) {
  return choose(
      kind, [index](const gpu::Driver& driver) { return gpu::open_gpu_device(driver, index); },
      [rank] { return open_host_device(rank, HostDeviceConfig::from_environment()); });
}

DeviceTraits expected_traits(int kind, int index) {
  return choose(
      kind,
      [index](const gpu::Driver& driver) { return gpu::gpu_device_traits(driver, gpu::checked_index(driver, index)); },
      [] { return host_device_traits(0, HostDeviceConfig::from_environment()); });
}

}  // namespace ucclep

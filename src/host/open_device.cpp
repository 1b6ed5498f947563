// SPDX-License-Identifier: Apache-2.0
#include "host/open_device.hpp"

#include <string>

#include "base/error.hpp"
#include "base/log.hpp"
#include "device/gpu_driver/gpu_device.hpp"
#include "device/host/host_device.hpp"

namespace ucclep {
namespace {

std::unique_ptr<Device> open_gpu(const gpu::DriverFacts& facts, int index) {
  return gpu::open_gpu_device(gpu::Driver::get(facts), index);
}

std::unique_ptr<Device> open_any(int index, int rank) {
  std::string why;
  for (const gpu::DriverFacts* facts : {&gpu::cuda_facts, &gpu::hip_facts}) {
    try {
      return open_gpu(*facts, index);
    } catch (const Error& error) {
      if (error.code() != ucclEpNotSupported) throw;
      why += why.empty() ? error.what() : fmt::format("; {}", error.what());
    }
  }
  log::info("device", "using the host device: {}", why);
  return open_host_device(rank, HostDeviceConfig::from_environment());
}

}  // namespace

std::unique_ptr<Device> open_device(int kind, int index, int rank) {
  switch (kind) {
    case UCCLEP_DEVICE_AUTO:
      return open_any(index, rank);
    case UCCLEP_DEVICE_CUDA:
      return open_gpu(gpu::cuda_facts, index);
    case UCCLEP_DEVICE_HIP:
      return open_gpu(gpu::hip_facts, index);
    case UCCLEP_DEVICE_HOST:
      return open_host_device(rank, HostDeviceConfig::from_environment());
    default:
      fail(ucclEpInvalidArgument, "config.device is {}, expected one of UCCLEP_DEVICE_*", kind);
  }
}

}  // namespace ucclep

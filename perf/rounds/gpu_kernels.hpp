// SPDX-License-Identifier: Apache-2.0
// This tool's kernels on a GPU, all of them loaded before one runs: a driver that loads a kernel when it is first asked
// for may wait for those that run, which wait for this rank.
#pragma once
#include <string>

#include "device/device.hpp"
#include "device/gpu_driver/kernel_code.hpp"
#include "device/gpu_driver/primary_context.hpp"

namespace ucclep::perf {

class GpuKernels {
 public:
  GpuKernels(const gpu::Driver& driver, int index);
  const DeviceTraits& traits() const { return traits_; }
  // args: the kernel's only parameter.
  void launch(const std::string& kernel, const LaunchShape& shape, const void* args, ucclEpStream_t stream);

 private:
  const gpu::Driver& driver_;
  const DeviceTraits traits_;
  const gpu::PrimaryContext context_;
  gpu::KernelCode code_;
};

}  // namespace ucclep::perf

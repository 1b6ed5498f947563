// SPDX-License-Identifier: Apache-2.0
#include "rounds/gpu_kernels.hpp"

#include "device/gpu_driver/gpu_traits.hpp"
#include "rounds/kernels/arguments.hpp"

namespace ucclep::perf {

GpuKernels::GpuKernels(const gpu::Driver& driver, int index)
    : driver_(driver),
      traits_(gpu::gpu_device_traits(driver, index)),
      context_(driver, gpu::device_ordinal(driver, index)),
      code_(driver, context_.get(), context_.ordinal(), traits_.shared_bytes, traits_.name) {
  const gpu::Current current(driver, context_.get());
  for (const char* kernel : rounds_kernels) code_.find(kernel);
}

void GpuKernels::launch(const std::string& kernel, const LaunchShape& shape, const void* args, ucclEpStream_t stream) {
  const gpu::Current current(driver_, context_.get());
  void* parameter = const_cast<void*>(args);
  driver_.check(driver_.api().launch(code_.find(kernel.c_str()), shape.grid, 1, 1, shape.block, 1, 1,
                                     static_cast<unsigned>(shape.shared_bytes), reinterpret_cast<gpu::Stream>(stream),
                                     &parameter, nullptr),
                kernel.c_str());
}

}  // namespace ucclep::perf

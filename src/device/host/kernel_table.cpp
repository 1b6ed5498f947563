// SPDX-License-Identifier: Apache-2.0
#include "device/host/kernel_table.hpp"

#include <cstring>

#include "ucclep/device/arch/host_executor.hpp"

namespace ucclep::executor {

// src/device/kernels, once per wave size. Their object files are linked because these are asked for.
void link_kernels_w32();
void link_kernels_w64();

namespace {
constinit const KernelRegistration* registered = nullptr;
}

KernelRegistration::KernelRegistration(const HostKernel& kernel) : HostKernel(kernel), next(registered) {
  registered = this;
}

const KernelRegistration* find_kernel(unsigned wave, const char* name) {
  link_kernels_w32();
  link_kernels_w64();
  for (const KernelRegistration* kernel = registered; kernel != nullptr; kernel = kernel->next) {
    if (kernel->wave == wave && std::strcmp(kernel->name, name) == 0) return kernel;
  }
  return nullptr;
}

}  // namespace ucclep::executor

// SPDX-License-Identifier: Apache-2.0
// The kernels of the table by name, for the host. Each device finds its own code for a name: the host device in its
// table, a GPU in the embedded code objects.
#pragma once
#include "device/device.hpp"

namespace ucclep::kernels {

// A family of the table: a kernel for each type of element; two, for rows as they are and for rows to be quantised.
struct ByType {
  Kernel bf16, fp16, fp32;
  constexpr const Kernel& of(ucclEpDataType_t dtype) const {
    return dtype == ucclEpBfloat16 ? bf16 : dtype == ucclEpFloat16 ? fp16 : fp32;
  }
};
struct ByQuant {
  Kernel forwarding, quantising;
  constexpr const Kernel& of(bool quantised) const { return quantised ? quantising : forwarding; }
};

#define KERNEL(name, ...) inline constexpr Kernel name{#name, false};
#define KERNEL_BY_TYPE(before, after, ...) \
  inline constexpr ByType before##after{   \
      {#before "_bf16" #after, false}, {#before "_fp16" #after, false}, {#before "_fp32" #after, false}};
#define KERNEL_BY_QUANT(before, after, ...) \
  inline constexpr ByQuant before##after{{#before #after, false}, {#before "_fp8" #after, false}};
#include "device/kernels/kernels.def"

// Without the prefix that they have in GPU code.
inline constexpr const char* names[] = {
#define KERNEL(name, ...) #name,
#include "device/kernels/kernels.def"
};

}  // namespace ucclep::kernels

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

// What the table says of a kernel's blocks.
inline constexpr bool meet = true, apart = false;

#define KERNEL(name, Args, blocks, ...) inline constexpr Kernel name{#name, blocks};
#define KERNEL_BY_TYPE(before, after, Args, blocks, ...) \
  inline constexpr ByType before##after{                 \
      {#before "_bf16" #after, blocks}, {#before "_fp16" #after, blocks}, {#before "_fp32" #after, blocks}};
#define KERNEL_BY_QUANT(before, after, Args, blocks, ...) \
  inline constexpr ByQuant before##after{{#before #after, blocks}, {#before "_fp8" #after, blocks}};
#include "device/kernels/kernels.def"

// Without the prefix that they have in GPU code.
inline constexpr const char* names[] = {
#define KERNEL(name, ...) #name,
#include "device/kernels/kernels.def"
};

}  // namespace ucclep::kernels

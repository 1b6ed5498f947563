// SPDX-License-Identifier: Apache-2.0
// The library's kernels by name. Each device finds its own code for a name: the host device in its table, a GPU in the
// embedded code objects.
#pragma once
#include "device/device.hpp"

namespace ucclep::kernels {

inline constexpr Kernel ll_update{"ll_update"};
inline constexpr Kernel ll_dispatch{"ll_dispatch"};
inline constexpr Kernel ll_dispatch_fp8{"ll_dispatch_fp8"};
inline constexpr Kernel ht_update{"ht_update"};
inline constexpr Kernel ht_dispatch{"ht_dispatch"};
inline constexpr Kernel ht_dispatch_fp8{"ht_dispatch_fp8"};
inline constexpr Kernel combine_bf16{"combine_bf16"};
inline constexpr Kernel combine_fp16{"combine_fp16"};
inline constexpr Kernel combine_fp32{"combine_fp32"};
inline constexpr Kernel routing_counts{"routing_counts"};

}  // namespace ucclep::kernels

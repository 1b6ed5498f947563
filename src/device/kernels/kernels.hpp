// SPDX-License-Identifier: Apache-2.0
// The library's kernels by name. Each device finds its own code for a name: the host device in its table, a GPU in the
// embedded code objects.
#pragma once
#include "device/device.hpp"

namespace ucclep::kernels {

inline constexpr Kernel ll_update{"ll_update", false};
inline constexpr Kernel ll_dispatch{"ll_dispatch", false};
inline constexpr Kernel ll_dispatch_fp8{"ll_dispatch_fp8", false};
inline constexpr Kernel ll_dispatch_lines{"ll_dispatch_lines", false};
inline constexpr Kernel ll_dispatch_fp8_lines{"ll_dispatch_fp8_lines", false};
inline constexpr Kernel ll_dispatch_few{"ll_dispatch_few", false};
inline constexpr Kernel ll_dispatch_fp8_few{"ll_dispatch_fp8_few", false};
inline constexpr Kernel ll_dispatch_lines_of_living{"ll_dispatch_lines_of_living", false};
inline constexpr Kernel ll_dispatch_fp8_lines_of_living{"ll_dispatch_fp8_lines_of_living", false};
inline constexpr Kernel ll_dispatch_network{"ll_dispatch_network", false};
inline constexpr Kernel ll_dispatch_fp8_network{"ll_dispatch_fp8_network", false};
inline constexpr Kernel ll_complete_dispatch{"ll_complete_dispatch", false};
inline constexpr Kernel ht_update{"ht_update"};
inline constexpr Kernel ht_update_of_living{"ht_update_of_living"};
inline constexpr Kernel ht_dispatch{"ht_dispatch", false};
inline constexpr Kernel ht_dispatch_fp8{"ht_dispatch_fp8", false};
inline constexpr Kernel ht_update_network{"ht_update_network"};
inline constexpr Kernel ht_dispatch_network{"ht_dispatch_network", false};
inline constexpr Kernel ht_dispatch_fp8_network{"ht_dispatch_fp8_network", false};
inline constexpr Kernel ll_combine_bf16{"ll_combine_bf16", false};
inline constexpr Kernel ll_combine_fp16{"ll_combine_fp16", false};
inline constexpr Kernel ll_combine_fp32{"ll_combine_fp32", false};
inline constexpr Kernel ll_combine_bf16_lines{"ll_combine_bf16_lines", false};
inline constexpr Kernel ll_combine_bf16_few{"ll_combine_bf16_few", false};
inline constexpr Kernel ll_combine_bf16_lines_of_living{"ll_combine_bf16_lines_of_living", false};
inline constexpr Kernel ll_combine_bf16_network{"ll_combine_bf16_network", false};
inline constexpr Kernel ll_complete_combine_bf16{"ll_complete_combine_bf16", false};
inline constexpr Kernel ll_combine_fp16_lines{"ll_combine_fp16_lines", false};
inline constexpr Kernel ll_combine_fp16_few{"ll_combine_fp16_few", false};
inline constexpr Kernel ll_combine_fp16_lines_of_living{"ll_combine_fp16_lines_of_living", false};
inline constexpr Kernel ll_combine_fp16_network{"ll_combine_fp16_network", false};
inline constexpr Kernel ll_complete_combine_fp16{"ll_complete_combine_fp16", false};
inline constexpr Kernel ll_combine_fp32_lines{"ll_combine_fp32_lines", false};
inline constexpr Kernel ll_combine_fp32_few{"ll_combine_fp32_few", false};
inline constexpr Kernel ll_combine_fp32_lines_of_living{"ll_combine_fp32_lines_of_living", false};
inline constexpr Kernel ll_combine_fp32_network{"ll_combine_fp32_network", false};
inline constexpr Kernel ll_complete_combine_fp32{"ll_complete_combine_fp32", false};
inline constexpr Kernel ht_combine_bf16{"ht_combine_bf16", false};
inline constexpr Kernel ht_combine_fp16{"ht_combine_fp16", false};
inline constexpr Kernel ht_combine_fp32{"ht_combine_fp32", false};
inline constexpr Kernel ht_combine_bf16_network{"ht_combine_bf16_network", false};
inline constexpr Kernel ht_combine_fp16_network{"ht_combine_fp16_network", false};
inline constexpr Kernel ht_combine_fp32_network{"ht_combine_fp32_network", false};
inline constexpr Kernel ll_send_dispatch{"ll_send_dispatch", false};
inline constexpr Kernel ll_send_dispatch_fp8{"ll_send_dispatch_fp8", false};
inline constexpr Kernel ll_send_dispatch_network{"ll_send_dispatch_network", false};
inline constexpr Kernel ll_send_dispatch_fp8_network{"ll_send_dispatch_fp8_network", false};
inline constexpr Kernel ll_complete_dispatch_fp8{"ll_complete_dispatch_fp8", false};
inline constexpr Kernel ll_complete_dispatch_network{"ll_complete_dispatch_network", false};
inline constexpr Kernel ll_send_combine_bf16{"ll_send_combine_bf16", false};
inline constexpr Kernel ll_send_combine_bf16_network{"ll_send_combine_bf16_network", false};
inline constexpr Kernel ll_complete_combine_bf16_network{"ll_complete_combine_bf16_network", false};
inline constexpr Kernel ll_send_combine_fp16{"ll_send_combine_fp16", false};
inline constexpr Kernel ll_send_combine_fp16_network{"ll_send_combine_fp16_network", false};
inline constexpr Kernel ll_complete_combine_fp16_network{"ll_complete_combine_fp16_network", false};
inline constexpr Kernel ll_send_combine_fp32{"ll_send_combine_fp32", false};
inline constexpr Kernel ll_send_combine_fp32_network{"ll_send_combine_fp32_network", false};
inline constexpr Kernel ll_complete_combine_fp32_network{"ll_complete_combine_fp32_network", false};
inline constexpr Kernel ht_send_dispatch{"ht_send_dispatch", false};
inline constexpr Kernel ht_send_dispatch_fp8{"ht_send_dispatch_fp8", false};
inline constexpr Kernel ht_complete_dispatch{"ht_complete_dispatch", false};
inline constexpr Kernel ht_send_combine_bf16{"ht_send_combine_bf16", false};
inline constexpr Kernel ht_complete_combine_bf16{"ht_complete_combine_bf16", false};
inline constexpr Kernel ht_send_combine_fp16{"ht_send_combine_fp16", false};
inline constexpr Kernel ht_complete_combine_fp16{"ht_complete_combine_fp16", false};
inline constexpr Kernel ht_send_combine_fp32{"ht_send_combine_fp32", false};
inline constexpr Kernel ht_complete_combine_fp32{"ht_complete_combine_fp32", false};
inline constexpr Kernel ht_send_dispatch_network{"ht_send_dispatch_network", false};
inline constexpr Kernel ht_send_dispatch_fp8_network{"ht_send_dispatch_fp8_network", false};
inline constexpr Kernel ht_complete_dispatch_network{"ht_complete_dispatch_network", false};
inline constexpr Kernel ht_send_combine_bf16_network{"ht_send_combine_bf16_network", false};
inline constexpr Kernel ht_complete_combine_bf16_network{"ht_complete_combine_bf16_network", false};
inline constexpr Kernel ht_send_combine_fp16_network{"ht_send_combine_fp16_network", false};
inline constexpr Kernel ht_complete_combine_fp16_network{"ht_complete_combine_fp16_network", false};
inline constexpr Kernel ht_send_combine_fp32_network{"ht_send_combine_fp32_network", false};
inline constexpr Kernel ht_complete_combine_fp32_network{"ht_complete_combine_fp32_network", false};
// Those of groups with rings meet: their blocks wait for each other.
inline constexpr Kernel ht_dispatch_rings{"ht_dispatch_rings"};
inline constexpr Kernel ht_dispatch_fp8_rings{"ht_dispatch_fp8_rings"};
inline constexpr Kernel ht_combine_bf16_rings{"ht_combine_bf16_rings"};
inline constexpr Kernel ht_send_combine_bf16_rings{"ht_send_combine_bf16_rings", false};
inline constexpr Kernel ht_complete_combine_bf16_rings{"ht_complete_combine_bf16_rings"};
inline constexpr Kernel ht_combine_fp16_rings{"ht_combine_fp16_rings"};
inline constexpr Kernel ht_send_combine_fp16_rings{"ht_send_combine_fp16_rings", false};
inline constexpr Kernel ht_complete_combine_fp16_rings{"ht_complete_combine_fp16_rings"};
inline constexpr Kernel ht_combine_fp32_rings{"ht_combine_fp32_rings"};
inline constexpr Kernel ht_send_combine_fp32_rings{"ht_send_combine_fp32_rings", false};
inline constexpr Kernel ht_complete_combine_fp32_rings{"ht_complete_combine_fp32_rings"};
inline constexpr Kernel ll_mend_dispatch{"ll_mend_dispatch", false};
inline constexpr Kernel ll_announce_weights{"ll_announce_weights", false};
inline constexpr Kernel ll_announce_weights_network{"ll_announce_weights_network", false};
inline constexpr Kernel ll_mend_weights{"ll_mend_weights", false};
inline constexpr Kernel ll_mend_combine{"ll_mend_combine", false};
inline constexpr Kernel ht_mend_update{"ht_mend_update", false};
inline constexpr Kernel ht_mend_dispatch{"ht_mend_dispatch", false};
inline constexpr Kernel ht_mend_combine{"ht_mend_combine", false};
inline constexpr Kernel mask_update{"mask_update", false};
inline constexpr Kernel mask_query{"mask_query", false};
inline constexpr Kernel mask_clear{"mask_clear", false};
inline constexpr Kernel routing_counts{"routing_counts", false};
inline constexpr Kernel trace_clock{"trace_clock", false};

}  // namespace ucclep::kernels

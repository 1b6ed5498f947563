// SPDX-License-Identifier: Apache-2.0
// What tests embed as GPU code instead of what the GPU compilers make, so that they need none: a text that a double
// takes for the library's kernels, of its wave size.
#pragma once

namespace ucclep::doubles {

template <unsigned wave>
inline constexpr char host_kernels[] = "";
template <>
inline constexpr char host_kernels<32>[] = "the library's kernels for the host, wave 32";
template <>
inline constexpr char host_kernels<64>[] = "the library's kernels for the host, wave 64";

}  // namespace ucclep::doubles

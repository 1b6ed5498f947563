// SPDX-License-Identifier: Apache-2.0
// A part of the kernels in one module, for a compiler that takes minutes for all.
#include "channel_kernels.cpp"
#include "open_kernels.cpp"

// SPDX-License-Identifier: Apache-2.0
// All kernels in one module, as a GPU loads them.
#include "channel_kernels.cpp"
#include "initiated_kernels.cpp"
#include "initiated_more_kernels.cpp"
#include "room_kernels.cpp"
#include "tile_kernels.cpp"
#include "tile_layer_kernels.cpp"
#include "whole_kernels.cpp"

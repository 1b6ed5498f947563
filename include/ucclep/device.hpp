// SPDX-License-Identifier: Apache-2.0
// The device API: what a user's kernel can do with groups, handles and windows that the C API made. Header only; nvcc,
// clang for amdgcn, and C++20 compilers for the host device. Everything is in namespace ucclep.
//
// clang-format off
// | header                | what                                                                                       |
// |-----------------------|--------------------------------------------------------------------------------------------|
// | simt.hpp              | scopes (thread, lanes<N>, warp, block) and the verbs that all kernels are written in       |
// | objects.hpp           | what ucclEpGroupGetDevice, ucclEpHandleGetDevice and ucclEpWindowGetDevice fill            |
// | channel.hpp           | put, put_signal, signal, wait_signal, flush, barrier                                       |
// | ll_open_dispatch.hpp  | ll::dispatch_begin, dispatch_send, dispatch_end; ll_open_dispatch_recv.hpp: dispatch_rows, |
// |                       |   dispatch_recv                                                                            |
// | ll_open_combine.hpp   | ll::combine_begin, combine_send, combine_end; ll_open_combine_recv.hpp: combine_recv       |
// | ht_open_dispatch.hpp  | ht::dispatch_begin, dispatch_send, dispatch_end; ht_open_dispatch_recv.hpp: dispatch_recv  |
// | ht_open_combine.hpp   | ht::combine_begin, combine_send, combine_end; ht_open_combine_recv.hpp: combine_recv       |
// clang-format on
//
// Kernels are compiled without contraction of products and sums (nvcc: -fmad=false, clang: -ffp-contract=off), so that
// sums have the same bits on every target.
#pragma once
#include "ucclep/device/channel.hpp"
#include "ucclep/device/ht_combine.hpp"
#include "ucclep/device/ht_dispatch.hpp"
#include "ucclep/device/ll_combine.hpp"
#include "ucclep/device/ll_dispatch_recv.hpp"

// SPDX-License-Identifier: Apache-2.0
// The device API: what a user's kernel can do with groups, handles and windows that the C API made. Header only; nvcc,
// clang for amdgcn, and C++20 compilers for the CPU (ucclep/host_launch.hpp). Everything is in namespace ucclep.
//
// clang-format off
// | page                        | what                                                                                 |
// |-----------------------------|--------------------------------------------------------------------------------------|
// | device/channel.hpp          | put, put_signal, signal, wait_signal, flush, barrier                                 |
// | device/ll_dispatch.hpp      | ll::dispatch_begin, dispatch_send, dispatch_end                                      |
// | device/ll_dispatch_recv.hpp | ll::dispatch_rows, dispatch_recv                                                     |
// | device/ll_combine.hpp       | ll::combine_begin, combine_send, combine_end                                         |
// | device/ll_combine_recv.hpp  | ll::combine_recv                                                                     |
// | device/ht_dispatch.hpp      | ht::dispatch_begin, dispatch_send, dispatch_end, dispatch_recv                       |
// | device/ht_combine.hpp       | ht::combine_begin, combine_send, combine_end, combine_recv                           |
// | device/tiles.hpp            | tiles::begin, join, send, close, serve, next, wait, send_back, done, close_back, .. |
// | device/whole_operations.hpp | grid; ll:: and ht::dispatch and combine: whole operations by all blocks               |
// | device/user/operation.hpp   | RowShape, which each *_begin takes; await_end                                        |
// | device/user/routing.hpp     | TopkRouting: a routing that is known when the dispatch begins                        |
// | device/simt/simt.hpp        | scopes (thread, lanes<N>, warp, block) and the verbs that all kernels are written in |
// | device/layout/objects.hpp   | what ucclEpGroupGetDevice, ucclEpHandleGetDevice and ucclEpWindowGetDevice fill      |
// clang-format on
//
// No flag is needed but C++20. The library's sums round each product and each sum (add_rounded), so they have the same
// bits on every target. Leave out options that change arithmetic itself: nvcc's --use_fast_math, which flushes
// subnormal numbers and divides approximately, and clang's -ffp-contract=fast for AMD GPUs.
//
// "Registers" in the comment of a call: of each thread, in a kernel that begins the operation and makes this call.
//
// The files of device/ itself are for users. Its folders hold what those files and the library's own kernels stand on,
// lowest first: arch, simt, layout, network, protocol, rows, ll and ht, ht/nodes, recovery, user.
#pragma once
#include "ucclep/device/channel.hpp"
#include "ucclep/device/ht_combine.hpp"
#include "ucclep/device/ht_dispatch.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/ll_combine.hpp"
#include "ucclep/device/ll_combine_recv.hpp"
#include "ucclep/device/ll_dispatch.hpp"
#include "ucclep/device/ll_dispatch_recv.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/operation.hpp"

// SPDX-License-Identifier: Apache-2.0
/** @file
Kernels of users on the CPU. The text that nvcc compiles for a GPU is compiled by g++ or clang++ instead, as in

    g++ -std=c++20 -g -DUCCLEP_WAVE=32 -x c++ kernel.cu -lucclep

and runs on the host device of a communicator (UCCLEP_DEVICE=host): under a debugger, in schedules drawn from a seed
(UCCLEP_HOST_SEED), in the modes of UCCLEP_HOST_MODE, and under ThreadSanitizer with the library that `make
sanitized-library` builds. UCCLEP_WAVE is the number of lanes of a warp, 32 or 64 as UCCLEP_HOST_WAVE.

Compiled for a GPU this header declares nothing: `#if defined(UCCLEP_ON_CPU)` is where a program launches by it. */
#pragma once
#include "ucclep/device/arch/arch.hpp"

#if defined(UCCLEP_ON_CPU)
#include <cstddef>
#include <type_traits>

#include "ucclep/ucclep.h"

// A namespace for each wave size: a program may have kernels of both.
namespace UCCLEP_SIMT_NAMESPACE {

/** @private What both forms of a launch call. */
inline ucclEpResult_t launch_on_cpu(ucclEpComm_t comm, const executor::HostKernel& kernel, unsigned grid,
                                    unsigned block, size_t shared_bytes, const void* args, size_t bytes,
                                    ucclEpStream_t stream) {
  const auto* runtime = static_cast<const executor::UserRuntime*>(ucclEpHostRuntime(executor::runtime_abi));
  if (runtime == nullptr) return ucclEpNotSupported;
  return runtime->launch(comm, kernel, grid, block, shared_bytes, args, bytes, stream);
}

/** Launches a function as a kernel on the host device of comm: every lane calls kernel(args).
[stream] It runs in the order of the stream's work, as a kernel of the library does; a stream that is captured takes it
into the graph. All of the grid is resident at once, so its blocks may meet at a barrier. What a lane does wrong (a warp
verb that another lane never reaches, a stack that overflows, an exception; with a watchdog a wait without end) is a
fatal ucclEpInternalError of the communicator, whose error message names kernel, block, warp and lane.
@param comm          a communicator of the host device. NULL: ucclEpInvalidArgument; of a GPU: ucclEpNotSupported
@param kernel        compiled for the waves of comm's device (UCCLEP_WAVE), else ucclEpInvalidArgument. With
                     -fsanitize=thread, and a library without: ucclEpInvalidUsage
@param grid          blocks, at least 1; with UCCLEP_HOST_MODE=residency=N at most N. Else ucclEpInvalidArgument
@param block         threads of a block, 1 to 1024. Else ucclEpInvalidArgument
@param shared_bytes  of a block, which ucclep::shared_memory() returns: at most 196608. Else ucclEpInvalidArgument
@param args          `bytes` bytes, copied during the call. Lanes get a copy that is aligned to 64 bytes
@param bytes         may be 0; args is NULL then
@param stream        of comm, or NULL: the default stream
@return ucclEpNotSupported also where the library's host run-time has another version than these headers; a program that
calls it while the communicator has a fatal error gets that error. */
inline ucclEpResult_t ucclEpHostLaunch(ucclEpComm_t comm, void (*kernel)(const void* args), unsigned grid,
                                       unsigned block, size_t shared_bytes, const void* args, size_t bytes,
                                       ucclEpStream_t stream) {
  const executor::HostKernel code{UCCLEP_WAVE, "of the user",           bytes,
                                  kernel,      &executor::current_slot, host_detail::under_tsan};
  return launch_on_cpu(comm, code, grid, block, shared_bytes, args, bytes, stream);
}

/** Launches a kernel that UCCLEP_KERNEL(name, Args) defines: ucclEpHostLaunch(comm, ucclep_name, grid, block, 0, args,
stream). Error messages name it. All else is as above. */
template <class Args>
ucclEpResult_t ucclEpHostLaunch(ucclEpComm_t comm, const HostKernelOf<Args>& kernel, unsigned grid, unsigned block,
                                size_t shared_bytes, const std::type_identity_t<Args>& args, ucclEpStream_t stream) {
  static_assert(std::is_trivially_copyable_v<Args>, "arguments of a kernel are copied as bytes");
  return launch_on_cpu(comm, kernel, grid, block, shared_bytes, &args, sizeof(Args), stream);
}

}  // namespace UCCLEP_SIMT_NAMESPACE

using ucclep::ucclEpHostLaunch;

#endif

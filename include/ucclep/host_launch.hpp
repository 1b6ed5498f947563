// SPDX-License-Identifier: Apache-2.0
// Kernels of users on the CPU. g++ or clang++ compiles the text that nvcc compiles for a GPU,
//
//     g++ -std=c++20 -g -DUCCLEP_WAVE=32 -x c++ kernel.cu -lucclep
//
// and ucclEpHostLaunch runs it on the host device of a communicator (UCCLEP_DEVICE=host): under a debugger, in
// schedules drawn from a seed (UCCLEP_HOST_SEED), in the modes of UCCLEP_HOST_MODE, and under ThreadSanitizer with the
// library that `make sanitized-library` builds. UCCLEP_WAVE is the number of lanes of a warp, 32 (the default) or 64,
// as in UCCLEP_HOST_WAVE.
//
// Where kernels are compiled for a GPU this header declares nothing, and UCCLEP_ON_CPU is not defined.
#pragma once
#include <cstddef>
#include <type_traits>

#include "ucclep/device/arch/arch.hpp"
#include "ucclep/ucclep.h"

#if defined(UCCLEP_ON_CPU)

// A namespace for each wave size: a program may have kernels of both.
namespace UCCLEP_SIMT_NAMESPACE {

// What every ucclEpHostLaunch below comes to.
inline ucclEpResult_t launch_on_cpu(ucclEpComm_t comm, const executor::HostKernel& kernel, unsigned grid,
                                    unsigned block, size_t shared_bytes, const void* args, size_t bytes,
                                    ucclEpStream_t stream) {
  const auto* runtime = static_cast<const executor::UserRuntime*>(ucclEpHostRuntime(executor::runtime_abi));
  if (runtime == nullptr) return ucclEpNotSupported;
  return runtime->launch(comm, kernel, grid, block, shared_bytes, args, bytes, stream);
}

// Launches a function on the host device of comm: every lane calls kernel(args). [stream]: it runs after what the
// stream had before, and before what follows; a stream that is captured takes it into the graph. The grid is resident
// at once, so its blocks may meet at a barrier.
//
// comm: NULL is ucclEpInvalidArgument, a communicator of a GPU ucclEpNotSupported.
// kernel: compiled for the waves of comm's device, else ucclEpInvalidArgument. If it was compiled with
// -fsanitize=thread and the library was not: ucclEpInvalidUsage. NULL: ucclEpInvalidArgument.
// grid: blocks, at least 1, with UCCLEP_HOST_MODE=residency=N at most N; else ucclEpInvalidArgument.
// block: threads of a block, 1 to 1024; else ucclEpInvalidArgument.
// shared_bytes: what ucclep::shared_memory() has in a block, at most 196608; else ucclEpInvalidArgument. It is not
// zeroed.
// args: `bytes` bytes, copied during the call. Lanes read the copy, which is aligned to 64 bytes. NULL:
// ucclEpInvalidArgument, unless bytes is 0.
// stream: made by ucclEpStreamCreate on comm, or NULL for the default stream; else ucclEpInvalidArgument.
//
// ucclEpNotSupported is also the answer where the library has another version of the run-time than the headers.
// A fault of a lane is a fatal ucclEpInternalError of the communicator, and its error message names kernel, block, warp
// and lane: an exception, a warp or block verb that another lane never reaches, a stack that is nearly full at a verb
// (a lane has 16 KiB, with a library under a sanitizer 64 KiB), and with UCCLEP_HOST_WATCHDOG_MS a wait without end.
inline ucclEpResult_t ucclEpHostLaunch(ucclEpComm_t comm, void (*kernel)(const void* args), unsigned grid,
                                       unsigned block, size_t shared_bytes, const void* args, size_t bytes,
                                       ucclEpStream_t stream) {
  const executor::HostKernel code{UCCLEP_WAVE, "of the user",           bytes,
                                  kernel,      &executor::current_slot, host_detail::under_tsan};
  return launch_on_cpu(comm, code, grid, block, shared_bytes, args, bytes, stream);
}

// The same for a kernel that UCCLEP_KERNEL(name, Args) defines, which is ucclep_name here: error messages have its
// name.
template <class Args>
ucclEpResult_t ucclEpHostLaunch(ucclEpComm_t comm, const HostKernelOf<Args>& kernel, unsigned grid, unsigned block,
                                size_t shared_bytes, const std::type_identity_t<Args>& args, ucclEpStream_t stream) {
  static_assert(std::is_trivially_copyable_v<Args>, "arguments of a kernel are copied as bytes");
  return launch_on_cpu(comm, kernel, grid, block, shared_bytes, &args, sizeof(Args), stream);
}

}  // namespace UCCLEP_SIMT_NAMESPACE

using ucclep::ucclEpHostLaunch;

#endif

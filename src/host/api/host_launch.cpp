// SPDX-License-Identifier: Apache-2.0
// Kernels of users on the host device: what ucclep/host_launch.hpp reaches.
#include "host/boundary/guard.hpp"
#include "host/context/communicator.hpp"
#include "ucclep/device/arch/host_executor.hpp"

namespace ucclep {
namespace {

#if defined(UCCLEP_TSAN)
constexpr bool follows_lanes = true;
#else
constexpr bool follows_lanes = false;
#endif

void check_kernel(const ucclEpComm& comm, const executor::HostKernel& kernel) {
  require(reinterpret_cast<const void*>(kernel.function), "kernel");
  if (kernel.wave != comm.traits.wave) {
    fail(ucclEpInvalidArgument,
         "kernel {} was compiled for waves of {} lanes (UCCLEP_WAVE), but the device {} has waves of {} "
         "(UCCLEP_HOST_WAVE)",
         kernel.name, kernel.wave, comm.traits.name, comm.traits.wave);
  }
  if (kernel.under_tsan && !follows_lanes) {
    fail(ucclEpInvalidUsage,
         "kernel {} was compiled with -fsanitize=thread, but this libucclep.so was not: use the one that `make "
         "sanitized-library` builds",
         kernel.name);
  }
}

ucclEpResult_t launch(ucclEpComm_t comm, const executor::HostKernel& kernel, unsigned grid, unsigned block,
                      size_t shared_bytes, const void* args, size_t bytes, ucclEpStream_t stream) {
  return guarded("ucclEpHostLaunch", comm, [&] {
    usable(comm);
    if (comm->traits.kind != UCCLEP_DEVICE_HOST) {
      fail(ucclEpNotSupported,
           "{}: only the host device runs kernels that are compiled for the CPU; launch those of a GPU with its own "
           "run-time",
           comm->traits.name);
    }
    check_kernel(*comm, kernel);
    if (bytes != 0) require(args, "args");
    comm->device->launch({.name = kernel.name, .users = &kernel}, {grid, block, shared_bytes}, args, bytes,
                         checked_stream(*comm, stream));
  });
}

}  // namespace
}  // namespace ucclep

using namespace ucclep;

const void* ucclEpHostRuntime(unsigned abi) {
  static const executor::UserRuntime runtime{*executor::runtime, &launch};
  const ucclEpResult_t result = caught("ucclEpHostRuntime", nullptr, [&] {
    if (abi == executor::runtime_abi) return;
    fail(ucclEpNotSupported,
         "the program was compiled for version {} of the host device's run-time, this library has version {}: compile "
         "it with the library's own headers",
         abi, executor::runtime_abi);
  });
  return result == ucclEpSuccess ? &runtime : nullptr;
}

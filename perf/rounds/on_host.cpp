// SPDX-License-Identifier: Apache-2.0
// The kernels on the host device. Compiled once per wave size.
#include <ucclep/host_launch.hpp>

#include "rounds/kernels/kernels.cpp"
#include "rounds/launcher.hpp"

namespace ucclep::perf {

template <>
ucclEpResult_t launch_on_host<UCCLEP_WAVE>(ucclEpComm_t comm, const std::string& kernel, const LaunchShape& shape,
                                           const void* args, size_t bytes, ucclEpStream_t stream) {
  const executor::HostKernel* const all[] = {
      &ucclep_rounds_ll_grid, &ucclep_rounds_ll_grid_lines, &ucclep_rounds_ll_block, &ucclep_rounds_ll_warp,
      &ucclep_rounds_ht_grid, &ucclep_rounds_ht_block,      &ucclep_rounds_ht_warp,  &ucclep_rounds_bare};
  for (const executor::HostKernel* each : all) {
    if (kernel != each->name) continue;
    return launch_on_cpu(comm, *each, shape.grid, shape.block, shape.shared_bytes, args, bytes, stream);
  }
  return ucclEpInvalidArgument;
}

}  // namespace ucclep::perf

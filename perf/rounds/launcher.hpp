// SPDX-License-Identifier: Apache-2.0
// Launches this tool's kernels as a user of the library does: on a GPU with the driver, on the host device by
// ucclEpHostLaunch.
#pragma once
#include <algorithm>
#include <memory>
#include <string>

#include "device/device.hpp"
#include "endpoint.hpp"
#include "rounds/gpu_kernels.hpp"
#include "rounds/kernels/arguments.hpp"

namespace ucclep::perf {

class Launcher {
 public:
  // Collective. Throws where there is no code for the device, or its SMs are fewer than the blocks that were asked for.
  explicit Launcher(Endpoint& endpoint);

  // Blocks and threads of every launch, as "128x512".
  std::string shape_in_words() const;
  // kernel: its name, as in rounds/kernels/kernels.cpp.
  template <class Args>
  void launch(const std::string& kernel, const Args& args) {
    start(kernel, &args, sizeof args, shape_);
  }
  // With so many bytes of shared memory, and at most so many threads in a block.
  template <class Args>
  void launch(const std::string& kernel, const Args& args, size_t shared_bytes, unsigned threads) {
    start(kernel, &args, sizeof args, {shape_.grid, std::min(shape_.block, threads), shared_bytes});
  }

 private:
  void start(const std::string& kernel, const void* args, size_t bytes, const LaunchShape& shape);

  Endpoint& endpoint_;
  std::unique_ptr<GpuKernels> gpu_;  // NULL: the host device
  unsigned wave_ = 32;
  LaunchShape shape_;
};

// A kernel for waves of 32 or 64 lanes, on the host device.
template <int wave>
ucclEpResult_t launch_on_host(ucclEpComm_t comm, const std::string& kernel, const LaunchShape& shape, const void* args,
                              size_t bytes, ucclEpStream_t stream);

}  // namespace ucclep::perf

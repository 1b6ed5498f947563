// SPDX-License-Identifier: Apache-2.0
#include "rounds/launcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "api.hpp"
#include "find_gpu.hpp"
#include "host/group/plan.hpp"

namespace ucclep::perf {
namespace {

constexpr unsigned host_blocks = 2, host_warps = 4;

// Ranks that take the GPU of this one.
unsigned sharers(Endpoint& endpoint) {
  struct Place {
    char node_name[sizeof(ucclEpCommInfo_t::node_name)];
    int device_index;
  };
  Place mine{};
  std::memcpy(mine.node_name, endpoint.info().node_name, sizeof mine.node_name);
  mine.device_index = endpoint.info().device_index;
  const std::vector<Place> all = endpoint.team().gather(mine);
  return static_cast<unsigned>(std::count_if(all.begin(), all.end(), [&](const Place& other) {
    return other.device_index == mine.device_index && std::strcmp(other.node_name, mine.node_name) == 0;
  }));
}

std::unique_ptr<GpuKernels> open_gpu(const ucclEpCommInfo_t& info) {
  std::string why;
  const gpu::Driver* const driver = find_gpu_driver(info.device == UCCLEP_DEVICE_CUDA ? "cuda" : "hip", &why);
  if (driver == nullptr) throw PerfError(why);
  return std::make_unique<GpuKernels>(*driver, info.device_index);
}

// As the library launches its kernels.
LaunchShape gpu_shape(DeviceTraits traits, unsigned sharers, const Options& options) {
  traits.num_sms = std::max(1u, traits.num_sms / sharers);
  if (options.blocks > static_cast<int>(traits.num_sms)) {
    throw PerfError(
        fmt::format("--blocks {}: expected at most {}, the SMs of a rank: all blocks must be resident at once",
                    options.blocks, traits.num_sms));
  }
  return plan_counting(traits, options.blocks > 0 ? options.blocks : options.sms);
}

}  // namespace

Launcher::Launcher(Endpoint& endpoint) : endpoint_(endpoint) {
  const Options& options = endpoint.options();
  if (!endpoint.on_host()) {
    gpu_ = open_gpu(endpoint.info());
    wave_ = gpu_->traits().wave;
    shape_ = gpu_shape(gpu_->traits(), sharers(endpoint), options);
  } else {
    if (std::strstr(endpoint.info().device_name, "wave 64") != nullptr) wave_ = 64;
    shape_ = {options.blocks > 0 ? static_cast<unsigned>(options.blocks) : host_blocks, host_warps * wave_, 0};
  }
  if (options.block_threads > 0) shape_.block = static_cast<unsigned>(options.block_threads);
  if (shape_.block % wave_ != 0) {
    throw PerfError(fmt::format("--block-threads {}: expected a multiple of {}, the lanes of a warp here",
                                options.block_threads, wave_));
  }
}

std::string Launcher::shape_in_words() const {
  return fmt::format("{}x{}", shape_.grid, shape_.block);
}

void Launcher::start(const std::string& kernel, const void* args, size_t bytes, const LaunchShape& shape) {
  const ucclEpStream_t stream = endpoint_.stream();
  if (gpu_) {
    gpu_->launch(kernel, shape, args, stream);
    return;
  }
  const auto on_host = wave_ == 64 ? launch_on_host<64> : launch_on_host<32>;
  check(on_host(endpoint_.comm(), kernel, shape, args, bytes, stream), "ucclEpHostLaunch", endpoint_.comm());
}

}  // namespace ucclep::perf

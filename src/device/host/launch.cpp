// SPDX-License-Identifier: Apache-2.0
#include "device/host/launch.hpp"

#include <cstring>

#include "base/error.hpp"

namespace ucclep::executor {

void give_arguments(Launch& launch, const void* args, size_t bytes) {
  constexpr size_t alignment = 64;
  launch.args.reset(std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment));
  if (launch.args == nullptr)
    fail(ucclEpOutOfMemory, "cannot allocate {} bytes for the arguments of kernel {}", bytes, launch.kernel);
  if (bytes != 0) std::memcpy(launch.args.get(), args, bytes);
  launch.arg_bytes = bytes;
}

std::unique_ptr<Launch> copy_of(const Launch& launch) {
  auto copy = std::make_unique<Launch>();
  copy->kernel = launch.kernel;
  copy->code = launch.code;
  copy->shape = launch.shape;
  copy->device = launch.device;
  give_arguments(*copy, launch.args.get(), launch.arg_bytes);
  return copy;
}

}  // namespace ucclep::executor

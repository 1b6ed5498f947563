// SPDX-License-Identifier: Apache-2.0
// What the examples launch their kernels with on the host device.
#include <memory>

#include "host/context/communicator.hpp"

namespace example {

void launch(ucclEpComm_t comm, const char* kernel, unsigned blocks, unsigned threads, const void* args, size_t bytes);

void launch(ucclEpComm_t comm, const char* kernel, unsigned blocks, unsigned threads, const void* args, size_t bytes) {
  comm->device->launch({kernel, false}, {blocks, threads, 0}, args, bytes, nullptr);
}

}  // namespace example

// SPDX-License-Identifier: Apache-2.0
// A user's kernel on the device of a handle, as its user launches it: on a GPU with the driver, on the host device by
// name.
#pragma once
#include <cstddef>
#include <string>

#include "ucclep/ucclep.h"

namespace ucclep::test {

struct UserGrid {
  unsigned blocks = 4, threads = 128;
  size_t shared_bytes = 0;
};

// args: the kernel's only parameter. Throws Failure.
void launch_user(ucclEpHandle_t handle, const std::string& kernel, const void* args, size_t bytes,
                 ucclEpStream_t stream, UserGrid grid = {});

// Before a kernel that waits for another kernel: a GPU's driver loads code when it is first asked for, and may wait for
// the kernels that run. Throws Failure.
void load_user(ucclEpHandle_t handle, const std::string& kernel);

// What a kernel of the handle's may take: SMs, of those that the rank has on its device, and a block's shared memory.
struct UserRoom {
  unsigned sms;
  size_t shared_bytes;
  bool shared;  // with another rank
  bool host;    // on the host device
};
UserRoom user_room(ucclEpHandle_t handle);

}  // namespace ucclep::test

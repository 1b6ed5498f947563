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
};

// args: the kernel's only parameter. Throws Failure.
void launch_user(ucclEpHandle_t handle, const std::string& kernel, const void* args, size_t bytes,
                 ucclEpStream_t stream, UserGrid grid = {});

}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_driver/held_allocation.hpp"

#include <fcntl.h>

#include <cerrno>

#include "base/error.hpp"

namespace ucclep::gpu {

HeldAllocation::~HeldAllocation() {
  if (held_ && driver_.api().allocation_release(value_) != success) {
    log::warn("device", "{}: a handle of memory could not be released", driver_.facts().vendor);
  }
}

Code HeldAllocation::to_descriptor(Fd& fd) const {
  int exported = -1;
  const Code code = driver_.api().allocation_export(&exported, value_, handle_posix_fd, 0);
  if (code != success) return code;
  fd = Fd(exported);
  if (fcntl(exported, F_SETFD, FD_CLOEXEC) != 0) {
    fail(ucclEpSystemError, "cannot set close-on-exec on the descriptor of GPU memory: fcntl: {}", errno_text(errno));
  }
  return success;
}

}  // namespace ucclep::gpu

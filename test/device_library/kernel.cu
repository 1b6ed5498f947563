// SPDX-License-Identifier: Apache-2.0
// A kernel of a user who knows libucclep_device by its header alone: it sends its rows, and polls for those of others.
#include <ucclep/device_library.h>

extern "C" __attribute__((global)) void exchange(uint64_t handle, uint64_t group, uint64_t op, uint64_t rows,
                                                 uint64_t experts, uint64_t out, uint32_t tokens, uint32_t bytes) {
  if (ucclep_ll_dispatch_begin_block(handle, op, bytes / 4, 3, 0, 0, 2, 0) == 0) return;
  for (uint32_t token = 0; token < tokens; ++token) {
    ucclep_ll_dispatch_send_block(op, token, rows + uint64_t{token} * bytes, 0, experts + token * 8, 4, 0);
  }
  ucclep_ll_dispatch_end_block(op, tokens);
  const int32_t count = ucclep_ll_dispatch_rows_block(op, 0);
  if (count > 0) ucclep_ll_dispatch_recv_block(op, out, 0, 0, 0, 0, 0, static_cast<uint32_t>(count));
  ucclep_signal_block(group, 0, 0);
  ucclep_wait_signal_block(group, 0, 1);
}

// SPDX-License-Identifier: Apache-2.0
#include "room_kernels.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(room_hold, ucclep::test::HoldArgs) {
  if (thread_id() == 0) {
    fetch_add_relaxed<Scope::system>(args.running, uint64_t{1});
    while (load_relaxed<Scope::system>(args.end) == 0) pause();
  }
  sync_block();
}

}  // namespace UCCLEP_SIMT_NAMESPACE

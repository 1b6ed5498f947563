// SPDX-License-Identifier: Apache-2.0
#include "host/group/group.hpp"

#include "host/boundary/guard.hpp"

namespace ucclep {

uint64_t window_bytes(const ucclEpGroup& group) {
  const WindowLayout& layout = group.device.layout;
  return layout.bytes + layout.network_bytes + layout.channel_bytes;
}

Deadline deadline_of(const ucclEpGroup& group) {
  return Deadline::after_ms(group.comm->timeout_ms(group.config.timeout_ms));
}

ucclEpGroup& usable(ucclEpGroup_t group) {
  require(group, "group");
  usable(group->comm);
  return *group;
}

}  // namespace ucclep

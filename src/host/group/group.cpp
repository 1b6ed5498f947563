// SPDX-License-Identifier: Apache-2.0
#include "host/group/group.hpp"

#include "base/best_effort.hpp"
#include "host/boundary/guard.hpp"

ucclEpGroup::~ucclEpGroup() {
  if (last_operation == nullptr) return;
  ucclep::best_effort("group", "an event was not destroyed", [this] { comm->device->event_destroy(last_operation); });
}

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

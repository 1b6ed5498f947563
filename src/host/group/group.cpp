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

ucclEpGroup& usable(ucclEpGroup_t group) {
  require(group, "group");
  usable(group->comm);
  return *group;
}

void release_retired(ucclEpGroup& group) {
  if (group.retired.empty() || group.captured) return;
  if (group.comm->device->event_synchronize(group.last_operation, 0) == ucclEpSuccess) group.retired.clear();
}

}  // namespace ucclep

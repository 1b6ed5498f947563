// SPDX-License-Identifier: Apache-2.0
#include "host/group/peer_loss.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "host/group/group.hpp"
#include "host/group/masks.hpp"
#include "host/network/network.hpp"
#include "host/network/peer_loss.hpp"

namespace ucclep {

void lose_connection(ucclEpGroup& group, int rank, const std::string& message) {
  if (!group.network->lose(rank)) return;
  mask_lost(group, rank, true, message);
  if (const auto renewal = group.network->renewal()) {
    group.comm->bootstrap->notify(rank, encode({{group.number, *renewal}, message}));
  }
}

void handle_peer_loss(ucclEpComm& comm, int rank, const std::string& text) {
  const auto lost = decode_peer_loss(text);
  if (!lost)
    return log::warn("network", "rank {} sent a report of a lost connection that cannot be decoded; it is ignored",
                     rank);
  // Under comm.groups_mutex. A group that has ended, or has other connections by now, has lost nothing.
  const auto concerned = [&]() -> const ucclEpGroup* {
    const auto one = std::ranges::find(comm.groups, lost->of.group, [](const ucclEpGroup* of) { return of->number; });
    const bool stands = one != comm.groups.end() && (*one)->mask_words && (*one)->network;
    return stands && (*one)->network->renewal() == lost->of.renewal ? *one : nullptr;
  };
  {
    const std::lock_guard lock(comm.groups_mutex);
    const ucclEpGroup* group = concerned();
    if (group == nullptr)
      return log::info("network", "{}; this rank has closed that connection already", lost->message);
    if (!group->network->lose(rank)) return;
  }
  note_masked(comm, "group", "network", rank, lost->message);
  const std::lock_guard lock(comm.groups_mutex);
  if (const ucclEpGroup* group = concerned()) publish_lost(*group, rank, true);
}

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// ucclEpMaskQuery, ucclEpMaskUpdate and ucclEpMaskClear; and what a death means to groups with masks.
#include "host/group/masks.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/best_effort.hpp"
#include "device/kernels/kernels.hpp"
#include "host/boundary/guard.hpp"
#include "host/group/group.hpp"
#include "host/group/plan.hpp"

namespace ucclep {

std::shared_ptr<MaskWords> make_mask_words(Device& device) {
  return {static_cast<MaskWords*>(device.alloc_host(sizeof(MaskWords))), [&device](MaskWords* words) {
            best_effort("group", "the memory of the masks was not freed", [&] { device.free_host(words); });
          }};
}

std::string mask_image(const ucclEpGroup& group) {
  GroupMasks masks{};
  masks.masked = 1;
  masks.evicted = &group.mask_words->evicted;
  masks.announced = group.mask_words->masked;
  RankMask active{};
  std::fill(std::begin(active.last), std::end(active.last), all_operations);
  std::string image(reinterpret_cast<const char*>(&masks), sizeof masks);
  for (uint32_t rank = 0; rank < group.shape().ranks; ++rank) {
    image.append(reinterpret_cast<const char*>(&active), sizeof active);
  }
  return image;
}

void note_masked(ucclEpComm& comm, const char* operation, const char* phase, int rank, const std::string& message) {
  comm.faults->note(ucclEpTimeout, operation, phase, rank, fmt::format("{}; rank {} is masked", message, rank));
}

// Who is lost first, then that all are to leave. What is over stays over.
void publish_lost(const ucclEpGroup& group, int rank, bool gone) {
  if (group.comm->stopped || is_complete(group.comm->errors->fatal)) return;
  Device& device = *group.comm->device;
  device.poke(&group.device.masks->of(static_cast<uint32_t>(rank)).lost, lost_bit | (gone ? gone_bit : 0));
  device.poke(&group.device.masks->leave, leave_now);
}

bool mask_dead(ucclEpComm& comm, int rank, const std::string& message) {
  const auto masks = [](const ucclEpGroup* group) { return group->device.masks != nullptr; };
  {
    const std::lock_guard lock(comm.groups_mutex);
    if (comm.groups.empty() || !std::all_of(comm.groups.begin(), comm.groups.end(), masks)) return false;
  }
  note_masked(comm, "communicator", "liveness", rank, message);
  const std::lock_guard lock(comm.groups_mutex);
  for (const ucclEpGroup* group : comm.groups) {
    if (!masks(group)) continue;  // created meanwhile: its waits have their deadline
    publish_lost(*group, rank, true);
  }
  return true;
}

void mask_lost(ucclEpGroup& group, int rank, bool gone, const std::string& message) {
  note_masked(*group.comm, "group", "network", rank, message);
  const std::lock_guard lock(group.comm->groups_mutex);
  publish_lost(group, rank, gone);
}

void stop_kernels(ucclEpComm& comm) {
  comm.device->poke(comm.abort_word, 1);
  const std::lock_guard lock(comm.groups_mutex);
  comm.stopped = true;
  for (const ucclEpGroup* group : comm.groups) {
    if (group->mask_words) comm.device->poke(&group->device.masks->leave, 1);
  }
}

bool is_masked(const ucclEpGroup& group, uint32_t rank) {
  return std::atomic_ref(group.mask_words->masked[rank]).load(std::memory_order_relaxed) != 0;
}

bool has_masked(const ucclEpGroup& group) {
  for (uint32_t rank = 0; rank < group.shape().ranks; ++rank) {
    if (is_masked(group, rank) || !group.comm->bootstrap->alive(static_cast<int>(rank))) return true;
  }
  return is_complete(group.mask_words->evicted);
}

void check_not_evicted(const ucclEpGroup& group) {
  if (!group.mask_words) return;
  const RecordSlot& slot = group.mask_words->evicted;
  if (!is_complete(slot)) return;
  const ucclEpAsyncError_t error = describe(slot.record, group.comm->rank());
  throw Error(error.code, error.text);
}

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// ucclEpMaskQuery, ucclEpMaskUpdate and ucclEpMaskClear; and what a death means to groups with masks.
#include "host/group/masks.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/best_effort.hpp"
#include "device/kernels/kernels.hpp"
#include "host/group/group.hpp"
#include "host/boundary/guard.hpp"
#include "host/group/handle.hpp"
#include "host/group/plan.hpp"

namespace ucclep {

std::shared_ptr<MaskWords> make_mask_words(Device& device) {
  return {static_cast<MaskWords*>(device.alloc_host(sizeof(MaskWords))), [&device](MaskWords* words) {
            best_effort("group", "words of the masks were not freed", [&] { device.free_host(words); });
          }};
}

std::string mask_image(const ucclEpGroup& group) {
  GroupMasks masks{};
  masks.masked = 1;
  masks.evicted = &group.mask_words->evicted;
  masks.told = group.mask_words->told;
  RankMask active{};
  std::fill(std::begin(active.last), std::end(active.last), all_operations);
  std::string image(reinterpret_cast<const char*>(&masks), sizeof masks);
  for (uint32_t rank = 0; rank < group.shape().ranks; ++rank) {
    image.append(reinterpret_cast<const char*>(&active), sizeof active);
  }
  return image;
}

void note_masked(ucclEpComm& comm, const char* operation, const char* phase, int rank, const std::string& sentence) {
  comm.faults->note(ucclEpTimeout, operation, phase, rank, fmt::format("{}; rank {} is masked", sentence, rank));
}

// Who is lost first, then that all are to leave. What is over stays over.
void tell_lost(const ucclEpGroup& group, int rank, bool gone) {
  if (group.comm->stopped || is_complete(group.comm->errors->fatal)) return;
  Device& device = *group.comm->device;
  device.poke(&group.device.masks->of(static_cast<uint32_t>(rank)).lost, lost_bit | (gone ? gone_bit : 0));
  device.poke(&group.device.masks->leave, leave_now);
}

bool mask_dead(ucclEpComm& comm, int rank, const std::string& sentence) {
  const auto masks = [](const ucclEpGroup* group) { return group->device.masks != nullptr; };
  {
    const std::lock_guard lock(comm.groups_mutex);
    if (comm.groups.empty() || !std::all_of(comm.groups.begin(), comm.groups.end(), masks)) return false;
  }
  note_masked(comm, "communicator", "liveness", rank, sentence);
  const std::lock_guard lock(comm.groups_mutex);
  for (const ucclEpGroup* group : comm.groups) {
    if (!masks(group)) continue;  // created meanwhile: its waits have their deadline
    tell_lost(*group, rank, true);
  }
  return true;
}

void mask_lost(ucclEpGroup& group, int rank, bool gone, const std::string& sentence) {
  note_masked(*group.comm, "group", "network", rank, sentence);
  const std::lock_guard lock(group.comm->groups_mutex);
  tell_lost(group, rank, gone);
}

void stop_kernels(ucclEpComm& comm) {
  comm.device->poke(comm.abort_word, 1);
  const std::lock_guard lock(comm.groups_mutex);
  comm.stopped = true;
  for (const ucclEpGroup* group : comm.groups) {
    if (group->mask_words) comm.device->poke(&group->device.masks->leave, 1);
  }
}

namespace {

bool told(const ucclEpGroup& group, uint32_t rank) {
  return std::atomic_ref(group.mask_words->told[rank]).load(std::memory_order_relaxed) != 0;
}

}  // namespace

bool has_masked(const ucclEpGroup& group) {
  for (uint32_t rank = 0; rank < group.shape().ranks; ++rank) {
    if (told(group, rank) || !group.comm->bootstrap->alive(static_cast<int>(rank))) return true;
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

namespace {

ucclEpGroup& with_masks(ucclEpGroup_t group) {
  ucclEpGroup& g = usable(group);
  if (!g.mask_words) fail(ucclEpInvalidUsage, "the group was created without config.enable_mask");
  return g;
}

void launch(ucclEpGroup& group, const Kernel& kernel, MaskArgs& args, ucclEpStream_t stream) {
  args.group = group.device;
  LaunchShape shape = plan_counting(group.comm->traits, 1);
  shape.grid = 1;
  launch(group, kernel, shape, args, stream);
}

void set_bit(MaskArgs& args, uint32_t rank) {
  args.active[rank / 64] |= uint64_t{1} << rank % 64;
}

void query(ucclEpGroup& group, int* out, ucclEpStream_t stream) {
  require(out, "device_mask");
  checked_stream(*group.comm, stream);
  MaskArgs args{};
  args.out = out;
  launch(group, kernels::mask_query, args, stream);
}

void update(ucclEpGroup& group, const int* mask, ucclEpStream_t stream) {
  require(mask, "host_mask");
  checked_stream(*group.comm, stream);
  check_not_evicted(group);
  MaskArgs args{};
  for (uint32_t rank = 0; rank < group.shape().ranks; ++rank) {
    if (mask[rank] != 0 && mask[rank] != 1) {
      fail(ucclEpInvalidArgument, "host_mask[{}] is {}, expected 0 or 1", rank, mask[rank]);
    }
    if (mask[rank] == 1 && told(group, rank)) {
      fail(ucclEpInvalidUsage, "host_mask[{}] is 1, but rank {} is masked: ucclEpMaskClear brings it back", rank, rank);
    }
    if (mask[rank] == 1) set_bit(args, rank);
  }
  const auto own = static_cast<size_t>(group.comm->rank());
  if (mask[own] == 0) fail(ucclEpInvalidArgument, "host_mask[{}] is 0: rank {} cannot mask itself", own, own);
  launch(group, kernels::mask_update, args, stream);
  if (group.comm->device->is_capturing(stream)) return;
  for (uint32_t rank = 0; rank < group.shape().ranks; ++rank) {
    if (mask[rank] == 0) std::atomic_ref(group.mask_words->told[rank]).store(1, std::memory_order_relaxed);
  }
}

void synchronize(const ucclEpGroup& group, ucclEpStream_t stream, const Deadline& deadline) {
  const ucclEpComm& comm = *group.comm;
  ucclEpResult_t result = comm.device->event_synchronize(group.last_operation, deadline.remaining_ms());
  if (result == ucclEpSuccess) result = comm.device->stream_synchronize(stream, deadline.remaining_ms());
  check_wait(comm, result, "the group's work");
}

// One rank's part in the agreement on new numbers.
struct Numbers {
  uint64_t seq[num_kinds];
};

// The ranks that live, and numbers that none of them has used.
MaskArgs agree_on_numbers(ucclEpGroup& group, const Deadline& deadline) {
  MaskArgs args{};
  Numbers mine{};
  for (uint32_t kind = 0; kind < num_kinds; ++kind) mine.seq[kind] = EndedWord::seq(group.mask_words->ended[kind]);
  for (const auto& [rank, theirs] : group.comm->bootstrap->allgather_living(mine, deadline)) {
    set_bit(args, static_cast<uint32_t>(rank));
    for (uint32_t kind = 0; kind < num_kinds; ++kind) args.next[kind] = std::max(args.next[kind], theirs.seq[kind]);
  }
  for (uint64_t& next : args.next) next += group.shape().in_flight + 1;
  return args;
}

bool has_bit(const MaskArgs& args, uint32_t rank) {
  return (args.active[rank / 64] >> rank % 64 & 1) != 0;
}

// What is still under way between the ranks never arrives, and kernels find fresh rings and words.
void renew_network(ucclEpGroup& group, const MaskArgs& args, ucclEpStream_t stream, const Deadline& deadline) {
  ucclEpComm& comm = *group.comm;
  Renewal renewal;
  for (uint32_t rank = 0; rank < group.shape().ranks; ++rank) renewal.living.push_back(has_bit(args, rank));
  for (uint32_t kind = 0; kind < num_kinds; ++kind) renewal.first[kind] = args.next[kind] - 1;
  try {
    group.network->renew(renewal);
  } catch (const Error& error) {  // the group has no network any more
    comm.faults->raise(error.code(), "ucclEpMaskClear", "network", -1, error.what());
    throw;
  }
  std::vector<char> image(sizeof(NetworkView) + NetworkTables::of(group.shape()).nodes);
  std::memcpy(image.data(), &group.network->view(), sizeof(NetworkView));
  comm.device->memcpy_async(group.device.network, image.data(), image.size(), stream);
  synchronize(group, stream, deadline);
}

// Between the two meetings nobody stores anything for the group anywhere else.
void clear(ucclEpGroup& group, ucclEpStream_t stream) {
  ucclEpComm& comm = *group.comm;
  checked_stream(comm, stream);
  refuse_in_capture(comm);
  const Deadline deadline = comm.deadline();
  synchronize(group, stream, deadline);
  comm.device->memcpy_async(group.mask_words->ended, group.device.state->ended, sizeof group.mask_words->ended, stream);
  synchronize(group, stream, deadline);
  MaskArgs args = agree_on_numbers(group, deadline);
  if (group.network) renew_network(group, args, stream, deadline);
  launch(group, kernels::mask_clear, args, stream);
  synchronize(group, stream, deadline);
  for (ucclEpHandle_t handle : group.handles) {
    handle->routing->dispatched = false;                           // numbers of before mean nothing
    if (!handle->low_latency()) handle->routing->updated = false;  // who was masked has counts of another world
    handle->routing->pending.reset();                              // a rank that was masked could not complete it
  }
  group.halves.clear();
  comm.bootstrap->barrier_living(deadline);
}

}  // namespace
}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpMaskQuery(ucclEpGroup_t group, int* device_mask, ucclEpStream_t stream) {
  return guarded("ucclEpMaskQuery", comm_of(group), [&] { query(with_masks(group), device_mask, stream); });
}

ucclEpResult_t ucclEpMaskUpdate(ucclEpGroup_t group, const int* host_mask, ucclEpStream_t stream) {
  return guarded("ucclEpMaskUpdate", comm_of(group), [&] { update(with_masks(group), host_mask, stream); });
}

ucclEpResult_t ucclEpMaskClear(ucclEpGroup_t group, ucclEpStream_t stream) {
  return guarded("ucclEpMaskClear", comm_of(group), [&] { clear(with_masks(group), stream); });
}

// SPDX-License-Identifier: Apache-2.0
// ucclEpMaskQuery, ucclEpMaskUpdate and ucclEpMaskClear.
#include "host/group/masks.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include "base/best_effort.hpp"
#include "device/kernels/kernels.hpp"
#include "host/boundary/guard.hpp"
#include "host/group/group.hpp"
#include "host/group/handle.hpp"
#include "host/group/plan.hpp"
#include "ucclep/device/layout/arguments.hpp"

namespace ucclep {
namespace {

// One rank's part in the agreement on new numbers.
struct Numbers {
  uint64_t seq[num_kinds];
};

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
    if (mask[rank] == 1 && is_masked(group, rank)) {
      fail(ucclEpInvalidUsage, "host_mask[{}] is 1, but rank {} is masked: call ucclEpMaskClear to unmask it", rank,
           rank);
    }
    if (mask[rank] == 1) args.active.add(rank);
  }
  const auto own = static_cast<size_t>(group.comm->rank());
  if (mask[own] == 0) fail(ucclEpInvalidArgument, "host_mask[{}] is 0: rank {} cannot mask itself", own, own);
  launch(group, kernels::mask_update, args, stream);
  if (group.comm->device->is_capturing(stream)) return;
  for (uint32_t rank = 0; rank < group.shape().ranks; ++rank) {
    if (mask[rank] == 0) std::atomic_ref(group.mask_words->masked[rank]).store(1, std::memory_order_relaxed);
  }
}

void synchronize(const ucclEpGroup& group, ucclEpStream_t stream, const Deadline& deadline) {
  const ucclEpComm& comm = *group.comm;
  ucclEpResult_t result = group.work.wait(deadline);
  if (result == ucclEpSuccess) result = comm.device->stream_synchronize(stream, deadline.remaining_ms());
  check_wait(comm, result, "the group's work");
}

// The ranks that live, and numbers that none of them has used.
MaskArgs agree_on_numbers(ucclEpGroup& group, const Deadline& deadline) {
  MaskArgs args{};
  Numbers mine{};
  for (uint32_t kind = 0; kind < num_kinds; ++kind) mine.seq[kind] = EndedWord::seq(group.mask_words->ended[kind]);
  for (const auto& [rank, theirs] : group.comm->bootstrap->allgather_living(mine, deadline)) {
    args.active.add(static_cast<uint32_t>(rank));
    for (uint32_t kind = 0; kind < num_kinds; ++kind) args.next[kind] = std::max(args.next[kind], theirs.seq[kind]);
  }
  for (uint64_t& next : args.next) next += group.shape().in_flight + 1;
  return args;
}

// What is still under way between the ranks never arrives, and kernels find fresh rings and words.
void renew_network(ucclEpGroup& group, const MaskArgs& args, ucclEpStream_t stream, const Deadline& deadline) {
  ucclEpComm& comm = *group.comm;
  Renewal renewal;
  for (uint32_t rank = 0; rank < group.shape().ranks; ++rank) renewal.living.push_back(args.active.has(rank));
  for (uint32_t kind = 0; kind < num_kinds; ++kind) renewal.first[kind] = args.next[kind] - 1;
  try {
    group.network->renew(renewal, deadline);
  } catch (const Error& error) {  // the group has no network any more
    comm.faults->raise(error.code(), "ucclEpMaskClear", "network", -1, error.what());
    throw;
  }
  const auto at = NetworkTables::of(group.shape());
  std::vector<char> image(sizeof(NetworkView) + at.nodes);
  std::memcpy(image.data(), &group.network->view(), sizeof(NetworkView));
  comm.device->memcpy_async(group.device.network, image.data(), image.size(), stream);
  const std::vector<char> none_stored(NetworkTables::bytes(group.shape()) - at.stored);
  comm.device->memcpy_async(reinterpret_cast<char*>(group.device.network + 1) + at.stored, none_stored.data(),
                            none_stored.size(), stream);
  synchronize(group, stream, deadline);
}

// Between the two meetings nobody stores anything for the group anywhere else.
void clear(ucclEpGroup& group, ucclEpStream_t stream) {
  ucclEpComm& comm = *group.comm;
  checked_stream(comm, stream);
  refuse_in_capture(comm);
  const Deadline deadline = deadline_of(group);
  synchronize(group, stream, deadline);
  comm.device->memcpy_async(group.mask_words->ended, group.device.state->ended, sizeof group.mask_words->ended, stream);
  synchronize(group, stream, deadline);
  MaskArgs args = agree_on_numbers(group, deadline);
  if (group.network) renew_network(group, args, stream, deadline);
  launch(group, kernels::mask_clear, args, stream);
  synchronize(group, stream, deadline);
  for (ucclEpHandle_t handle : group.handles) {
    handle->routing->dispatched = false;                             // numbers of before mean nothing
    if (!handle->low_latency()) handle->routing->updated = false;    // who was masked has counts of another world
    for (auto& pending : handle->routing->pending) pending.reset();  // a rank that was masked could not complete it
  }
  group.pending_operations.clear();
  comm.bootstrap->barrier_living(deadline);
}

}  // namespace
}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpMaskQuery(ucclEpGroup_t group, int* device_mask, ucclEpStream_t stream) {
  return guarded("ucclEpMaskQuery", group, [&] { query(with_masks(group), device_mask, stream); });
}

ucclEpResult_t ucclEpMaskUpdate(ucclEpGroup_t group, const int* host_mask, ucclEpStream_t stream) {
  return guarded("ucclEpMaskUpdate", group, [&] { update(with_masks(group), host_mask, stream); });
}

ucclEpResult_t ucclEpMaskClear(ucclEpGroup_t group, ucclEpStream_t stream) {
  return guarded("ucclEpMaskClear", group, [&] { clear(with_masks(group), stream); });
}

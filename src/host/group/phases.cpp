// SPDX-License-Identifier: Apache-2.0
// ucclEpComplete, and what may be in flight.
#include "host/group/phases.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "host/boundary/guard.hpp"

namespace ucclep {
namespace {

const char* name_of(Kind kind) {
  return kind == Kind::dispatch ? "dispatch" : "combine";
}

void erase_pending(ucclEpGroup& group, const PendingReceive& pending) {
  std::erase_if(group.pending_operations, [&](const ucclEpGroup::PendingOperation& one) {
    return one.kind == pending.kind && one.number == pending.number;
  });
}

void complete(ucclEpHandle& handle, ucclEpStream_t stream) {
  ucclEpGroup& group = *handle.group;
  checked_stream(*group.comm, stream);
  std::optional<PendingReceive>& pending = handle.routing->pending;
  if (!pending) return;
  const bool captured = group.comm->device->is_capturing(stream);
  if (captured != pending->captured) {
    fail(ucclEpInvalidUsage, "the send phase of the handle's {} was {}, but stream is {}: capture both phases or none",
         name_of(pending->kind), pending->captured ? "captured" : "not captured",
         captured ? "capturing" : "not capturing");
  }
  pending->launch(stream);
  note_capture(handle, stream);
  erase_pending(group, *pending);
  pending.reset();
}

}  // namespace

void check_nothing_pending(const ucclEpHandle& handle) {
  const std::optional<PendingReceive>& pending = handle.routing->pending;
  if (!pending) return;
  fail(ucclEpInvalidUsage, "the handle has a {} with send_only pending: call ucclEpComplete first",
       name_of(pending->kind));
}

void check_in_flight(const ucclEpHandle& handle, Kind kind) {
  check_nothing_pending(handle);
  const ucclEpGroup& group = *handle.group;
  const auto oldest = std::ranges::find(group.pending_operations, kind, &ucclEpGroup::PendingOperation::kind);
  if (oldest == group.pending_operations.end()) return;
  if (group.mask_words) {
    fail(ucclEpInvalidUsage,
         "cannot start another {}: with enable_mask only one send_only operation of a kind may be in flight; call "
         "ucclEpComplete first",
         name_of(kind));
  }
  const uint64_t since = group.called[static_cast<uint32_t>(kind)] - oldest->number + 1;
  if (since + handle.device.rounds <= group.shape().in_flight) return;
  fail(ucclEpInvalidUsage,
       "a {} with send_only is pending: of {} slots (max_in_flight) {} are in use since then, and this one may need {} "
       "(max_tokens of the handle / tokens_per_round): complete it before the next one",
       name_of(kind), group.shape().in_flight, since, handle.device.rounds);
}

Schedule schedule_of(const ucclEpHandle& handle, int send_only, bool device_initiated) {
  if (device_initiated) return Schedule::receive_phase;
  if (send_only != 0) return Schedule::send_phase;
  return handle.group->mask_words && !handle.low_latency() ? Schedule::in_phases : Schedule::whole;
}

const Kernel& repair_of(const ucclEpHandle& handle, Kind kind) {
  const bool dispatches = kind == Kind::dispatch;
  if (handle.low_latency()) return dispatches ? kernels::ll_repair_dispatch : kernels::ll_repair_combine;
  return dispatches ? kernels::ht_repair_dispatch : kernels::ht_repair_combine;
}

void note_operation(ucclEpHandle& handle, Kind kind) {
  handle.group->called[static_cast<uint32_t>(kind)] += handle.device.rounds;
}

void keep_receive_phase(ucclEpHandle& handle, Kind kind, PendingReceive::Launch launch, ucclEpStream_t stream) {
  ucclEpGroup& group = *handle.group;
  const uint64_t number = group.called[static_cast<uint32_t>(kind)] - handle.device.rounds + 1;
  handle.routing->pending = PendingReceive{kind, number, group.comm->device->is_capturing(stream), std::move(launch)};
  group.pending_operations.push_back({kind, number});
}

void forget_captured_phase(ucclEpHandle& handle) {
  std::optional<PendingReceive>& pending = handle.routing->pending;
  if (!pending || !pending->captured) return;
  erase_pending(*handle.group, *pending);
  pending.reset();
}

}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpComplete(ucclEpHandle_t handle, ucclEpStream_t stream) {
  return guarded("ucclEpComplete", handle, [&] { complete(usable(handle), stream); });
}

// SPDX-License-Identifier: Apache-2.0
// ucclEpComplete, and what may be in flight.
#include "host/group/halves.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "host/boundary/guard.hpp"

namespace ucclep {
namespace {

const char* name_of(Kind kind) {
  return kind == Kind::dispatch ? "dispatch" : "combine";
}

void erase_half(ucclEpGroup& group, const SecondHalf& half) {
  std::erase_if(group.halves,
                [&](const ucclEpGroup::Half& one) { return one.kind == half.kind && one.number == half.number; });
}

void complete(ucclEpHandle& handle, ucclEpStream_t stream) {
  ucclEpGroup& group = *handle.group;
  checked_stream(*group.comm, stream);
  std::optional<SecondHalf>& pending = handle.routing->pending;
  if (!pending) return;
  const bool captured = group.comm->device->is_capturing(stream);
  if (captured != pending->captured) {
    fail(ucclEpInvalidUsage,
         "the first half of the handle's {} was {}, and stream is {}: a capture contains both halves",
         name_of(pending->kind), pending->captured ? "captured" : "not captured",
         captured ? "capturing" : "not capturing");
  }
  pending->launch(stream);
  erase_half(group, *pending);
  pending.reset();
}

}  // namespace

void check_nothing_pending(const ucclEpHandle& handle) {
  const std::optional<SecondHalf>& pending = handle.routing->pending;
  if (!pending) return;
  fail(ucclEpInvalidUsage, "the handle has a {} with send_only pending: call ucclEpComplete first",
       name_of(pending->kind));
}

void check_in_flight(const ucclEpHandle& handle, Kind kind) {
  check_nothing_pending(handle);
  const ucclEpGroup& group = *handle.group;
  const auto oldest = std::ranges::find(group.halves, kind, &ucclEpGroup::Half::kind);
  if (oldest == group.halves.end()) return;
  if (group.mask_words) {
    fail(ucclEpInvalidUsage,
         "a {} with send_only is pending, and the group has enable_mask, with which it has one of a kind in flight: "
         "complete it before the next one",
         name_of(kind));
  }
  const uint64_t since = group.called[static_cast<uint32_t>(kind)] - oldest->number;
  if (since + 1 < group.shape().in_flight) return;
  fail(ucclEpInvalidUsage,
       "a {} with send_only is pending, the {} of max_in_flight are in flight with it: complete it before the next one",
       name_of(kind), group.shape().in_flight);
}

Course course_of(const ucclEpHandle& handle, Kind kind, int send_only, bool opened) {
  const ucclEpGroup& group = *handle.group;
  if (opened) return Course::second_half;
  // Relays of rings wait for those who pull. The kernel knows of halves that are pending.
  const bool by_rings = group.shape().ring != 0 && !handle.low_latency() && kind == Kind::dispatch;
  if (by_rings) return send_only != 0 ? Course::at_once : Course::whole;
  if (send_only != 0) return Course::first_half;
  if (group.mask_words && !handle.low_latency()) return Course::in_halves;
  const bool pending = std::ranges::find(group.halves, kind, &ucclEpGroup::Half::kind) != group.halves.end();
  return pending ? Course::in_halves : Course::whole;
}

const Kernel& repair_of(const ucclEpHandle& handle, Kind kind) {
  const bool dispatches = kind == Kind::dispatch;
  if (handle.low_latency()) return dispatches ? kernels::ll_repair_dispatch : kernels::ll_repair_combine;
  return dispatches ? kernels::ht_repair_dispatch : kernels::ht_repair_combine;
}

void note_operation(ucclEpHandle& handle, Kind kind) {
  ++handle.group->called[static_cast<uint32_t>(kind)];
}

void keep_second_half(ucclEpHandle& handle, Kind kind, SecondHalf::Launch launch, ucclEpStream_t stream) {
  ucclEpGroup& group = *handle.group;
  const uint64_t number = group.called[static_cast<uint32_t>(kind)];
  handle.routing->pending = SecondHalf{kind, number, group.comm->device->is_capturing(stream), std::move(launch)};
  group.halves.push_back({kind, number});
}

void forget_captured_half(ucclEpHandle& handle) {
  std::optional<SecondHalf>& pending = handle.routing->pending;
  if (!pending || !pending->captured) return;
  erase_half(*handle.group, *pending);
  pending.reset();
}

}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpComplete(ucclEpHandle_t handle, ucclEpStream_t stream) {
  return guarded("ucclEpComplete", comm_of(handle), [&] { complete(usable(handle), stream); });
}

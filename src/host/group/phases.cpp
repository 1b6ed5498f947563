// SPDX-License-Identifier: Apache-2.0
// ucclEpComplete, and what may be in flight.
#include "host/group/phases.hpp"

#include <algorithm>
#include <atomic>

#include "base/error.hpp"
#include "host/boundary/guard.hpp"

namespace ucclep {
std::optional<PendingReceive>& pending_of(const ucclEpHandle& handle, Kind kind) {
  return handle.routing->pending[static_cast<uint32_t>(kind)];
}

namespace {

const char* name_of(Kind kind) {
  return kind == Kind::dispatch ? "dispatch" : "combine";
}

void erase_pending(ucclEpHandle& handle, Kind kind) {
  std::optional<PendingReceive>& pending = pending_of(handle, kind);
  std::erase_if(handle.group->pending_operations, [&](const ucclEpGroup::PendingOperation& one) {
    return one.kind == kind && one.number == pending->number;
  });
  pending.reset();
}

void check_capture(const ucclEpHandle& handle, const PendingReceive& pending, ucclEpStream_t stream) {
  const bool captured = handle.group->comm->device->is_capturing(stream);
  if (captured == pending.captured) return;
  fail(ucclEpInvalidUsage, "the send phase of the handle's {} was {}, but stream is {}: capture both phases or none",
       name_of(pending.kind), pending.captured ? "captured" : "not captured", captured ? "capturing" : "not capturing");
}

// The waves up to `end`, of those that are left. Where all are one launch, it comes with the wave that says so.
void launch_waves(ucclEpHandle& handle, PendingReceive& pending, const PendingReceive::Launch& launch, uint32_t end,
                  bool comes, ucclEpStream_t stream) {
  const uint32_t parts = parts_of(handle);
  if (parts > 1) {
    launch(stream, {parts, pending.next_wave, end});
  } else if (comes) {
    launch(stream, {});
  }
  note_capture(handle, stream);
  pending.next_wave = end;
}

// Of a dispatch the first wave that is asked for receives all, if not its own; the last one ends it.
void receive_waves(ucclEpHandle& handle, PendingReceive& pending, uint32_t end, ucclEpStream_t stream) {
  launch_waves(handle, pending, pending.launch, end, pending.next_wave == 0, stream);
  if (end == handle.device.waves) erase_pending(handle, Kind::dispatch);
}

// Of a combine all rows leave with the last wave, if not each with its own.
void send_waves(ucclEpHandle& handle, PendingReceive& pending, uint32_t end, ucclEpStream_t stream) {
  launch_waves(handle, pending, pending.send, end, end == handle.device.waves, stream);
  if (end != handle.device.waves) return;
  for (ucclEpGroup::PendingOperation& one : handle.group->pending_operations) {
    if (one.kind == Kind::combine && one.number == pending.number) one.held = false;
  }
}

void complete(ucclEpHandle& handle, ucclEpStream_t stream) {
  checked_stream(*handle.group->comm, stream);
  std::optional<PendingReceive>& dispatch = pending_of(handle, Kind::dispatch);
  std::optional<PendingReceive>& combine = pending_of(handle, Kind::combine);
  if (dispatch) check_capture(handle, *dispatch, stream);
  if (combine) check_capture(handle, *combine, stream);
  const uint32_t waves = handle.device.waves;
  if (dispatch) receive_waves(handle, *dispatch, waves, stream);
  if (!combine) return;
  if (combine->send && combine->next_wave < waves) send_waves(handle, *combine, waves, stream);
  combine->launch(stream, {});
  note_capture(handle, stream);
  erase_pending(handle, Kind::combine);
}

// The end of a wave that a call names: waves below it.
uint32_t end_of_wave(const ucclEpHandle& handle, int wave) {
  const uint32_t waves = handle.device.waves;
  if (wave < 0 || static_cast<uint32_t>(wave) >= waves) {
    fail(ucclEpInvalidArgument, "wave is {}, expected 0 to {}: the handle has waves = {}", wave, waves - 1, waves);
  }
  return static_cast<uint32_t>(wave) + 1;
}

void complete_wave(ucclEpHandle& handle, int wave, ucclEpStream_t stream) {
  checked_stream(*handle.group->comm, stream);
  const uint32_t end = end_of_wave(handle, wave);
  std::optional<PendingReceive>& pending = pending_of(handle, Kind::dispatch);
  if (!pending) {
    fail(ucclEpInvalidUsage,
         "the handle has no dispatch pending: call ucclEpDispatch with send_only, then each wave at most once");
  }
  if (end <= pending->next_wave) {
    fail(ucclEpInvalidUsage,
         "wave is {}, but ucclEpCompleteWave was already called for wave {}: complete waves in ascending order", wave,
         pending->next_wave - 1);
  }
  check_capture(handle, *pending, stream);
  receive_waves(handle, *pending, end, stream);
}

void wave_done(ucclEpHandle& handle, int wave, ucclEpStream_t stream) {
  checked_stream(*handle.group->comm, stream);
  const uint32_t end = end_of_wave(handle, wave);
  std::optional<PendingReceive>& pending = pending_of(handle, Kind::combine);
  std::optional<PendingReceive>& dispatch = pending_of(handle, Kind::dispatch);
  if (!pending || !pending->send) {
    fail(ucclEpInvalidUsage,
         "the handle has no pending combine in waves: create the handle with waves, and call ucclEpCombine with "
         "send_only");
  }
  if (end != pending->next_wave + 1) {
    fail(ucclEpInvalidUsage,
         "wave is {}, but {} of {} waves are done: call ucclEpWaveDone once for each wave, in ascending order", wave,
         pending->next_wave, handle.device.waves);
  }
  if (dispatch && dispatch->next_wave < end) {
    fail(ucclEpInvalidUsage,
         "wave {} of the pending dispatch is not complete: call ucclEpCompleteWave before its rows are computed", wave);
  }
  check_capture(handle, *pending, stream);
  send_waves(handle, *pending, end, stream);
}

}  // namespace

void check_nothing_pending(const ucclEpHandle& handle) {
  for (const std::optional<PendingReceive>& pending : handle.routing->pending) {
    if (!pending) continue;
    fail(ucclEpInvalidUsage, "the handle has a {} with send_only pending: call ucclEpComplete first",
         name_of(pending->kind));
  }
}

void check_in_flight(const ucclEpHandle& handle, Kind kind) {
  const bool may_be_beside = handle.device.waves > 1 || handle.device.tile_rows != 0;
  const bool beside_dispatch = kind == Kind::combine && may_be_beside && !pending_of(handle, Kind::combine);
  if (!beside_dispatch) check_nothing_pending(handle);
  const ucclEpGroup& group = *handle.group;
  const auto oldest = std::ranges::find(group.pending_operations, kind, &ucclEpGroup::PendingOperation::kind);
  if (oldest == group.pending_operations.end()) return;
  if (group.mask_words) {
    fail(ucclEpInvalidUsage,
         "cannot start another {}: with enable_mask only one send_only operation of a kind may be in flight; call "
         "ucclEpComplete first",
         name_of(kind));
  }
  const bool held = std::ranges::any_of(
      group.pending_operations, [&](const ucclEpGroup::PendingOperation& one) { return one.kind == kind && one.held; });
  if (held) {
    fail(ucclEpInvalidUsage,
         "cannot start another {}: one in waves is pending, and this group sends its rows after the last wave; call "
         "ucclEpWaveDone for each of its waves, or ucclEpComplete, first",
         name_of(kind));
  }
  const uint64_t since = group.called[static_cast<uint32_t>(kind)] - oldest->number + 1;
  if (since + handle.device.rounds <= group.shape().in_flight) return;
  fail(ucclEpInvalidUsage,
       "cannot start another {}: it may need {} slots (max_tokens of the handle / tokens_per_round), but {} of {} "
       "(max_in_flight) have been used since the pending one with send_only; call ucclEpComplete first",
       name_of(kind), handle.device.rounds, since, group.shape().in_flight);
}

Schedule schedule_of(const ucclEpHandle& handle, Kind kind, int send_only, bool device_initiated) {
  if (device_initiated) return Schedule::receive_phase;
  const bool tiles = handle.device.tile_rows != 0;
  const bool served = tiles && (kind == Kind::dispatch || pending_of(handle, Kind::dispatch));
  if (send_only != 0) return served ? Schedule::served : Schedule::send_phase;
  const bool waves = handle.low_latency() && parts_of(handle) > 1;
  const bool in_phases = kind == Kind::dispatch && (waves || tiles);
  return in_phases || (handle.group->mask_words && !handle.low_latency()) ? Schedule::in_phases : Schedule::whole;
}

void check_one_launch(const ucclEpHandle& handle, Schedule schedule) {
  if (schedule == Schedule::send_phase || schedule == Schedule::held_back || schedule == Schedule::served) {
    fail(ucclEpInvalidArgument, "config.send_only must be 0: the kernel runs the whole operation");
  }
  if (handle.group->mask_words) {
    fail(ucclEpNotSupported,
         "a kernel cannot run the whole operation in a group with enable_mask, which repairs operations between two "
         "launches: call the operation on the host, or send and receive its rows in the kernel (ll::dispatch_begin)");
  }
  if (schedule != Schedule::whole && handle.device.tile_rows != 0) {
    fail(ucclEpNotSupported,
         "a kernel cannot run the whole operation on a handle with tiles, which a separate launch receives: call "
         "ucclEpDispatch");
  }
  if (schedule != Schedule::whole) {
    fail(ucclEpNotSupported,
         "a kernel cannot run the whole operation on a handle with {} waves, which are separate launches: use a handle "
         "with one",
         handle.device.waves);
  }
}

unsigned forms_of(const ucclEpHandle& handle, bool in_lines) {
  if (handle.group->shape().networked != 0) return 2;
  return in_lines ? 1 : 0;
}

// With masks all of an operation may have to be repaired, and received again. A later round of HT waits until an
// earlier one has been read, whatever its waves.
uint32_t parts_of(const ucclEpHandle& handle) {
  const bool one = handle.group->mask_words || (!handle.low_latency() && handle.device.rounds > 1);
  return one ? 1 : handle.device.waves;
}

void end_dispatch(ucclEpHandle& handle, ucclEpStream_t stream) {
  std::optional<PendingReceive>& pending = pending_of(handle, Kind::dispatch);
  if (!pending) return;
  check_capture(handle, *pending, stream);
  receive_waves(handle, *pending, handle.device.waves, stream);
}

void check_beside_dispatch(const ucclEpHandle& handle, ucclEpStream_t stream) {
  const std::optional<PendingReceive>& pending = pending_of(handle, Kind::dispatch);
  if (pending) check_capture(handle, *pending, stream);
}

const Kernel& repair_of(const ucclEpHandle& handle, Kind kind) {
  const bool dispatches = kind == Kind::dispatch;
  if (handle.low_latency()) return dispatches ? kernels::ll_repair_dispatch : kernels::ll_repair_combine;
  return dispatches ? kernels::ht_repair_dispatch : kernels::ht_repair_combine;
}

void note_operation(ucclEpHandle& handle, Kind kind) {
  uint64_t& called = handle.group->called[static_cast<uint32_t>(kind)];
  std::atomic_ref(called).store(called + handle.device.rounds, std::memory_order_relaxed);
}

void keep_receive_phase(ucclEpHandle& handle, Kind kind, PendingReceive::Launch launch, ucclEpStream_t stream,
                        PendingReceive::Launch send) {
  ucclEpGroup& group = *handle.group;
  const uint64_t number = group.called[static_cast<uint32_t>(kind)] - handle.device.rounds + 1;
  const bool held = send && parts_of(handle) == 1;
  pending_of(handle, kind) =
      PendingReceive{kind, number, group.comm->device->is_capturing(stream), std::move(launch), std::move(send)};
  group.pending_operations.push_back({kind, number, held});
}

void forget_captured_phase(ucclEpHandle& handle) {
  for (const Kind kind : {Kind::dispatch, Kind::combine}) {
    const std::optional<PendingReceive>& pending = pending_of(handle, kind);
    if (pending && pending->captured) erase_pending(handle, kind);
  }
}

}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpComplete(ucclEpHandle_t handle, ucclEpStream_t stream) {
  return guarded("ucclEpComplete", handle, [&] { complete(usable(handle), stream); });
}

ucclEpResult_t ucclEpCompleteWave(ucclEpHandle_t handle, int wave, ucclEpStream_t stream) {
  return guarded("ucclEpCompleteWave", handle, [&] { complete_wave(usable(handle), wave, stream); });
}

ucclEpResult_t ucclEpWaveDone(ucclEpHandle_t handle, int wave, ucclEpStream_t stream) {
  return guarded("ucclEpWaveDone", handle, [&] { wave_done(usable(handle), wave, stream); });
}

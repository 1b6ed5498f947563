// SPDX-License-Identifier: Apache-2.0
// Operations in two phases (send_only), and which may be in flight (protocol P2).
#pragma once
#include <optional>
#include <type_traits>

#include "device/kernels/kernels.hpp"
#include "host/group/handle.hpp"
#include "ucclep/device/layout/arguments.hpp"

namespace ucclep {

// The handle's operation of a kind that ucclEpComplete will end, if one is pending.
std::optional<PendingReceive>& pending_of(const ucclEpHandle& handle, Kind kind);
// Of a call that begins an operation: the handle has none pending, or a dispatch beside which this may begin, and the
// group a slot for one more.
void check_in_flight(const ucclEpHandle& handle, Kind kind);
// Of any other call that changes the handle.
void check_nothing_pending(const ucclEpHandle& handle);

// How an operation goes. in_phases: by the kernels of phases, one after the other: in HT where the group has masks,
// with which a receive phase may run again, and a send phase not; and a dispatch of LL whose peers may take it in
// waves. held_back: whole, as the receive phase: what has to be repaired before rows leave is not begun by the send
// phase. served: pending, with tiles: the phase that follows their words runs beside what the stream has next; of a
// dispatch the one that receives, of a combine beside it the one that sends. receive_phase: of a device-initiated
// operation.
enum class Schedule { whole, in_phases, send_phase, held_back, served, receive_phase };

Schedule schedule_of(const ucclEpHandle& handle, Kind kind, int send_only, bool device_initiated);
// A user's kernel can run an operation of this schedule: it is one launch of a kernel of the library.
void check_one_launch(const ucclEpHandle& handle, Schedule schedule);
// The code that can do so, as ucclEpDeviceDispatch says it. in_lines: all rows of the operation travel so.
unsigned forms_of(const ucclEpHandle& handle, bool in_lines);

// What repairs an operation (masks.hpp).
const Kernel& repair_of(const ucclEpHandle& handle, Kind kind);

struct OperationKernels {
  const Kernel &whole, &send, &receive;
};

// An operation was called. With send_only the receive phase is kept for ucclEpComplete.
void note_operation(ucclEpHandle& handle, Kind kind);
void keep_receive_phase(ucclEpHandle& handle, Kind kind, PendingReceive::Launch launch, ucclEpStream_t stream,
                        PendingReceive::Launch send = {});
// Receives the waves of a pending dispatch that are left, before a whole combine.
void end_dispatch(ucclEpHandle& handle, ucclEpStream_t stream);
// Before one with send_only, which begins beside such a dispatch: both are captured, or neither.
void check_beside_dispatch(const ucclEpHandle& handle, ucclEpStream_t stream);

// Into how many parts kernels cut an operation of the handle: its waves, or one.
uint32_t parts_of(const ucclEpHandle& handle);

// With waves the rows of a combine in phases leave by ucclEpWaveDone. Its call takes the number, so that operations of
// all ranks have one order; where kernels cut nothing, all leave with the last wave, and until then it is held. So do
// rows whose weights READY has, as on the network in LL, but there the number is taken.
template <class Args>
PendingReceive::Launch send_in_waves(ucclEpHandle& handle, const Kernel& send, const LaunchShape& shape,
                                     const Args& args, ucclEpStream_t stream) {
  ucclEpGroup& group = *handle.group;
  const uint32_t parts = parts_of(handle);
  if (parts > 1) {
    Args number = args;
    number.waves = {parts, 0, 0};
    launch(group, send, LaunchShape{1, shape.block, shape.shared_bytes}, number, stream);
  }
  bool at_end = false;
  if constexpr (std::is_same_v<Args, CombineArgs>) at_end = args.weights_back && group.shape().networked != 0;
  return [&group, kernel = send, shape, args, at_end](ucclEpStream_t on, const WaveRange& waves) {
    if (at_end && !waves.ends()) return;
    Args part = args;
    part.waves = waves;
    if (at_end) part.waves.first = 0;
    launch(group, kernel, shape, part, on);
  };
}

// With masks late weights leave first (CombineArgs::announced).
template <class Args>
void launch_all(ucclEpGroup& group, const Kernel& kernel, const Kernel& repair, const LaunchShape& shape, Args args,
                ucclEpStream_t stream) {
  if constexpr (std::is_same_v<Args, CombineArgs>) {
    if (group.mask_words && args.late_weights) {
      const bool networked = group.shape().networked != 0;
      launch(group, networked ? kernels::ll_announce_weights_network : kernels::ll_announce_weights, shape, args,
             stream);
      launch(group, kernels::ll_repair_weights, LaunchShape{1, shape.block, 0}, args, stream);
      args.announced = true;
      args.group.timeout_ns *= 2;  // before its rows leave a peer may have waited as long as it may
    }
  }
  launch_repaired(group, kernel, repair, shape, args, stream);
}

// A phase of a pending operation of tiles, beside what the stream has next, which goes on when all of its blocks run.
template <class Args>
void serve_tiles(ucclEpHandle& handle, Kind kind, const Kernel& kernel, const LaunchShape& shape, const Args& args,
                 ucclEpStream_t stream) {
  ucclEpGroup& group = *handle.group;
  TileService& service = *handle.services[static_cast<uint32_t>(kind)];
  launch(group, kernel, shape, args, service.fork(stream));
  service.ended();
  const auto* const state =
      reinterpret_cast<const TileState*>(handle.device.memory + handle.device.offsets.tiles.state);
  const uint32_t* const resident = kind == Kind::dispatch ? &state->resident : &state->sending;
  launch(group, kernels::await_tiles, LaunchShape{1, group.comm->traits.wave, 0},
         TileGateArgs{resident, shape.grid, group.device.abort_word}, stream);
}

// Such an operation, and what ends it: of a dispatch a launch that waits for nobody, of a combine its receive phase.
template <class Args>
PendingReceive::Launch launch_served(ucclEpHandle& handle, Kind kind, const OperationKernels& kernels,
                                     const LaunchShape& shape, Args args, ucclEpStream_t stream) {
  ucclEpGroup& group = *handle.group;
  const bool sends = kind == Kind::combine;
  const LaunchShape one{1, shape.block, shape.shared_bytes};
  Args first = args;
  if (sends) first.waves = tile_launch::takes_number;
  launch(group, kernels.send, sends ? one : shape, first, stream);
  args.waves = sends ? tile_launch::whole : tile_launch::receives;
  serve_tiles(handle, kind, sends ? kernels.send : kernels.receive, shape, args, stream);
  if (!sends) args.waves = tile_launch::joins;
  return [&group, kernel = kernels.receive, shape = sends ? shape : one, args,
          service = handle.services[static_cast<uint32_t>(kind)]](ucclEpStream_t on, const WaveRange&) {
    service->join(on);
    launch(group, kernel, shape, args, on);
  };
}

template <class Args>
void launch_operation(ucclEpHandle& handle, Kind kind, Schedule schedule, const OperationKernels& kernels,
                      const LaunchShape& shape, const Args& args, ucclEpStream_t stream) {
  ucclEpGroup& group = *handle.group;
  const Kernel& repair = repair_of(handle, kind);
  const Kernel& later = schedule == Schedule::held_back ? kernels.whole : kernels.receive;
  PendingReceive::Launch receive = [&group, &repair, kernel = later, shape, args](ucclEpStream_t on,
                                                                                  const WaveRange& waves) {
    Args part = args;
    part.waves = waves;
    launch_all(group, kernel, repair, shape, part, on);
  };
  const bool waves = kind == Kind::combine && handle.device.waves > 1,
             in_waves = waves && schedule == Schedule::send_phase;
  PendingReceive::Launch send;
  if (in_waves) send = send_in_waves(handle, kernels.send, shape, args, stream);
  if (waves && schedule == Schedule::held_back) send = [](ucclEpStream_t, const WaveRange&) {};
  if (schedule == Schedule::whole) launch_all(group, kernels.whole, repair, shape, args, stream);
  if (schedule == Schedule::in_phases || (schedule == Schedule::send_phase && !in_waves))
    launch(group, kernels.send, shape, args, stream);
  if (schedule == Schedule::served) receive = launch_served(handle, kind, kernels, shape, args, stream);
  if (schedule == Schedule::in_phases || schedule == Schedule::receive_phase) receive(stream, {});
  note_capture(handle, stream);
  note_operation(handle, kind);
  if (schedule == Schedule::send_phase || schedule == Schedule::held_back || schedule == Schedule::served)
    keep_receive_phase(handle, kind, std::move(receive), stream, std::move(send));
}

// The handle is about to go. What is pending keeps its slot, and no later operation gets it; a capture without
// the receive phase is of no use to anybody.
void forget_captured_phase(ucclEpHandle& handle);

}  // namespace ucclep

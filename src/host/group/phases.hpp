// SPDX-License-Identifier: Apache-2.0
// Operations in two phases (send_only), and which may be in flight (protocol P2).
#pragma once
#include <type_traits>

#include "device/kernels/kernels.hpp"
#include "host/group/handle.hpp"
#include "ucclep/device/layout/arguments.hpp"

namespace ucclep {

// Of a call that begins an operation: the handle has none pending, or a dispatch beside which this may begin, and the
// group a slot for one more.
void check_in_flight(const ucclEpHandle& handle, Kind kind, bool send_only);
// Of any other call that changes the handle.
void check_nothing_pending(const ucclEpHandle& handle);

// How an operation goes. in_phases: by the kernels of phases, one after the other: in HT where the group has masks,
// with which a receive phase may run again, and a send phase not; and a dispatch of LL whose peers may take it in
// waves. held_back: whole, as the receive phase: what has to be repaired before rows leave is not begun by the send
// phase. receive_phase: of a device-initiated operation.
enum class Schedule { whole, in_phases, send_phase, held_back, receive_phase };

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

// A dispatch of tiles that is pending is received beside what the stream has next. What ends it is a launch that waits
// for nobody.
template <class Args>
PendingReceive::Launch serve_tiles(ucclEpHandle& handle, const Kernel& kernel, const LaunchShape& shape, Args args,
                                   ucclEpStream_t stream) {
  ucclEpGroup& group = *handle.group;
  TileService& service = *handle.service;
  args.waves = tile_launch::receives;
  launch(group, kernel, shape, args, service.fork(stream));
  service.ended();
  const auto* const state =
      reinterpret_cast<const TileState*>(handle.device.memory + handle.device.offsets.tiles.state);
  launch(group, kernels::await_tiles, LaunchShape{1, group.comm->traits.wave, 0},
         TileGateArgs{&state->resident, shape.grid, group.device.abort_word}, stream);
  args.waves = tile_launch::joins;
  return [&group, kernel, shape, args, served = handle.service](ucclEpStream_t on, const WaveRange&) {
    served->join(on);
    launch(group, kernel, LaunchShape{1, shape.block, shape.shared_bytes}, args, on);
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
  if (schedule == Schedule::send_phase && kind == Kind::dispatch && handle.service)
    receive = serve_tiles(handle, kernels.receive, shape, args, stream);
  if (schedule == Schedule::in_phases || schedule == Schedule::receive_phase) receive(stream, {});
  note_capture(handle, stream);
  note_operation(handle, kind);
  if (schedule == Schedule::send_phase || schedule == Schedule::held_back)
    keep_receive_phase(handle, kind, std::move(receive), stream, std::move(send));
}

// The handle is about to go. What is pending keeps its slot, and no later operation gets it; a capture without
// the receive phase is of no use to anybody.
void forget_captured_phase(ucclEpHandle& handle);

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// Operations in two halves (send_only), and which may be in flight (protocol P2).
#pragma once
#include <type_traits>

#include "device/kernels/kernels.hpp"
#include "host/group/handle.hpp"
#include "ucclep/device/layout/arguments.hpp"

namespace ucclep {

// Of a call that begins an operation: the handle has none pending, and the group a slot for one more.
void check_in_flight(const ucclEpHandle& handle, Kind kind);
// Of any other call that changes the handle.
void check_nothing_pending(const ucclEpHandle& handle);

// How an operation goes. in_halves: by the kernels of halves, one after the other, since a half of its kind is pending,
// of which those of whole operations know nothing; or in HT since the group has masks, with which a second half may run
// again, and a first one not. held_back: whole, as the second half: what has to be repaired before rows leave is not
// begun by the first. second_half: of what a user's kernel has opened. at_once: whole, by the call of the first half,
// after which the second has nothing to do.
enum class Course { whole, in_halves, first_half, held_back, second_half, at_once };

Course course_of(const ucclEpHandle& handle, Kind kind, int send_only, bool opened);

// What repairs an operation (masks.hpp).
const Kernel& repair_of(const ucclEpHandle& handle, Kind kind);

struct OperationKernels {
  const Kernel &whole, &first, &second;
};

// An operation was called. Of a first half the second is kept for ucclEpComplete.
void note_operation(ucclEpHandle& handle, Kind kind);
void keep_second_half(ucclEpHandle& handle, Kind kind, SecondHalf::Launch launch, ucclEpStream_t stream);

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

template <class Args>
void launch_operation(ucclEpHandle& handle, Kind kind, Course course, const OperationKernels& kernels,
                      const LaunchShape& shape, const Args& args, ucclEpStream_t stream) {
  ucclEpGroup& group = *handle.group;
  const Kernel& repair = repair_of(handle, kind);
  const Kernel& later = course == Course::held_back ? kernels.whole : kernels.second;
  const auto second = [&group, &repair, kernel = later, shape, args](ucclEpStream_t on) {
    launch_all(group, kernel, repair, shape, args, on);
  };
  if (course == Course::whole || course == Course::at_once)
    launch_all(group, kernels.whole, repair, shape, args, stream);
  if (course == Course::in_halves || course == Course::first_half) launch(group, kernels.first, shape, args, stream);
  if (course == Course::in_halves || course == Course::second_half) second(stream);
  note_operation(handle, kind);
  if (course == Course::at_once) keep_second_half(handle, kind, [](ucclEpStream_t) {}, stream);
  if (course == Course::first_half || course == Course::held_back) keep_second_half(handle, kind, second, stream);
}

// The handle is about to go. What is pending keeps its slot, and no later operation gets it; a capture without a second
// half is of no use to anybody.
void forget_captured_half(ucclEpHandle& handle);

}  // namespace ucclep

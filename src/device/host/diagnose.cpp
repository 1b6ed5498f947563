// SPDX-License-Identifier: Apache-2.0
// Error messages for what kernels do wrong.
#include <fmt/format.h>

#include <bit>

#include "device/host/memory.hpp"
#include "device/host/worker.hpp"

namespace ucclep::executor {
namespace {

std::string whereabouts(const Block& block) {
  const Launch& launch = *block.launch;
  return fmt::format("device {}, kernel {}, block {} of {}", launch.device->index, launch.kernel, block.index,
                     launch.shape.grid);
}

std::string who(const Lane& lane) {
  return fmt::format("warp {} lane {}", lane.warp, lane.lane);
}

std::string describe_stuck(const Block& block, const Lane& lane) {
  const Launch& launch = *block.launch;
  std::string text = fmt::format("{} has spun for {} ms", who(lane), launch.device->watchdog_ns / 1'000'000);
  if (lane.last_poll != nullptr) text += fmt::format(" on the word at {}", name_address(lane.last_poll));
  const Warp& warp = *lane.in;
  if (warp.waiting != 0) {
    text += fmt::format("; {} lanes of its warp wait at {}", std::popcount(warp.waiting), name_of(warp.verb));
  }
  if (warp.held != 0) {
    text += fmt::format("; {} lanes of its own warp cannot run before it ends or reconverges (lockstep)",
                        std::popcount(warp.held));
  }
  const unsigned queued = launch.shape.grid - launch.next_block;
  if (queued != 0) text += fmt::format("; {} blocks are not resident", queued);
  if (block.arrived != 0) text += fmt::format("; {} threads of its block wait at sync_block", block.arrived);
  return text;
}

}  // namespace

const char* name_of(Verb verb) {
  switch (verb) {
    case Verb::none:
      return "nothing";
    case Verb::sync_warp:
      return "sync_warp";
    case Verb::shfl:
      return "shfl";
    case Verb::shfl_xor:
      return "shfl_xor";
    case Verb::shfl_up:
      return "shfl_up";
    case Verb::ballot:
      return "ballot";
    case Verb::match_any:
      return "match_any";
    case Verb::reduce_add:
      return "reduce_add";
    case Verb::reduce_max:
      return "reduce_max";
    case Verb::reduce_min:
      return "reduce_min";
    case Verb::scan_add:
      return "scan_add";
    case Verb::bulk_load:
      return "bulk_load";
    case Verb::bulk_store:
      return "bulk_store";
    case Verb::bulk_wait_loaded:
      return "bulk_wait_loaded";
    case Verb::bulk_wait_read:
      return "bulk_wait_read";
    case Verb::bulk_wait_written:
      return "bulk_wait_written";
    case Verb::smem_to_bulk:
      return "smem_to_bulk";
    case Verb::acquire_then_bulk:
      return "acquire_then_bulk";
  }
  return "an unknown verb";
}

std::string describe(const Block& block, const Complaint& complaint) {
  const std::string where = whereabouts(block) + ": ";
  const Lane& lane = *complaint.lane;
  switch (complaint.trouble) {
    case Trouble::mismatch:
      return where + fmt::format("{} calls {} while {} waits at {}, which it never passes", who(lane), complaint.does,
                                 who(*complaint.other), complaint.detail);
    case Trouble::ended_early:
      if (complaint.does != nullptr) {
        return where + fmt::format("{} calls {}, which {} never reaches: it has ended", who(lane), complaint.does,
                                   who(*complaint.other));
      }
      return where +
             fmt::format("{} ends while {} waits for it at {}", who(lane), who(*complaint.other), complaint.detail);
    case Trouble::exception:
      return where + fmt::format("{} threw an exception", who(lane));
    case Trouble::stack:
      return where + fmt::format("{} has used nearly all of its stack of {} bytes", who(lane), stack_bytes);
    case Trouble::bulk_misuse:
      return where + fmt::format("{}: {}", who(lane), complaint.detail);
    case Trouble::stuck:
      return where + describe_stuck(block, lane);
    case Trouble::none:
      break;
  }
  return where + "no trouble";
}

Complaint find_stuck(Block& block) {
  for (Warp& warp : block.warps) {
    if (warp.spinning == 0) continue;
    return {.trouble = Trouble::stuck, .lane = &warp.lanes[std::countr_zero(warp.spinning)]};
  }
  return {};
}

}  // namespace ucclep::executor

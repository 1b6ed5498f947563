// SPDX-License-Identifier: Apache-2.0
// How a kernel is launched: blocks, threads, shared memory, and the size of the pieces in which rows move.
#pragma once
#include "device/device.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep {

struct LaunchPlan {
  LaunchShape shape;
  uint32_t piece_bytes;
};

// num_sms: 0 = all that this rank has. All blocks are resident at once, one per SM.
// How rows move through a block: in bulk through its shared memory, or as lines through registers, a batch at a time.
enum class Moves { bulk, lines };
// Kernels that move rows. tables: bytes of shared memory that a block needs besides its stages.
LaunchPlan plan_rows(const DeviceTraits& traits, int num_sms, size_t tables = 0, Moves moves = Moves::bulk);

// True if a block that moves rows of HT in a group of so many ranks can have two warps.
bool has_blocks_of_two_warps(const DeviceTraits& traits, uint32_t ranks);

// Kernels that count, and nothing else.
LaunchShape plan_counting(const DeviceTraits& traits, int num_sms);
LaunchShape plan_expert_map(const DeviceTraits& traits, const GroupShape& shape);

// Ranks of a group whose tables fit into a block's shared memory.
uint32_t max_ranks_of(const DeviceTraits& traits);
// Whatever launches kernels of such a group later finds room: ucclEpNotSupported, with the limits, if not.
void check_launchable(const DeviceTraits& traits, const GroupShape& shape);

// HT's Update.
struct RoutingPlan {
  LaunchShape shape;
  uint32_t set_tokens;  // RoutingInput
};
// The shape has at most max_experts_of() experts.
RoutingPlan plan_routing(const DeviceTraits& traits, const GroupShape& shape, int num_sms, uint32_t tokens);
// Experts whose counts, with those of the ranks, fit into a block's shared memory. A multiple of the ranks.
uint32_t max_experts_of(const DeviceTraits& traits, uint32_t ranks, const NodeShape& nodes);

}  // namespace ucclep

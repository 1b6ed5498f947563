// SPDX-License-Identifier: Apache-2.0
// What LL kernels are given.
#pragma once
#include "ucclep/device/rows/deliver.hpp"

namespace ucclep {

// Where the tables of a block of an LL dispatch lie in its shared memory, behind the stages. Larger groups have no
// tables of arrivals: they read the headers where they lie, again for every row.
struct BlockTableLayout {
  uint32_t facts;           // HeaderFacts [R]; before them the token sets
  uint32_t present;         // u64 [R][B / 64 rounded up], where rows are found by headers
  uint32_t choices, told;   // u16 [R][most_choices]; u32 [R]: where those with few tokens tell what these chose
  uint32_t tokens, bases;   // u16 [R][B rounded up]; u32 [E]. Without a table the next one begins at the same place
  uint32_t scratch, bytes;  // u32 [most_warps]
  uint32_t choice_shift;    // choices of a token begin at a multiple of this power of two, so that a wave has them all

  UCCLEP_HD constexpr bool has_few(uint32_t token_count) const {
    return token_count <= most_choosers && token_count << choice_shift <= most_choices;
  }

  static constexpr uint32_t fact_bytes = 12;
  static constexpr uint32_t most_warps = HandleLayout::most_warps;  // of a block, on any device
  static constexpr uint32_t most_tokens = 8192, most_bases = 2048;
  static_assert(most_header_experts <= most_bases);  // those tables hold what headers say, too

  static constexpr BlockTableLayout of(const GroupShape& shape) {
    const uint64_t tokens = round_up(shape.ll_tokens, 64) * shape.ranks;
    BlockTableLayout at{};
    at.facts = static_cast<uint32_t>(TokenSetShape::of(shape).bytes(shape));
    at.present = at.facts + static_cast<uint32_t>(round_up(fact_bytes * shape.ranks, 16));
    at.choices = at.present + (shape.rows_by_headers() ? static_cast<uint32_t>(round_up(tokens / 8, 16)) : 0);
    at.told = at.choices + (shape.tells_choices() ? 2 * most_choices * shape.ranks : 0);
    at.tokens = at.told + (shape.tells_choices() ? static_cast<uint32_t>(round_up(4 * shape.ranks, 16)) : 0);
    at.bases = at.tokens + (tokens <= most_tokens ? 2 * static_cast<uint32_t>(tokens) : 0);
    at.scratch = at.bases + (shape.experts <= most_bases ? static_cast<uint32_t>(round_up(4 * shape.experts, 16)) : 0);
    at.bytes = at.scratch + 4 * most_warps;
    while (1u << at.choice_shift < shape.top_k) ++at.choice_shift;
    return at;
  }
};

struct LlDispatchArgs {
  ucclEpDeviceGroup group;
  HandleView handle;
  RoutingInput routing;  // of this call, or what the Update left in the handle
  Settings settings;
  RowSource source;
  View topk_weights;  // f32 [T, K] or not given
  DispatchOutput output;
  CounterViews counters;
  BlockTableLayout tables;
  uint32_t piece_bytes;
  bool opened;  // of a second half: the first was a user's kernel
};

// May an LL dispatch go by ll_dispatch_few.hpp? It gains where there is a warp for each batch that may come, should the
// peers have as many tokens as this rank. Peers need not decide alike.
UCCLEP_HD constexpr bool ll_tokens_are_few(const LlDispatchArgs& args, uint32_t blocks, uint32_t warps) {
  const GroupShape& shape = args.group.shape;
  const WireShape& wire = args.output.wire;
  const uint64_t parts = uint64_t{shape.ranks} * args.routing.tokens * (wire.batches + 1);
  return shape.tells_choices() && args.tables.has_few(args.routing.tokens) && args.output.zones == Zones::slabs &&
         (wire.scale_count == 0 || wire.batch_scale_bytes != 0) && 2 * parts <= uint64_t{blocks} * warps;
}

struct LlUpdateArgs {
  ucclEpDeviceGroup group;
  HandleView handle;
  RoutingInput routing;
};

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// Counts of a routing without a handle (ucclEpGetRoutingCounts): what DeepEP calls the dispatch layout. Local to the
// rank.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/exchange.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_FN void add_index(const View& view, int64_t column) {
  char* at = view.at(0, 0, column);
  if (view.element_bytes == 8) {
    fetch_add_relaxed<Scope::gpu>(reinterpret_cast<int64_t*>(at), int64_t{1});
  } else {
    fetch_add_relaxed<Scope::gpu>(reinterpret_cast<int32_t*>(at), int32_t{1});
  }
}

// Warp verb: the communicator has ended. A lost peer of a group with masks is no reason to stop here.
UCCLEP_FN bool is_over(const ucclEpDeviceGroup& group) {
  const bool ended = lane_id() == 0 && load_relaxed<Scope::system>(group.abort_word) == 1;
  return broadcast(ended ? 1u : 0u, 0) != 0;
}

// Block verb of a grid of one block: zeroes, then counts.
UCCLEP_FN void count_routing(const RoutingCountsArgs& args) {
  const GroupShape& shape = args.group.shape;
  const Op op{args.group, Kind::update, Operation::routing_counts, 0, 0};
  const uint32_t tokens = args.routing.tokens;
  for (uint32_t r = thread_id(); r < shape.ranks; r += block_size()) store_index(args.tokens_per_rank, 0, r, 0);
  for (uint32_t e = thread_id(); e < shape.experts; e += block_size()) store_index(args.tokens_per_expert, 0, e, 0);
  for (uint32_t e = thread_id(); e < args.logical_experts; e += block_size()) {
    store_index(args.tokens_per_logical_expert, 0, e, 0);
  }
  const ExpertIds ids = ExpertIds::of_caller(args.group);
  sync_block();
  int64_t bad = no_bad_id;
  constexpr uint32_t tokens_per_check = 256;
  uint32_t counted = 0;
  for (uint32_t token = warp_id(); token < tokens; token += block::warps()) {
    // There may be any number of tokens: an abort does not wait for them.
    if (counted++ % tokens_per_check == 0 && is_over(args.group)) break;
    if (args.is_token_in_rank.data) {
      for (uint32_t r = lane_id(); r < shape.ranks; r += wave_size) *args.is_token_in_rank.at(0, token, r) = 0;
      sync_warp();
    }
    int64_t id = -1;
    if (lane_id() < args.routing.top_k) id = load_index(args.routing.topk_idx, token, lane_id());
    const uint32_t expert = expert_of_lane(ids, token, id, &bad);
    const bool valid = expert != no_expert;
    const uint32_t rank = valid ? shape.rank_of(expert) : shape.ranks + lane_id();
    const bool sends = first_lane(match_any(rank)) == lane_id() && valid;
    if (valid && args.tokens_per_expert.data) add_index(args.tokens_per_expert, expert);
    if (valid && args.tokens_per_logical_expert.data && id < args.logical_experts) {
      add_index(args.tokens_per_logical_expert, id);
    }
    if (sends && args.tokens_per_rank.data) add_index(args.tokens_per_rank, rank);
    if (sends && args.is_token_in_rank.data) *args.is_token_in_rank.at(0, token, rank) = 1;
    sync_warp();
  }
  report_bad_id(op, bad);
}

}  // namespace UCCLEP_SIMT_NAMESPACE

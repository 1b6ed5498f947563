// SPDX-License-Identifier: Apache-2.0
// A combine of HT whose sums of nodes land in rings at home (ht_ring.hpp). Tokens are summed in order, and so their
// places at each node: a chunk is free when the last of its tokens has been summed.
#pragma once
#include "ucclep/device/ht/nodes/node_sums.hpp"
#include "ucclep/device/ht/nodes/ring.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {
namespace ring {

UCCLEP_FN uint64_t* summed_word(const Op& op, const RingShape& ring, uint32_t node, uint32_t place) {
  const WindowLayout& layout = op.group.layout;
  return word_at(op, op.me(), layout.ring.summed_of(op.group.shape.nodes, ring, op.slot, node, place));
}

// Lane verb: a sum has been read.
UCCLEP_FN bool is_summed(const Op& op, uint32_t node, uint32_t place) {
  const RingShape ring = shape_of(op);
  return load_acquire<Scope::gpu>(summed_word(op, ring, node, place)) ==
         RingTag::of_chunk(op.seq, ring.chunk_of(place));
}

// Where sums of nodes land, for relay::sum_own_node.
struct InRing {
  static UCCLEP_FN bool wait(const Op& op, const HandleMemory& memory, bool active, uint32_t node, uint32_t place) {
    for (uint64_t left = ballot(active); left != 0; left &= left - 1) {
      const Parked from = broadcast(node, first_lane(left)), at = broadcast(place, first_lane(left));
      const Parked sender = relay::nodes_of(op).relay(op.me(), from);
      const auto free = [&](const Op& now) {
        return free_sums(now, {memory.handle, now.group.shape}, from,
                         [&](uint32_t of) { return is_summed(now, from, of); });
      };
      if (!wait_landed(op, sender, at, free)) return false;
    }
    return true;
  }
  static UCCLEP_FN const char* row(const Op& op, uint32_t partial_bytes, uint32_t node, uint32_t place) {
    return relay::sum_in(op, partial_bytes, node, shape_of(op).position_of(place));
  }
};

// Warp verb: the sums of a token have been read.
UCCLEP_FN void sums_read(const Op& op, const HandleMemory& memory, uint32_t token) {
  const RingShape ring = shape_of(op);
  const Selection selection = selection_of(memory, token);
  const uint32_t place = lane_id() < memory.shape.top_k ? memory.node_places(token)[lane_id()] : no_place;
  sync_warp();  // all lanes have read
  if (place == no_place) return;
  const uint32_t node = relay::nodes_of(op).node_of(selection.rank);
  store_release<Scope::gpu>(summed_word(op, ring, node, place), RingTag::of_chunk(op.seq, ring.chunk_of(place)));
}

}  // namespace ring
}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

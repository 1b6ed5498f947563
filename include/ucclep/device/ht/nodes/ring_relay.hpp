// SPDX-License-Identifier: Apache-2.0
// Relays whose rows land in rings (ht_ring.hpp). They tell the ranks of their node of rows as they come, as ever. A
// chunk is free when all that it is for have pulled its rows; or, where the relay brings rows into room for all of
// them, when it has brought these, and then nobody has to wait for a rank to pull.
#pragma once
#include "ucclep/device/ht/nodes/ring.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {
namespace ring {

UCCLEP_FN uint64_t* relayed_word(const Op& op, const RingShape& ring, uint32_t block, uint32_t place) {
  const WindowLayout& layout = op.group.layout;
  return word_at(op, op.me(), layout.ring.relayed_of(op.group.shape.nodes, ring, op.slot, block, place));
}
// at: the relay.
UCCLEP_FN uint64_t* pulled_word(const Op& op, uint32_t at, uint32_t block, uint32_t puller, uint32_t place) {
  const uint32_t member = relay::nodes_of(op).index_of(puller);
  return word_at(op, at, op.group.layout.ring.pulled_of(op.group.shape.nodes, op.slot, block, member, place));
}

// Lane verb: nobody will read a row of a block any more where it has landed.
UCCLEP_FN bool is_read(const Op& op, const HandleMemory& memory, uint32_t block, uint32_t place) {
  const RingShape ring = shape_of(op);
  const uint64_t relayed = RingTag::of_chunk(op.seq, ring.chunk_of(place));
  if (load_acquire<Scope::gpu>(relayed_word(op, ring, block, place)) != relayed) return false;
  if (op.group.shape.ring == 0) return true;  // it lies where there is room for all
  const uint32_t count = memory.relay_counts(block)[place];
  UCCLEP_KEEP_LOOP
  for (uint32_t i = 0; i < count; ++i) {
    const RelayEntry to = memory.relay_entries(block, place)[i];
    const uint64_t pulled = load_acquire<Scope::system>(pulled_word(op, op.me(), block, to.rank, to.place));
    if (RingTag::places_in(pulled, op.seq) <= to.place) return false;
  }
  return true;
}

// Warp verb.
UCCLEP_FN bool free_rows(const Op& op, const HandleMemory& memory, const Parked& block) {
  const Parked source = relay::nodes_of(op).rank_of(block, op.me());
  FreedChunks* const state = freed_at(op, op.group.layout.ring.freed_of_block(op.group.shape.nodes, op.slot, block));
  return free_chunks(op, state, source, relay::rows_of(op, source),
                     [&](uint32_t place) { return is_read(op, memory, block, place); });
}

// Warp verb: the ranks of the node have been told of rows [first, end) of a block, which are fewer than lanes.
UCCLEP_FN void rows_relayed(const Op& op, uint32_t block, uint32_t first, uint32_t end) {
  const uint32_t place = first + lane_id();
  if (place < end) {
    const RingShape ring = shape_of(op);
    store_release<Scope::gpu>(relayed_word(op, ring, block, place), RingTag::of_chunk(op.seq, ring.chunk_of(place)));
  }
  sync_warp();
}

// Warp verb: rows [first, end) of a block, at most rows_at_once. always: they land in a ring, else perhaps.
template <bool always>
UCCLEP_FN bool relay_run(const HtDispatchArgs& args, const Op& op, Stage& stage, const Parked& block,
                         const Parked& first, const Parked& end) {
  const auto by_ring = [](const Op& now) { return always || relay::lands_in_rings(now); };
  const auto free = [&](const Op& now) {
    return !by_ring(now) || free_rows(now, {args.handle, now.group.shape}, block);
  };
  if (!wait_landed(op, relay::nodes_of(op).rank_of(block, op.me()), end - 1, free)) return false;
  const HtDispatchArgs& now = read_again(args);
  const Op here = op.with(now.group);
  relay::give_rows(here, memory_of(now), now, stage, block, first, end,
                   [&](uint32_t place) { return by_ring(here) ? shape_of(here).position_of(place) : place; });
  const Op same = op.with(read_again(args).group);
  if (by_ring(same)) rows_relayed(same, block, first, end);
  return true;
}

}  // namespace ring
}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

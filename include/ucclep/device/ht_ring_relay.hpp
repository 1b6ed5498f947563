// SPDX-License-Identifier: Apache-2.0
// Relays whose rows land in rings (ht_ring.hpp). They tell the ranks of their node of rows as they come, as ever. A
// chunk is free when all that it is for have pulled its rows; or, where the relay brings rows into room for all of
// them, when it has brought these, and then nobody has to wait for a rank to pull.
#pragma once
#include "ucclep/device/ht_ring.hpp"

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

// Warp verb: rows [first, end) of a block, of one chunk and at most rows_at_once.
UCCLEP_FN bool relay_run(const HtDispatchArgs& args, const Op& op, Stage& stage, const Parked& block,
                         const Parked& first, const Parked& end) {
  const auto free = [&](const Op& now) { return free_rows(now, {args.handle, now.group.shape}, block); };
  if (!wait_landed(op, relay::nodes_of(op).rank_of(block, op.me()), end - 1, free)) return false;
  const HtDispatchArgs& now = read_again(args);
  const Op here = op.with(now.group);
  relay::give_rows(here, memory_of(now), now, stage, block, first, end,
                   [&](uint32_t place) { return shape_of(here).position_of(place); });
  rows_relayed(op.with(read_again(args).group), block, first, end);
  return true;
}

// Verb of the relaying warps of the grid: chunks of all blocks in turn, low places first. A run ends with its chunk:
// the next one may come only when one before has been read.
UCCLEP_FN bool relay_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
  const Parked blocks = op.group.shape.nodes.blocks();
  uint32_t most = 0;
  for (uint32_t block = 0; block < blocks; ++block) {
    const uint32_t source = relay::source_of<false>(op, block);
    const uint32_t rows = source == NodeTable::no_rank ? 0 : relay::rows_of(op, source);
    most = rows > most ? rows : most;
  }
  const Parked of_chunk = shape_of(op).rows_per_chunk;
  const Parked runs = (of_chunk + relay::rows_at_once - 1) / relay::rows_at_once;
  const Parked items = shape_of(op).chunks_of(most) * runs * blocks;
  for (Parked item = worker.index; item < items; item += worker.workers) {
    const HtDispatchArgs& now = read_again(args);
    const Op here = op.with(now.group);
    const uint32_t block = item % blocks, turn = item / blocks;
    const uint32_t source = relay::source_of<false>(here, block);
    if (source == NodeTable::no_rank) continue;
    const uint32_t within = turn % runs * relay::rows_at_once, first = turn / runs * of_chunk + within;
    const uint32_t left = of_chunk - within, run = left < relay::rows_at_once ? left : relay::rows_at_once;
    const uint32_t rows = relay::rows_of(here, source), end = rows < first + run ? rows : first + run;
    if (first < rows && !relay_run(now, here, stage, block, first, end)) return false;
  }
  return true;
}

}  // namespace ring
}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// Rings in which rows from other nodes land at their relay, and sums of nodes at home, where a group has no room for
// all that may come (GroupShape::ring); and those in which they land in host memory before their relay, or home, stages
// them where there is room for all (GroupShape::relay_ring). Who sends puts rows out as ever, and waits for nobody:
// its proxy holds back what has no room yet (ChunkGather). Who reads frees chunks, in order, and says how many.
//
// No ring of two chunks or more is a deadlock. Of the rows of a source, or the sums of a node, the lowest that has not
// been read lies in the lowest chunk that is not freed, and that has room. So it comes, and it is read: rows of a
// source are relayed and pulled in order of place, and no stream of them waits for another; sums are read in order of
// tokens, and so of place. All blocks have to be resident. Who waits for a row frees what it may be waiting for, and
// nobody else does: with a ring in the way there is always somebody who waits.
//
// clang-format off
// | who releases                                   | who acquires                    | what is ordered              |
// |------------------------------------------------|---------------------------------|------------------------------|
// | relay: store_release of a relayed word (gpu),  | free_chunks: load_acquire       | the relay's reads of a row,  |
// |   after its metas are published                |                                 |   and whom it is for         |
// | who pulls: publish of a pulled word, after the | free_chunks: load_acquire       | reads of the row             |
// |   row has come to shared memory                |   (system)                      |                              |
// | home: store_release of a summed word (gpu)     | free_chunks: load_acquire       | reads of the sum             |
// | free_chunks: store_release of the turn (gpu)   | free_chunks: compare_exchange   | looks at a ring, one after   |
// |                                                |                                 |   the other                  |
// | free_chunks: order_before_push, `freed`; the   | the sender's proxy, before its  | all of these reads before    |
// |   proxy, by a word, to the sender's            |   NIC writes                    |   the next write there       |
// clang-format on
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/by_network.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/relayed_row.hpp"
#include "ucclep/device/protocol/routing.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {
namespace relay {

UCCLEP_FN NodeTable nodes_of(const Op& op) {
  return network::nodes_of(op.group);
}
using network::Addressee;
using network::own_node;

// The block of a rank whose relay in this node is this rank.
UCCLEP_FN uint32_t own_block(const Op& op, uint32_t rank) {
  return nodes_of(op).block_of(rank, own_node(op));
}

// Do rows of the operation land in rings at relays, or its sums at home (ht/nodes/ring.hpp)? And the flags of either.
// Asked anew each time: an answer that is kept takes a register.
UCCLEP_FN const RingShape& ring_of(const Op& op) {
  return op.group.network->rings[static_cast<uint32_t>(op.kind)];
}
UCCLEP_FN bool lands_in_rings(const Op& op) {
  return ring_of(op).chunks != 0;
}
UCCLEP_FN uint8_t flags_of(const Op& op) {
  return lands_in_rings(op) ? between_nodes_flag | by_ring_flag : between_nodes_flag;
}

// Rows that a rank of another node sends to this relay in a round: its READY says so, which check_header has looked at,
// or the header of the round.
UCCLEP_FN uint32_t announced_by(const Op& op, uint32_t source) {
  const Packet* header = header_packets(op, op.me(), source);
  const uint32_t packet = op.round == 0 ? HeaderLayout::rows : HeaderLayout::relayed;
  const auto rows = static_cast<uint32_t>(SentBy(op, source).value(header + packet));
  return rows < op.group.shape.ht_tokens ? rows : op.group.shape.ht_tokens;
}
UCCLEP_FN uint32_t rows_of(const Op& op, uint32_t source) {
  return uniform(announced_by(op, source));
}

}  // namespace relay

namespace ring {

constexpr uint8_t flags = between_nodes_flag | by_ring_flag;  // of rows and sums that land in rings

UCCLEP_FN RingShape shape_of(const Op& op) {
  return relay::ring_of(op);
}

// A word of a ring in the window of a rank of this node.
UCCLEP_FN uint64_t* word_at(const Op& op, uint32_t rank, uint64_t offset) {
  return reinterpret_cast<uint64_t*>(op.window(rank) + op.group.layout.rings + offset);
}
UCCLEP_FN FreedChunks* freed_at(const Op& op, uint64_t offset) {
  return reinterpret_cast<FreedChunks*>(word_at(op, op.me(), offset));
}

// Warp verb: says to the sender of a ring that its first chunks are free.
UCCLEP_FN bool push_freed(const Op& op, bool active, uint32_t sender, uint32_t chunks) {
  CommandFields command;
  command.operation = CommandOp::freed;
  command.flags = flags;
  command.row = chunks;
  return network::push_to(op, active, control_ring(op.group.network->fifo, sender), sender, command);
}

// Lane verb: there may be something to free: the first row of the next chunk has been read, and no other warp looks. It
// spares those who wait the look of a whole warp.
template <class IsRead>
UCCLEP_FN bool may_free(const Op& op, const FreedChunks* state, uint32_t rows, IsRead&& is_read) {
  const RingShape ring = shape_of(op);
  const uint32_t chunks = ring.chunks_of(rows);
  if (chunks <= ring.chunks || load_relaxed<Scope::gpu>(&state->turn) != 0) return false;  // all have room
  const uint32_t freed = RingTag::chunks_in(load_relaxed<Scope::gpu>(&state->word), op.seq);
  return freed < chunks && is_read(freed * ring.rows_per_chunk);
}

// Warp verb: frees the chunks of a ring that have been read, unless another warp is about to. rows: that the sender has
// in all. is_read(place): lane verb: nobody will read the row any more. False: the operation has failed.
template <class IsRead>
UCCLEP_FN bool free_chunks(const Op& op, FreedChunks* state, const WarpUniform& sender, const WarpUniform& rows,
                           IsRead&& is_read) {
  uint32_t mine = 0, before = 0;
  if (lane_id() == 0) {
    uint32_t nobody = 0;
    mine = may_free(op, state, rows, is_read) && compare_exchange<Scope::gpu>(&state->turn, nobody, 1u) ? 1 : 0;
    before = RingTag::chunks_in(load_relaxed<Scope::gpu>(&state->word), op.seq);
  }
  if (broadcast(mine, 0) == 0) return true;
  const WarpUniform of_chunk = shape_of(op).rows_per_chunk, chunks = shape_of(op).chunks_of(rows);
  const WarpUniform known = broadcast(before, 0);
  WarpUniform freed = known;
  for (; freed < chunks; freed += 1) {
    const uint32_t first = freed * of_chunk, most = first + of_chunk, all_rows = rows,
                   end = most < all_rows ? most : all_rows;
    bool all = true;
    for (uint32_t place = first + lane_id(); place < end && all; place += wave_size) all = is_read(place);
    if (!every_lane(all)) break;
  }
  const bool ok = freed == known || push_freed(op, lane_id() == 0, sender, freed);
  if (lane_id() == 0) {
    if (freed != known) store_relaxed<Scope::gpu>(&state->word, RingTag::of_chunk(op.seq, freed));
    store_release<Scope::gpu>(&state->turn, 0u);
  }
  sync_warp();
  return ok;
}

// Warp verb: the same of the ring in which sums of a node land at home.
template <class IsRead>
UCCLEP_FN bool free_sums(const Op& op, const HandleMemory& memory, const WarpUniform& node, IsRead&& is_read) {
  FreedChunks* const state = freed_at(op, op.group.layout.ring.freed_of_node(op.group.shape.nodes, op.slot, node));
  return free_chunks(op, state, relay::nodes_of(op).relay(op.me(), node), uniform(memory.rows_to_nodes()[node]),
                     is_read);
}

// Warp verb: waits for a row of a source, or the sum of a relay. free(op): frees what it may need.
template <class Free>
UCCLEP_FN bool wait_landed(const Op& op, const WarpUniform& source, const WarpUniform& place, Free&& free) {
  bool ok = true;
  const uint32_t peer = source;
  const bool waited = wait_peer_warp(op, Phase::rows, peer, [&] {
    const Op now = op.with(reload(op.group));
    const uint32_t here = lane_id() == 0 && network::row_is_here(now, source, place, relay::flags_of(now)) ? 1 : 0;
    if (broadcast(here, 0) != 0) return true;
    ok = free(now);
    return !ok;
  });
  sync_warp();
  return waited && ok;
}

// Grid verb, where the operation ends without a row: nobody reads what comes, so all of it may.
UCCLEP_FN bool free_all(const Op& op) {
  for (uint32_t peer = grid_warp(); peer < op.ranks(); peer += grid_warps()) {
    if (op.has_window(peer)) continue;
    const RingShape ring = shape_of(op);
    const uint32_t chunks = ring.chunks_of(relay::rows_of(op, peer));
    if (chunks > ring.chunks && !push_freed(op, lane_id() == 0, peer, chunks)) return false;
  }
  return true;
}

}  // namespace ring
}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

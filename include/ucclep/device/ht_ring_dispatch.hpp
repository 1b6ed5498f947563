// SPDX-License-Identifier: Apache-2.0
// A dispatch of HT whose rows land in rings at their relays (ht_ring.hpp). A relay tells the ranks of its node of rows
// as they come, as ever, and frees a chunk when all of them have pulled its rows.
#pragma once
#include "ucclep/device/ht_receive.hpp"
#include "ucclep/device/ht_ring.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {
namespace ring {

// ---- The relay

UCCLEP_FN uint64_t* relayed_word(const Op& op, const RingShape& ring, uint32_t block, uint32_t place) {
  const WindowLayout& layout = op.group.layout;
  return word_at(op, op.me(), layout.ring.relayed_of(op.group.shape.nodes, ring, op.slot, block, place));
}
// at: the relay.
UCCLEP_FN uint64_t* pulled_word(const Op& op, uint32_t at, uint32_t block, uint32_t puller, uint32_t place) {
  const uint32_t member = relay::nodes_of(op).index_of(puller);
  return word_at(op, at, op.group.layout.ring.pulled_of(op.group.shape.nodes, op.slot, block, member, place));
}

// Lane verb: all ranks that a row of a block is for have pulled it.
UCCLEP_FN bool is_pulled(const Op& op, const HandleMemory& memory, const RingShape& ring, uint32_t block,
                         uint32_t place) {
  const uint64_t relayed = RingTag::of_chunk(op.seq, ring.chunk_of(place));
  if (load_acquire<Scope::gpu>(relayed_word(op, ring, block, place)) != relayed) return false;
  const uint32_t count = memory.relay_counts(block)[place];
  UCCLEP_KEEP_LOOP
  for (uint32_t i = 0; i < count; ++i) {
    const RelayEntry to = memory.relay_entries(block, place)[i];
    const uint64_t pulled = load_acquire<Scope::system>(pulled_word(op, op.me(), block, to.rank, to.place));
    if (pulled < RingTag::of_place(op.seq, to.place + 1)) return false;
  }
  return true;
}

// Warp verb.
UCCLEP_FN bool free_rows(const Op& op, const HandleMemory& memory, uint32_t block) {
  const RingShape ring = shape_of(op);
  const uint32_t source = relay::nodes_of(op).rank_of(block, op.me());
  FreedChunks* const state = freed_at(op, op.group.layout.ring.freed_of_block(op.group.shape.nodes, op.slot, block));
  return free_chunks(op, state, source, relay::rows_of(op, source),
                     [&](uint32_t place) { return is_pulled(op, memory, ring, block, place); });
}

// Warp verb: rows [first, end) of a block, of one chunk and at most rows_at_once.
UCCLEP_FN bool relay_run(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                         uint32_t block, uint32_t first, uint32_t end) {
  const RingShape ring = shape_of(op);
  const uint32_t source = relay::nodes_of(op).rank_of(block, op.me());
  if (!wait_landed(op, source, end - 1, [&] { return free_rows(op, memory, block); })) return false;
  relay::give_metas(op, memory, args, stage, block, first, end,
                    [&](uint32_t place) { return ring.position_of(place); });
  if (lane_id() < end - first) {
    const uint64_t tag = RingTag::of_chunk(op.seq, ring.chunk_of(first));
    store_release<Scope::gpu>(relayed_word(op, ring, block, first + lane_id()), tag);
  }
  sync_warp();
  // What has been read of the chunks before, while there is nothing to wait for.
  return end % ring.rows_per_chunk != 0 || free_rows(op, memory, block);
}

// Verb of the relaying warps of the grid: chunks of all blocks in turn, low places first. A run ends with its chunk:
// the next one may come only when this one has been pulled.
UCCLEP_FN bool relay_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
  const Parked blocks = op.group.shape.nodes.blocks();
  uint32_t most = 0;
  for (uint32_t block = 0; block < blocks; ++block) {
    const uint32_t source = relay::source_of<false>(op, block);
    const uint32_t rows = source == NodeTable::no_rank ? 0 : relay::rows_of(op, source);
    most = rows > most ? rows : most;
  }
  const RingShape ring = shape_of(op);
  const Parked of_chunk = ring.rows_per_chunk;
  const Parked runs = (ring.rows_per_chunk + relay::rows_at_once - 1) / relay::rows_at_once;
  const Parked items = ring.chunks_of(most) * runs * blocks;
  for (Parked item = worker.index; item < items; item += worker.workers) {
    const HtDispatchArgs& now = read_again(args);
    const Op here = op.with(now.group);
    const uint32_t block = item % blocks, turn = item / blocks;
    const uint32_t chunk = turn / runs, within = turn % runs * relay::rows_at_once;
    const uint32_t source = relay::source_of<false>(here, block);
    if (source == NodeTable::no_rank) continue;
    const uint32_t rows = relay::rows_of(here, source), first = chunk * of_chunk + within;
    const uint32_t left = of_chunk - within, run = left < relay::rows_at_once ? left : relay::rows_at_once;
    const uint32_t end = rows < first + run ? rows : first + run;
    if (first < rows && !relay_run(here, memory_of(now), now, stage, block, first, end)) return false;
  }
  return true;
}

// ---- The ranks of its node

// Rows that this rank takes in, as streams: places of a source modulo `classes`, each in order. A stream has one warp;
// a warp may have several, and takes a row of whichever has one.
struct Streams {
  Sources sources;
  uint32_t classes, count;

  static UCCLEP_FN Streams of(const Op& op, const HandleMemory& memory, bool own_stay, uint32_t warps) {
    Streams s{Sources::of(op, memory, own_stay), 1, 0};
    while (s.classes < ring_streams && 2 * s.classes * s.sources.count <= warps) s.classes *= 2;
    s.count = s.classes * s.sources.count;
    return s;
  }
  UCCLEP_FN uint32_t source_of(const Op& op, uint32_t stream) const {
    return op.rotated(stream % sources.count + sources.first);
  }
  UCCLEP_FN uint32_t first_of(uint32_t stream) const { return stream / sources.count; }
};
static_assert((ring_streams & (ring_streams - 1)) == 0, "classes divide it, so that each of its words has one writer");

UCCLEP_FN uint32_t* next_places(const Op& op) {
  return reinterpret_cast<uint32_t*>(word_at(op, op.me(), op.group.layout.ring.next));
}

// Warp verb: a row that its relay, or its source in this node, has told of; then the relay hears that it is pulled.
template <class Wire>
UCCLEP_FN bool pull_one(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                        uint32_t source, uint32_t place) {
  if (!pull_row<Wire>(op, memory, args, stage, source, place)) return false;
  if (op.has_window(source)) return true;
  sync_warp();
  if (lane_id() == 0) {
    const NodeTable nodes = relay::nodes_of(op);
    const uint32_t node = relay::own_node(op);
    publish(pulled_word(op, nodes.relay(source, node), nodes.block_of(source, node), op.me(), place),
            RingTag::of_place(op.seq, place + 1));
  }
  sync_warp();
  return true;
}

// What a lane sees of a stream: whether its next row has been told of, or is still to come.
struct StreamLook {
  uint32_t source = 0, place = 0;
  bool ready = false, waits = false;

  static UCCLEP_FN StreamLook at(const Op& op, const HandleMemory& memory, const Streams& streams, uint32_t stream) {
    StreamLook look;
    if (stream >= streams.count) return look;
    look.source = streams.source_of(op, stream);
    look.place = next_places(op)[stream];
    if (look.place >= memory.rows_from()[look.source]) return look;
    const char* const meta = landed_meta(op, look.source, look.place);
    const auto* const epoch = reinterpret_cast<const uint64_t*>(meta + MetaLayout::of(op.group.shape.top_k).epoch);
    look.ready = load_acquire<Scope::system>(epoch) == op.seq;
    look.waits = !look.ready;
    return look;
  }
};

// Warp verb: the next row of each of a warp's streams that has one. pulled, waits: there was one; there are some that
// have none yet, and of which source. False: the operation has failed.
template <class Wire>
UCCLEP_FN bool pull_round(const HtDispatchArgs& args, const Op& op, Stage& stage, const Streams& streams,
                          const Worker& worker, bool& pulled, bool& waits, uint32_t& source) {
  pulled = waits = false;
  for (uint32_t base = worker.index; base < streams.count; base += worker.workers * wave_size) {
    const uint32_t stream = base + lane_id() * worker.workers;
    const StreamLook look = StreamLook::at(op, memory_of(args), streams, stream);
    for (uint64_t left = ballot(look.ready); left != 0; left &= left - 1) {
      const HtDispatchArgs& now = read_again(args);
      const uint32_t lane = first_lane(left), place = broadcast(look.place, lane);
      if (!pull_one<Wire>(op.with(now.group), memory_of(now), now, stage, broadcast(look.source, lane), place)) {
        return false;
      }
      if (lane_id() == lane) next_places(op)[stream] = place + streams.classes;
      pulled = true;
    }
    const uint64_t waiting = ballot(look.waits);
    if (waiting != 0 && !waits) source = broadcast(look.source, first_lane(waiting));
    waits = waits || waiting != 0;
  }
  return true;
}

// Verb of the pulling warps of the grid. FLAT: own rows stay where they are.
template <class Wire>
UCCLEP_FN bool pull_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
  const bool own_stay = args.output.zones == Zones::sources;
  const Streams streams = Streams::of(op, memory_of(args), own_stay, worker.workers);
  for (uint32_t stream = worker.index + lane_id() * worker.workers; stream < streams.count;
       stream += worker.workers * wave_size) {
    next_places(op)[stream] = streams.first_of(stream);
  }
  bool ok = true, more = true;
  uint32_t source = op.me();
  while (more && ok) {
    const bool waited = wait_peer_warp(op, Phase::staging, source, [&] {
      bool pulled = false, waits = false;
      ok = pull_round<Wire>(args, op, stage, streams, worker, pulled, waits, source);
      more = pulled || waits;
      return pulled || !more || !ok;
    });
    ok = ok && waited;
  }
  bulk_wait_written();
  return ok;
}

}  // namespace ring
}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

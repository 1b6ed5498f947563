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
UCCLEP_FN bool is_pulled(const Op& op, const HandleMemory& memory, uint32_t block, uint32_t place) {
  const RingShape ring = shape_of(op);
  const uint64_t relayed = RingTag::of_chunk(op.seq, ring.chunk_of(place));
  if (load_acquire<Scope::gpu>(relayed_word(op, ring, block, place)) != relayed) return false;
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
                     [&](uint32_t place) { return is_pulled(op, memory, block, place); });
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
  const Op same = op.with(read_again(args).group);
  if (lane_id() < end - first) {
    const RingShape ring = shape_of(same);
    const uint64_t tag = RingTag::of_chunk(same.seq, ring.chunk_of(first));
    store_release<Scope::gpu>(relayed_word(same, ring, block, first + lane_id()), tag);
  }
  sync_warp();
  return true;
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

// ---- The ranks of its node

// Rows that this rank takes in, as streams: places of a source modulo `classes`, each in order. A stream has one warp;
// a warp may have several, and takes a row of whichever has one.
struct Streams {
  Parked first, sources;  // whose rows: as Sources
  Parked classes;

  static UCCLEP_FN Streams of(const Op& op, bool own_stay, uint32_t warps) {
    const uint32_t first = own_stay ? 1 : 0, sources = op.ranks() - first;
    uint32_t classes = 1;
    while (classes < ring_streams && 2 * classes * sources <= warps) classes *= 2;
    return {first, sources, classes};
  }
  UCCLEP_FN uint32_t count() const { return classes * sources; }
  UCCLEP_FN uint32_t source_of(const Op& op, uint32_t stream) const { return op.rotated(stream % sources + first); }
  UCCLEP_FN uint32_t first_place(uint32_t stream) const { return stream / sources; }
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
    if (stream >= streams.count()) return look;
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

// What a warp's streams have come to.
struct Pulled {
  bool some = false, waits = false;  // a row was pulled; some have none yet
  bool ok = true;                    // false: the operation has failed
};

// Warp verb: the next row of each of a warp's streams that has one. source: of one that has none yet.
template <class Wire>
UCCLEP_FN Pulled pull_round(const HtDispatchArgs& args, const Op& op, Stage& stage, const Streams& streams,
                            const Parked& begin, const Parked& step, uint32_t& source) {
  Pulled pulled;
  for (Parked base = begin; base < streams.count(); base += step * wave_size) {
    const uint32_t stream = base + lane_id() * step;
    const HtDispatchArgs& seen = read_again(args);
    const StreamLook look = StreamLook::at(op.with(seen.group), memory_of(seen), streams, stream);
    for (uint64_t left = ballot(look.ready); left != 0; left &= left - 1) {
      const HtDispatchArgs& now = read_again(args);
      const uint32_t lane = first_lane(left), place = broadcast(look.place, lane);
      const Op here = op.with(now.group);
      if (!pull_one<Wire>(here, memory_of(now), now, stage, broadcast(look.source, lane), place)) {
        return {true, true, false};
      }
      if (lane_id() == lane) next_places(here)[stream] = place + streams.classes;
      pulled.some = true;
    }
    const uint64_t waiting = ballot(look.waits);
    if (waiting != 0 && !pulled.waits) source = broadcast(look.source, first_lane(waiting));
    pulled.waits = pulled.waits || waiting != 0;
  }
  return pulled;
}

// Verb of the pulling warps of the grid. FLAT: own rows stay where they are.
template <class Wire>
UCCLEP_FN bool pull_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
  const Streams streams = Streams::of(op, args.output.zones == Zones::sources, worker.workers);
  const Parked begin = worker.index, step = worker.workers;
  for (uint32_t stream = begin + lane_id() * step; stream < streams.count(); stream += step * wave_size) {
    next_places(op)[stream] = streams.first_place(stream);
  }
  Pulled pulled{true, true, true};
  uint32_t source = op.me();
  bool waited = true;
  while (waited && pulled.ok && (pulled.some || pulled.waits)) {
    waited = wait_peer_warp(op, Phase::staging, source, [&] {
      pulled = pull_round<Wire>(args, op, stage, streams, begin, step, source);
      return pulled.some || !pulled.waits || !pulled.ok;
    });
  }
  bulk_wait_written();
  return waited && pulled.ok;
}

}  // namespace ring
}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

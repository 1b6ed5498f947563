// SPDX-License-Identifier: Apache-2.0
// A dispatch of HT in a group with rings (ht_ring.hpp): how ranks pull rows that lie in a ring at their relay.
#pragma once
#include "ucclep/device/ht/receive.hpp"
#include "ucclep/device/ht/nodes/ring_relay.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {
namespace ring {

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

// SPDX-License-Identifier: Apache-2.0
// HT between nodes in groups with rings: what AcrossNodes has, but for how rows and sums land, and that it need not ask
// whether they do so in rings. Kernels of their own, so that those of other groups stay as they are. Such groups have
// no masks.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/nodes/network.hpp"
#include "ucclep/device/ht/nodes/relay.hpp"
#include "ucclep/device/ht/nodes/ring.hpp"
#include "ucclep/device/ht/receive.hpp"
#include "ucclep/device/ht/send.hpp"
#include "ucclep/device/ht/zero_copy.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/sum_ring.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {
namespace ring {

// A dispatch of HT in a group with rings (ht/nodes/ring.hpp): how ranks pull rows that lie in a ring at their relay.

// Rows that this rank takes in, as streams: places of a source modulo `classes`, each in order. A stream has one warp;
// a warp may have several, and takes a row of whichever has one.
struct Streams {
  WarpUniform first, sources;  // whose rows: as Sources
  WarpUniform classes;

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

// Warp verb: a row that its relay, or its source in this node, has announced; then the relay learns that it is pulled.
template <class Wire>
UCCLEP_FN bool pull_one(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                        uint32_t source, uint32_t place) {
  if (!pull_row<Wire>(op, memory, args, stage, source, place, place)) return false;
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

// What a lane sees of a stream: whether its next row has been announced, or is still to come.
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
                            const WarpUniform& begin, const WarpUniform& step, uint32_t& source) {
  Pulled pulled;
  for (WarpUniform base = begin; base < streams.count(); base += step * wave_size) {
    const uint32_t stream = base + lane_id() * step;
    const HtDispatchArgs& seen = reload(args);
    const StreamLook look = StreamLook::at(op.with(seen.group), memory_of(seen), streams, stream);
    for (uint64_t left = ballot(look.ready); left != 0; left &= left - 1) {
      const HtDispatchArgs& now = reload(args);
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
  const WarpUniform begin = worker.index, step = worker.workers;
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

// A combine of HT whose sums of nodes land in rings at home (ht/nodes/ring.hpp). Tokens are summed in order, and so
// their places at each node: a chunk is free when the last of its tokens has been summed.

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
      const WarpUniform from = broadcast(node, first_lane(left)), at = broadcast(place, first_lane(left));
      const WarpUniform sender = relay::nodes_of(op).relay(op.me(), from);
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

struct ByRings : AcrossNodes {
  static constexpr bool rings = true;

  static UCCLEP_FN bool header_stored(const Op& op, uint32_t peer, uint32_t rows, uint32_t packets) {
    return op.has_window(peer) || network::push_header(op, lane_id() == 0, peer, rows, packets, ring::flags);
  }
  static UCCLEP_FN bool push_run(const Op& op, const HtDispatchArgs& args, uint32_t begin, uint32_t end) {
    return relay::push_run<false>(op.with(args.group), memory_of(args), args, begin, end,
                                  [](const Op&) { return ring::flags; });
  }
  static UCCLEP_FN const char* staged_row(const Op& op, const WireShape& wire, uint32_t source, const char* meta) {
    if (op.has_window(source)) return OneNode::staged_row(op, wire, source, meta);
    return relay::row_at_relay(op, wire, source, meta,
                               [&](uint32_t place) { return ring::shape_of(op).position_of(place); });
  }
  static UCCLEP_FN bool relay_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
    return relay::relay_rows(args, op, worker, ring::shape_of(op).rows_per_chunk,
                             [&](const HtDispatchArgs& now, const Op& here, uint32_t block, uint32_t first,
                                 uint32_t end) { return ring::relay_run<true>(now, here, stage, block, first, end); });
  }
  static UCCLEP_FN bool pull_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
    return ring::pull_rows<ByRings>(args, op, stage, worker);
  }

  // Sums stay where they land, until they are added up.
  static UCCLEP_FN bool stage_sums(const HtCombineArgs&, const Op&, Stage&, const Worker&) { return true; }
  template <class Element>
  static UCCLEP_FN bool sum_own_node(const Op& op, const HtCombineArgs& args, uint32_t token, SumRing& ring,
                                     Terms& terms) {
    return relay::sum_own_node<Element, ring::InRing>(op, args, token, ring, terms);
  }
  static UCCLEP_FN void sums_read(const HtCombineArgs& args, const Op& op, uint32_t token) {
    ring::sums_read(op.with(args.group), memory_of(args), token);
  }
};

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// HT between ranks of which some are reached by the network only. A row crosses it once for each node that wants it
// (ht/nodes/relay.hpp), and a sum comes back from each node (ht/nodes/node_sums.hpp). A relay has room for all rows of
// all ranks whose relay it is, and where they land first in a ring it empties that itself (ht/nodes/relay.hpp): only
// proxies wait for space while an operation runs.
//
// A relay waits for what comes from the network; who pulls or adds for relays and for senders, who wait for neither.
// Rows at a relay are written over when all ranks of its node have reported to the source that they are done (P1).
//
// Floor: rows to other nodes * (head + row bytes) / NIC bandwidth, a message's flight, and the relay's way.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/nodes/node_sums.hpp"
#include "ucclep/device/ht/nodes/relay.hpp"
#include "ucclep/device/ht/nodes/ring.hpp"
#include "ucclep/device/ht/rounds.hpp"
#include "ucclep/device/ht/send.hpp"
#include "ucclep/device/ht/zero_copy.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/by_network.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/token_sets.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/sum_ring.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {
namespace staged_sums {

// Sums of nodes in groups whose windows lie in host memory (GroupShape::relay_stages): they land at home in a ring of
// few chunks, like rows at a relay (ht/nodes/relay.hpp), and home stages them in its GPU's memory, where there is room
// for all of them. So the bus carries a sum once, in order, what NICs write stays in a cache of the host, and whoever
// adds up may ask for sums in any order.
//
// Warps that stage sums wait for nothing but sums, in order of place; these wait for copy warps alone. So no ring of
// two chunks or more is a deadlock (ht/nodes/ring.hpp), whoever waits for what is staged.
//
// clang-format off
// | who releases                                   | who acquires                    | what is ordered              |
// |------------------------------------------------|---------------------------------|------------------------------|
// | stage_sum_run: publish of a sum's word, after  | wait_word, then                 | the sum before it is added   |
// |   bulk_wait_written, or sync_warp              |   acquire_then_bulk             |                              |
// | the same                                       | free_chunks: load_acquire (gpu) | the read where it landed     |
// clang-format on
//
// Floor: sums from other nodes * row bytes / bus bandwidth, beside the network's.

// What is staged of another node.
UCCLEP_FN char* sums_from(const Op& op, uint32_t node) {
  return op.mine() + op.group.layout.staged_sums_from(op.group.shape, op.slot, node, relay::own_node(op));
}
UCCLEP_FN uint64_t* word_of(const Op& op, uint32_t node, uint32_t place) {
  return reinterpret_cast<uint64_t*>(sums_from(op, node) + op.group.layout.staged_sums_words) + place;
}

// Where sums of nodes are added from, for relay::sum_own_node: where they were staged, or in a group that stages
// none where they have landed, with room for all of them.
struct Sums {
  // Lane verb.
  static UCCLEP_FN bool wait_alone(const Op& op, uint32_t node, uint32_t place) {
    const uint32_t from = relay::nodes_of(op).relay(op.me(), node);
    if (!relay::lands_in_rings(op)) return network::wait_row(op, from, place, between_nodes_flag);
    return wait_word(op, Phase::rows, from, reinterpret_cast<const char*>(word_of(op, node, place)));
  }
  static UCCLEP_FN bool wait(const Op& op, const HandleMemory&, bool active, uint32_t node, uint32_t place) {
    return !active || wait_alone(op, node, place);
  }
  static UCCLEP_FN const char* row(const Op& op, uint32_t partial_bytes, uint32_t node, uint32_t place) {
    if (!relay::lands_in_rings(op)) return relay::sum_in(op, partial_bytes, node, place);
    return sums_from(op, node) + uint64_t{place} * partial_bytes;
  }
};

UCCLEP_FN uint32_t sum_bytes(const HtCombineArgs& args) {
  return args.partial_bytes;
}

// Warp verb: sums [first, end) of a node, at most batch_rows, once they have landed. copy(to, from, bytes): warp
// verb; written(): after it a publish of any lane covers what was copied.
template <class Args, class Copy, class Written>
UCCLEP_FN bool stage_sum_run(const Args& args, const Op& op, const WarpUniform& node, const WarpUniform& first,
                             const WarpUniform& end, Copy&& copy, Written&& written) {
  const auto free = [&](const Op& now) {
    const auto is_staged = [&](uint32_t place) {
      return load_acquire<Scope::gpu>(word_of(now, node, place)) == now.seq;
    };
    return ring::free_sums(now, memory_of(args), node, is_staged);
  };
  if (!ring::wait_landed(op, relay::nodes_of(op).relay(op.me(), node), end - 1, free)) return false;
  acquire_then_bulk();
  for (WarpUniform place = first; place < end; place += 1) {
    const Args& now = reload(args);
    const Op here = op.with(now.group);
    const uint32_t bytes = uniform(sum_bytes(now)), at = place;
    copy(sums_from(here, node) + uint64_t{at} * bytes,
         relay::sum_in(here, bytes, node, ring::shape_of(here).position_of(at)), bytes);
  }
  written();
  const uint32_t place = first + lane_id();
  if (place < end) publish(word_of(op, node, place), op.seq);
  sync_warp();
  return true;
}

// The same through shared memory.
UCCLEP_FN bool stage_sum_run_bulk(const HtCombineArgs& args, const Op& op, Stage& stage, const WarpUniform& node,
                                  const WarpUniform& first, const WarpUniform& end) {
  const auto copy = [&](char* to, const char* from, uint32_t bytes) {
    stage.fetch(from, bytes);
    stage.drain(from, bytes, [&](const char* piece, uint64_t at, uint32_t count) {
      bulk_store(lane_id() == 0, to + at, piece, count);
    });
  };
  return stage_sum_run(args, op, node, first, end, copy, [] { bulk_wait_written(); });
}

// Verb of the staging warps of the grid: other nodes in turn, low places first, as they come. Nothing in a group that
// stages none. run(args, op, node, first, end) as stage_sum_run.
template <class Args, class Run>
UCCLEP_FN bool stage_sums(const Args& args, const Op& op, const Worker& worker, Run&& run) {
  if (!relay::lands_in_rings(op)) return true;
  const uint32_t nodes = op.group.shape.nodes.nodes;
  const auto rows_of = [](const Args& now, const Op& here, uint32_t node) {
    return node == relay::own_node(here) ? 0 : uniform(memory_of(now).rows_to_nodes()[node]);
  };
  return relay::in_runs(args, op, worker, nodes, relay::rows_together(op), rows_of, run);
}

}  // namespace staged_sums

// ---- What the waits of later rounds are between nodes (ht/rounds.hpp).

// Warp verb.
UCCLEP_COLD_FN bool wait_slot_by_network(Op op) {
  bool ok = true;
  for (uint32_t p = lane_id(); p < op.ranks() && ok; p += wave_size) {
    ok = wait_peer(op, Phase::consumed, p,
                   [&] { return ByNetwork::Consumed{}(op, p) + op.group.shape.in_flight >= op.seq; });
  }
  ok = every_lane(ok);
  acquire_then_bulk();
  return ok;
}

// Warp verb: all of the round has come and been read. Peers in other nodes learn it from their proxies.
UCCLEP_COLD_FN bool publish_round_by_network(Op op) {
  bool ok = true;
  for (uint32_t source = lane_id(); source < op.ranks() && ok; source += wave_size) {
    if (!op.has_window(source)) ok = network::wait_all(op, source);
  }
  if (!every_lane(ok)) return false;
  sync_warp();
  publish_to_peers(op);
  for (uint32_t first = 0; first < op.ranks() && ok; first += wave_size) {
    const uint32_t peer = first + lane_id();
    const bool remote = peer < op.ranks() && !op.has_window(peer);
    CommandFields command;
    command.operation = CommandOp::consumed;
    ok = network::push_to(op, remote, control_ring(op.group.network->fifo, peer), peer, command);
  }
  return ok;
}

// What OneNode has (ht/send.hpp), and what only network kernels ask for.
struct AcrossNodes : ByNetwork {
  static constexpr bool masks = false;
  static UCCLEP_FN uint32_t rounds(const HandleMemory& memory) { return routed_rounds(memory); }

  // ---- Update

  // Lane verb.
  static UCCLEP_FN uint32_t count_before(const TokenSets<HtUpdateArgs>& sets, uint32_t column, uint32_t token) {
    const ucclEpDeviceGroup& group = sets.args.group;
    const uint32_t first_node = group.shape.ranks + group.shape.experts;
    if (column < first_node) return sets.count_before(column, token);
    return network::count_before(sets, network::nodes_of(group), column - first_node, token);
  }
  static UCCLEP_FN uint32_t node_of(const ucclEpDeviceGroup& group, uint32_t rank) {
    return network::nodes_of(group).node_of(rank);
  }
  static UCCLEP_FN bool has_header_for(const Op&, uint32_t) { return true; }
  static UCCLEP_FN const uint32_t* barrier_abort(const Op& op) { return op.group.abort_word; }
  static UCCLEP_FN void end_update(const Op& op, bool ok) { ByNetwork::end(op, ok); }

  // ---- Headers

  static UCCLEP_FN bool header_stored(const Op& op, uint32_t peer, uint32_t rows, uint32_t packets) {
    return op.has_window(peer) || network::push_header(op, lane_id() == 0, peer, rows, packets, relay::flags_of(op));
  }
  // Of the round: a source announces to its relays the rows for their nodes, a relay to homes the sums of its node.
  static UCCLEP_FN uint32_t announced(const Op& op, const HandleMemory& memory, uint32_t peer) {
    const NodeTable nodes = relay::nodes_of(op);
    if (op.has_window(peer) || memory.state()->updated != memory.handle.stamp) return 0;
    if (op.kind == Kind::dispatch) {
      const uint32_t node = nodes.node_of(peer);
      if (nodes.relay(op.me(), node) != peer) return 0;
      const PlaceRange sent = sent_in_round(op, memory, op.ranks() + node);
      return sent.end - sent.begin;
    }
    const uint32_t node = relay::own_node(op);
    return nodes.relay(peer, node) == op.me() ? memory.relayed(op.round)[nodes.block_of(peer, node)] : 0;
  }
  // Grid verb, where the operation ends without a row. row_bytes: of what was announced.
  static UCCLEP_FN void give_up(const Op& op, const HandleMemory& memory, HeaderResult ready, uint64_t row_bytes) {
    if (ready != HeaderResult::differs || (relay::lands_in_rings(op) && !ring::free_all(op))) return;
    push_announced(op, memory, row_bytes);
  }
  // Grid verb: as it is.
  static UCCLEP_FN void push_announced(const Op& op, const HandleMemory& memory, uint64_t row_bytes) {
    for (uint32_t peer = grid_warp(); peer < op.ranks(); peer += grid_warps()) {
      const uint32_t rows = uniform(announced(op, memory, peer)), bytes = static_cast<uint32_t>(row_bytes);
      if (!network::push_as_they_are(op, peer, rows, bytes, relay::flags_of(op))) return;
    }
  }

  // ---- Later rounds. Each has a header for every rank of other nodes: of a dispatch with the places that come, of a
  // combine without a byte. Proxies learn by it how many rows there are.

  static UCCLEP_FN bool slot_free(const Op& op) { return wait_slot_by_network(op); }
  static UCCLEP_FN bool send_places(const Op& op, const HandleMemory& memory) {
    ht::send_places(op, memory, [&](uint32_t peer) { return header_for(op, peer); });
    return push_round(op, memory, HeaderLayout::min_packets);
  }
  // Warp verb: what is announced to ranks of other nodes. packets: of the header.
  static UCCLEP_FN bool push_round(const Op& op, const HandleMemory& memory, uint32_t packets) {
    bool ok = true;
    for (uint32_t first = 0; first < op.ranks() && ok; first += wave_size) {
      const uint32_t i = first + lane_id(), peer = op.rotated(i < op.ranks() ? i : 0);
      const bool remote = i < op.ranks() && !op.has_window(peer);
      const uint32_t rows = remote ? announced(op, memory, peer) : 0;
      if (remote && packets != 0) store_packet(header_for(op, peer) + HeaderLayout::relayed, rows, op.seq);
      ok = network::push_header(op, remote, peer, rows, packets, relay::flags_of(op));
    }
    return ok;
  }
  // Warp verb: headers of a later round from other nodes. Who needs them copies them to where those of peers land, as
  // others may do at the same time.
  static UCCLEP_FN bool round_in(const Op& op) {
    if (op.round == 0) return true;
    const WindowLayout& layout = op.group.layout;
    bool ok = true;
    for (uint32_t source = lane_id(); source < op.ranks() && ok; source += wave_size) {
      if (op.has_window(source)) continue;
      ok = network::wait_header(op, source);
      if (!ok) break;
      const auto* const from = reinterpret_cast<const Packet*>(
          network::mine(op) + layout.in_header(op.group.shape, op.kind, op.slot, source));
      Packet* const to = header_packets(op, op.me(), source);
      for (uint32_t i = HeaderLayout::round; i <= HeaderLayout::relayed; ++i) {
        store_packet(to + i, load_packet(from + i).value, op.seq);
      }
    }
    ok = every_lane(ok);
    sync_warp();
    return ok;
  }
  static UCCLEP_FN bool places_come(const Op& op, const HandleMemory& memory, uint32_t rounds, bool keeps) {
    return (rounds == 1 || round_in(op)) && ht::places_come(op, memory, rounds, keeps);
  }
  static UCCLEP_FN bool publish_round(const Op& op) { return publish_round_by_network(op); }

  // ---- Dispatch and combine

  static UCCLEP_FN bool reaches(const Op& op, uint32_t rank) { return op.has_window(rank); }
  static UCCLEP_FN bool is_term(const Op& op, uint32_t rank) { return op.has_window(rank); }
  // Those of the last rounds, of which nobody has waited for all.
  static UCCLEP_FN bool all_in(const Op& op, uint32_t rounds) {
    const uint32_t slots = op.group.shape.in_flight;
    bool ok = true;
    for (uint32_t r = rounds > slots ? rounds - slots : 0; r < rounds; ++r)
      ok = ByNetwork::all_in(op.in_round(r)) && ok;
    return ok;
  }
  // What has been read of the last of several rounds peers do not know when the next operation begins.
  static UCCLEP_FN void end(const Op& op, bool ok, bool, uint32_t rounds) {
    if (!end_operation(op, every_thread(ok) && all_in(op, rounds), true)) return;
    if (rounds > 1) publish_consumed(op, op.seq);
    send_consumed(op, op.seq);
  }

  using RemoteRow = relay::RemoteRow<false>;
  static UCCLEP_FN bool push_run(const Op& op, const HtDispatchArgs& args, uint32_t begin, uint32_t end) {
    return relay::push_run<false>(op.with(args.group), memory_of(args), args, begin, end, relay::flags_of);
  }
  static UCCLEP_FN const char* staged_row(const Op& op, const WireShape& wire, uint32_t source, const char* meta) {
    return op.has_window(source) ? OneNode::staged_row(op, wire, source, meta)
                                 : relay::row_at_relay(op, wire, source, meta);
  }
  static UCCLEP_FN uint64_t* run_words(const Op& op, uint32_t home) {
    return op.has_window(home) ? OneNode::run_words(op, home) : relay::run_words_at(op, home);
  }
  static UCCLEP_FN uint32_t* pool_places(const Op& op, uint32_t home) {
    return op.has_window(home) ? OneNode::pool_places(op, home) : relay::pool_places_at(op, home);
  }

  // ---- What a relay does, and what becomes of sums of nodes
  static UCCLEP_FN void note_rows(const Op& op, const HandleMemory& memory, bool good) {
    relay::note_rows(op, memory, good);
  }
  template <bool masked = false>
  static UCCLEP_FN bool relay_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
    if (op.round != 0) {
      if (!slot_free(op) || !round_in(op)) return false;
      const uint32_t blocks = op.group.shape.nodes.blocks();
      for (uint32_t block = lane_id(); worker.index == 0 && block < blocks; block += wave_size) {
        relay::note_rows(op, memory_of(args), block);
      }
    }
    return relay::relay_rows(
        args, op, worker, relay::rows_together(op),
        [&](const HtDispatchArgs& now, const Op& here, uint32_t block, uint32_t first, uint32_t end) {
          if constexpr (masked) return relay::relay_run(here, memory_of(now), now, stage, block, first, end);
          return ring::relay_run<false>(now, here, stage, block, first, end);
        });
  }
  // Warp verb: the first of a later round's warps says how many sums come in it.
  static UCCLEP_FN bool begin_sums(const HtCombineArgs& args, const Op& op, const Worker& worker) {
    if (op.round == 0) return true;
    return slot_free(op) && (worker.index != 0 || push_round(op, memory_of(args), 0));
  }
  template <class Element>
  static UCCLEP_FN bool send_sums(const HtCombineArgs& args, const Op& op, const Stage& stage, SumRing& ring,
                                  const Worker& worker) {
    if (!begin_sums(args, op, worker)) return false;
    return relay::send_sums<Element, false>(args, op, stage, ring, worker);
  }
  static UCCLEP_FN bool stage_sums(const HtCombineArgs& args, const Op& op, Stage& stage, const Worker& worker) {
    return staged_sums::stage_sums(
        args, op, worker, [&](const HtCombineArgs& now, const Op& here, uint32_t node, uint32_t first, uint32_t end) {
          return staged_sums::stage_sum_run_bulk(now, here, stage, node, first, end);
        });
  }
  template <class Element>
  static UCCLEP_FN bool sum_own_node(const Op& op, const HtCombineArgs& args, uint32_t token, SumRing& ring,
                                     Terms& terms) {
    return relay::sum_own_node<Element, staged_sums::Sums>(op, args, token, ring, terms);
  }
};

// The same in kernels of groups that may have masks. In those that do every rank is a node of its own
// (layout/nodes.hpp), and so its own relay: a relay that is lost takes no rows of others along. Rows cross the network
// once for each rank, and sums are those of one domain. What waits for others is left to the receive phase, which may
// run again.
struct AcrossNodesMasked : AcrossNodes {
  static constexpr bool masks = true;

  static UCCLEP_FN const uint32_t* barrier_abort(const Op& op) {
    return op.group.masks != nullptr ? &op.group.masks->never : op.group.abort_word;
  }
  // Headers are put out once.
  static UCCLEP_FN bool has_header_for(const Op& op, uint32_t peer) {
    return op.has_window(peer) || (op.group.again == 0 && !is_masked(op.group, peer));
  }
  static UCCLEP_FN bool header_stored(const Op& op, uint32_t peer, uint32_t rows, uint32_t packets) {
    return is_masked(op.group, peer) || AcrossNodes::header_stored(op, peer, rows, packets);
  }
  static UCCLEP_FN bool reaches(const Op& op, uint32_t rank) {
    return op.has_window(rank) && !is_masked(op.group, rank);
  }
  using RemoteRow = relay::RemoteRow<true>;
  static UCCLEP_FN bool push_run(const Op& op, const HtDispatchArgs& args, uint32_t begin, uint32_t end) {
    return relay::push_run<true>(op.with(args.group), memory_of(args), args, begin, end, relay::flags_of);
  }

  static UCCLEP_FN void note_rows(const Op& op, const HandleMemory& memory, bool good) {
    if (op.group.masks == nullptr) AcrossNodes::note_rows(op, memory, good);
  }
  static UCCLEP_FN bool relay_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
    return op.group.masks != nullptr || AcrossNodes::relay_rows(args, op, stage, worker);
  }
  // Of a receive phase, in a group with masks.
  static UCCLEP_FN void note_rows_late(const Op& op, const HandleMemory& memory, bool good) {
    relay::note_rows(op, memory, good);
  }
  static UCCLEP_FN bool relay_rows_late(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
    return AcrossNodes::relay_rows<true>(args, op, stage, worker);
  }

  static UCCLEP_FN bool is_term(const Op& op, uint32_t rank) {
    return op.group.masks != nullptr ? !is_masked(op.group, rank) : op.has_window(rank);
  }
  // Lane verb: a partial row of a rank that is a term and has no window.
  static UCCLEP_FN bool partial_in(const Op& op, uint32_t partial_bytes, uint32_t rank, uint32_t place,
                                   const char*& row) {
    row = relay::sum_in(op, partial_bytes, relay::nodes_of(op).node_of(rank), place);
    return network::wait_row(op, rank, place, between_nodes_flag);
  }
  template <class Element>
  static UCCLEP_FN bool send_sums(const HtCombineArgs& args, const Op& op, const Stage& stage, SumRing& ring,
                                  const Worker& worker) {
    return begin_sums(args, op, worker) && relay::send_sums<Element, true>(args, op, stage, ring, worker);
  }
};

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

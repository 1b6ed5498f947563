// SPDX-License-Identifier: Apache-2.0
// HT between ranks of which some are reached by the network only. A row crosses it once for each node that wants it
// (ht/nodes/relay.hpp), and a sum comes back from each node (ht/nodes/node_sums.hpp). A relay has room for the rows
// that a round has of all ranks whose relay it is, and a home for its sums.
//
// A relay waits for what comes from the network; who pulls or adds for relays and for senders, who wait for neither.
// Rows at a relay are written over when all ranks of its node have reported to the source that they are done (P1).
//
// Floor: rows to other nodes * (head + row bytes) / NIC bandwidth, a message's flight, and the relay's way.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/nodes/node_sums.hpp"
#include "ucclep/device/ht/nodes/relay.hpp"
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
#include "ucclep/device/protocol/relayed_row.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/token_sets.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/sum_ring.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

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
  static constexpr bool masks = false, tiles = false;
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
    return op.has_window(peer) || network::push_header(op, lane_id() == 0, peer, rows, packets, between_nodes_flag);
  }
  // Not the packet behind: later rounds in the slot have one there, for which nobody waits in the first.
  static UCCLEP_FN bool ready_in(const Op& op, bool by, const View& wait_ns) {
    return headers_in(op, by, wait_ns, HeaderLayout::relayed);
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
    if (ready != HeaderResult::differs) return;
    for (uint32_t peer = grid_warp(); peer < op.ranks(); peer += grid_warps()) {
      const uint32_t rows = uniform(announced(op, memory, peer)), bytes = static_cast<uint32_t>(row_bytes);
      if (!network::push_as_they_are(op, peer, rows, bytes, between_nodes_flag)) return;
    }
  }

  // ---- Later rounds. Each has a header for every rank of other nodes: of a
  // dispatch with the places that come, of a combine without a byte. Proxies learn by it how many rows there are.

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
      ok = network::push_header(op, remote, peer, rows, packets, between_nodes_flag);
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
  static UCCLEP_FN bool part_read(const Op& op, uint32_t* counts, uint32_t rounds, const RoundParts& parts) {
    return ht::part_read<AcrossNodes>(op, counts, rounds, parts);
  }

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
    return relay::push_run<false>(op.with(args.group), memory_of(args), args, begin, end);
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
  // notes: this warp does so for combine.
  static UCCLEP_FN bool begin_to_relay(const Op& op, const HandleMemory& memory, bool notes) {
    if (!slot_free(op) || !round_in(op)) return false;
    const uint32_t blocks = op.group.shape.nodes.blocks();
    for (uint32_t block = lane_id(); notes && block < blocks; block += wave_size) relay::note_rows(op, memory, block);
    return true;
  }
  static UCCLEP_FN bool relay_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
    if (op.round != 0 && !begin_to_relay(op, memory_of(args), worker.index == 0)) return false;
    return relay::relay_rows(
        args, op, worker, [&](const HtDispatchArgs& now, const Op& here, uint32_t block, uint32_t first, uint32_t end) {
          return relay::relay_run(here, memory_of(now), now, stage, block, first, end);
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
  template <class Element>
  static UCCLEP_FN bool sum_own_node(const Op& op, const HtCombineArgs& args, uint32_t token, SumRing& ring,
                                     Terms& terms) {
    // The sum of a later round lies where that of an earlier one was read. A warp comes here when other warps have
    // waited for that, but turns order nothing, and for rows of this rank alone nobody waits. So each acquires it.
    if (op.round >= op.group.shape.in_flight && !slot_free(op)) return false;
    return relay::sum_own_node<Element>(op, args, token, ring, terms);
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
    return relay::push_run<true>(op.with(args.group), memory_of(args), args, begin, end);
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
    return AcrossNodes::relay_rows(args, op, stage, worker);
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

// SPDX-License-Identifier: Apache-2.0
// What device-initiated operations of HT do between domains. A row that other nodes want goes to each of them
// once, by whoever sends it (RemoteRows). At the end of a dispatch every block relays what other nodes have sent to
// this one (relay_dispatch), at the end of a combine it adds up what goes to homes elsewhere (relay_combine); so these
// wait for the sends of other ranks, and for nothing that somebody receives. Home adds up its own node and then the
// nodes (NodeSums).
//
// With masks every rank is a node of its own, and nobody relays for another: a rank takes the rows of a dispatch where
// they have landed, and who sends a partial row puts it out for its home. The ends of both wait for nobody.
//
// clang-format off
// | who writes                                  | who reads                               | ordered by                     |
// |---------------------------------------------|-----------------------------------------|--------------------------------|
// | dispatch_send: a row for a node             | its NIC, at the command of the chunk's  | push_stored_alone, after the   |
// |                                             |   last row                              |   scope's sync                 |
// | a source's NIC: rows, where they land       | the relay, and for pulling its node     | wait_row, then publish of the  |
// |                                             |                                         |   meta's epoch                 |
// | the relay: a row that it stages, by all     | its node, in bulk                       | the sync of the warp, publish  |
// |   lanes                                     |                                         |   of the meta's epoch, then    |
// |                                             |                                         |   acquire_then_bulk            |
// | combine_send: a partial row, its run's word | relay_combine of the home's relay here  | publish of the run's word,     |
// |   at the home's relay                       |                                         |   wait_word                    |
// | relay_combine: a sum                        | its NIC; at home NodeSums               | push_stored_alone; wait_row    |
// | relay_dispatch: what combine needs to know  | combine_begin, the host's calls         | the end of the operation       |
// clang-format on
//
// Floor: as that of ht/nodes/network.hpp. There is no shared memory to stage in: words go from memory to memory.
#pragma once
#include "ucclep/device/ht/nodes/network.hpp"
#include "ucclep/device/ht/nodes/relay.hpp"
#include "ucclep/device/ht/send.hpp"
#include "ucclep/device/ht/zero_copy.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/relayed_row.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/simt/element.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/network.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/row_out.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// Are there ranks that only the network reaches.
UCCLEP_FN bool networked(const Op& op) {
  return op.group.network != nullptr;
}
// And rows that are relayed to them, or sums of nodes that come from them.
UCCLEP_FN bool relays(const Op& op) {
  return networked(op) && op.group.masks == nullptr;
}
// Does the rank receive and send rows by the network and without a relay?
UCCLEP_FN bool lands_alone(const Op& op, uint32_t rank) {
  return op.group.masks != nullptr && network::is_remote(op, rank);
}

// ---- The source of a dispatch

// Lane verb: 8 bytes of what goes ahead of a row to another node: its meta line without an epoch, and its place at the
// rank of each of its selections.
UCCLEP_FN uint64_t head_word(const HandleMemory& memory, uint32_t token, const float* weights, uint32_t at) {
  const uint32_t top_k = memory.shape.top_k;
  const MetaLayout layout = MetaLayout::of(top_k);
  if (at < layout.body_bytes()) return meta_word(memory, token, weights, at);
  if (at < layout.bytes) return 0;
  const auto* const places = memory.at<uint32_t>(memory.handle.offsets.places) + uint64_t{token} * top_k;
  const auto place = [&](uint32_t k) { return k < top_k ? places[k] : no_place; };
  const uint32_t k = (at - layout.bytes) / 4;
  return place(k) | uint64_t{place(k + 1)} << 32;
}

// The rows of a token to other nodes, where they wait for a NIC. row_bytes: of a row as it crosses.
struct RemoteRows {
  const Op& op;
  const HandleMemory& memory;
  uint32_t token, row_bytes;

  // Of selection k, if it is the first of another node.
  UCCLEP_FN uint32_t place(uint32_t k) const {
    const uint32_t place = memory.node_places(token)[k];
    if (place == no_place || op.group.masks == nullptr) return place;
    return is_masked(op.group, rank(k)) ? no_place : place;
  }
  UCCLEP_FN uint32_t rank(uint32_t k) const {
    const auto* const experts = memory.at<int32_t>(memory.handle.offsets.topk) + uint64_t{token} * memory.shape.top_k;
    return static_cast<uint32_t>(experts[k]) / memory.shape.local_experts();
  }
  UCCLEP_FN uint32_t node(uint32_t k) const { return relay::nodes_of(op).node_of(rank(k)); }
  UCCLEP_FN char* row(uint32_t k) const {
    return network::mine(op) + op.group.layout.relay_out_for(memory.shape, op.slot, node(k)) +
           uint64_t{place(k)} * row_bytes;
  }
  UCCLEP_FN bool any() const {
    bool any = false;
    for (uint32_t k = 0; k < memory.shape.top_k; ++k) any = any || place(k) != no_place;
    return any;
  }
  // As put_bytes asks for them: to offset `at` of each.
  template <class Store>
  UCCLEP_FN void each(uint64_t at, Store&& store) const {
    for (uint32_t k = 0; k < memory.shape.top_k; ++k) {
      if (place(k) != no_place) store(row(k) + at);
    }
  }
  // Verb of the scope, after its sync: they may leave. A push that fails has ended the operation.
  template <class Coop>
  UCCLEP_FN void push() const {
    for (uint32_t k = Coop::rank(); k < memory.shape.top_k; k += Coop::size()) {
      if (place(k) == no_place) continue;
      const uint32_t to = node(k), peer = relay::nodes_of(op).relay(op.me(), to);
      if (!network::push_stored_alone(op, peer, place(k), memory.rows_to_nodes()[to], row_bytes)) return;
    }
  }
};

// ---- Relays

// What they need of the operation. row_bytes: of a row, or a sum, as it crosses.
struct DeviceRelay {
  const ucclEpDeviceGroup& group;
  const HandleView& handle;
  uint32_t row_bytes;
};
// For loops over rows (simt/simt.hpp).
UCCLEP_FN const DeviceRelay& reload(const DeviceRelay& relay) {
  return relay;  // it lies in no kernel's arguments
}

// Block verb of every block: what everybody's READY says. Block 0 copies those from other nodes.
UCCLEP_FN HeaderResult ready_of_all(const DeviceOperation& open, const Op& op) {
  if (!AcrossNodes::ready_in(op, block_id() == 0, View{})) return HeaderResult::lost;
  return ready_in(op, open.settings, View{});
}

// Warp verb: the meta line of a row, but for the epoch, to the ranks of this node that the row is for.
UCCLEP_FN void forward_meta(const Op& op, const char* row, uint32_t source, uint32_t place,
                            const relay::Addressee& to) {
  const char* const own = to.mine ? meta_at(op, to.rank, source, to.place) : nullptr;
  for (uint64_t left = ballot(to.mine); left != 0; left &= left - 1) {
    auto* const meta = reinterpret_cast<char*>(broadcast(reinterpret_cast<uint64_t>(own), first_lane(left)));
    put_bytes<warp>(
        MetaLayout::of(op.group.shape.top_k).body_bytes(), [&](auto&& store) { store(meta); },
        [&](uint32_t at) {
          const uint64_t word = *reinterpret_cast<const uint64_t*>(row + at);
          return at == 0 ? word | uint64_t{place} << 32 : word;
        });
  }
}
static_assert(relay::place_word == 1, "the upper half of the first word");

// The rows of a block, where they have landed.
struct Landing {
  const Op& op;
  const GroupShape& shape;
  uint32_t block, row_bytes;

  UCCLEP_FN const char* row(uint32_t place) const {
    return network::mine(op) + op.group.layout.relay_in_of(shape, op.slot, block) + uint64_t{place} * row_bytes;
  }
  // Warp verb: a row into this device's memory, where the relays of the group stage rows. Returns what its meta line
  // says of where it lies.
  UCCLEP_FN uint32_t stage(uint32_t place) const {
    if (shape.relay_stages == 0) return place;
    char* const to = op.mine() + op.group.layout.relay_staged_of(shape, op.slot, block) + uint64_t{place} * row_bytes;
    copy_vectors<warp>(to, row(place), row_bytes);
    return place | relay::staged_flag;
  }
};

// Warp verb: rows [first, end) of a block to the ranks of this node that they are for.
struct ForwardRows {
  UCCLEP_FN bool operator()(const DeviceRelay& relay, const Op& op, uint32_t block, uint32_t first,
                            uint32_t end) const {
    const HandleMemory memory = memory_of(relay);
    const uint64_t epoch = MetaLayout::of(memory.shape.top_k).epoch;
    const uint32_t source = relay::nodes_of(op).rank_of(block, op.me());
    if (!landed(op, source, end - 1)) return false;
    const Landing from{op, memory.shape, block, relay.row_bytes};
    for (uint32_t place = first; place < end; ++place) {
      const relay::Addressee to = relay::Addressee::of(op, from.row(place));
      relay::keep_addressees(op, memory, block, place, to);
      forward_meta(op, from.row(place), source, from.stage(place), to);
    }
    sync_warp();  // all of them are stored before any lane publishes one
    for (uint32_t place = first; place < end; ++place) {
      const relay::Addressee to = relay::Addressee::of(op, from.row(place));
      if (!to.mine) continue;
      publish(reinterpret_cast<uint64_t*>(meta_at(op, to.rank, source, to.place) + epoch), op.seq);
    }
    sync_warp();
    return true;
  }

 private:
  // Warp verb: waits for a row.
  static UCCLEP_FN bool landed(const Op& op, uint32_t source, uint32_t place) {
    const bool here = every_lane(lane_id() != 0 || network::wait_row(op, source, place, between_nodes_flag));
    sync_warp();
    return here;
  }
};

// Block verb of every block, after its last send of a dispatch. False: it has failed.
UCCLEP_COLD_FN bool relay_dispatch(DeviceOperation open, Op op, uint32_t wire_row_bytes) {
  const HandleMemory memory = open.memory();
  const HeaderResult ready = ready_of_all(open, op);
  relay::note_rows(op, memory, ready == HeaderResult::good);
  if (ready != HeaderResult::good) return ready == HeaderResult::differs;
  const DeviceRelay args{open.handle.group, open.handle.view,
                         static_cast<uint32_t>(relayed_row_bytes(memory.shape, wire_row_bytes))};
  return every_thread(relay::relay_rows(args, op, {grid_warp(), grid_warps()}, ForwardRows{}));
}

// Warp verb: the sum of the rows that the lanes of the mask have, in their order, to `to`.
template <class Element>
UCCLEP_FN void store_sum(uint64_t mask, const char* row, char* to, uint32_t bytes) {
  for (uint32_t begin = 0; begin < bytes; begin += 16 * wave_size) {
    const uint32_t at = begin + 16 * lane_id();
    TermSum<Element> sum;
    for (uint64_t left = mask; left != 0; left &= left - 1) {
      const auto* const term =
          reinterpret_cast<const char*>(broadcast(reinterpret_cast<uint64_t>(row), first_lane(left)));
      if (at < bytes) sum.add(Vector<Element>::unpack(load16(term + at)));
    }
    if (at < bytes) store16(to + at, sum.sum.pack());
  }
}

// Warp verb: what goes home of a row of a block, once all of its partial rows are staged.
UCCLEP_FN bool send_sum(const DeviceOperation& open, const Op& op, uint32_t block, uint32_t place) {
  const uint32_t bytes = open.shape.token_bytes();
  const char* row = nullptr;
  if (!every_lane(relay::staged_term(op, open.memory(), bytes, block, place, lane_id(), row))) return false;
  sync_warp();
  const uint64_t mask = ballot(row != nullptr);
  char* const to = relay::sum_out(op, bytes, block, place);
  with_element(open.shape.dtype, [&](auto element) { store_sum<decltype(element)>(mask, row, to, bytes); });
  const uint32_t home = relay::nodes_of(op).rank_of(block, op.me());
  sync_warp();
  const uint32_t all = open.memory().relayed(0)[block];
  return every_lane(lane_id() != 0 || network::push_stored_alone(op, home, place, all, bytes));
}

// Block verb of every block, after its last send of a combine. False: it has failed.
UCCLEP_COLD_FN bool relay_combine(DeviceOperation open, Op op) {
  const HandleMemory memory = open.memory();
  const HeaderResult ready = ready_of_all(open, op);
  bool ok = ready != HeaderResult::lost;
  if (ready == HeaderResult::good) {
    const uint32_t blocks = memory.shape.nodes.blocks(), items = relay::max_sums(memory, 0) * blocks;
    for (uint32_t item = grid_warp(); item < items && ok; item += grid_warps()) {
      const uint32_t block = item % blocks, place = item / blocks;
      if (place < uniform(memory.relayed(0)[block])) ok = send_sum(open, op, block, place);
    }
  } else {
    AcrossNodes::give_up(op, memory, ready, open.shape.token_bytes());
  }
  return every_thread(ok);
}

// ---- Home

// What a token gets from other nodes, nodes ascending.
struct NodeSums {
  const char* rows[max_top_k];
  uint32_t nodes[max_top_k], count = 0, before = 0;  // before: of those below the own node

  // Lane verb: waits until they are there.
  UCCLEP_FN bool wait(const DeviceOperation& open, const Op& op, uint32_t token) {
    const HandleMemory memory = open.memory();
    const RemoteRows remote{op, memory, token, 0};
    for (uint32_t k = 0; k < memory.shape.top_k; ++k) {
      const uint32_t place = remote.place(k);
      if (place == no_place) continue;
      const uint32_t node = remote.node(k);
      if (!relay::wait_sum(op, node, place)) return false;
      insert(node, relay::sum_in(op, open.shape.token_bytes(), node, place));
      if (node < relay::own_node(op)) ++before;
    }
    return true;
  }

 private:
  UCCLEP_FN void insert(uint32_t node, const char* row) {
    uint32_t at = count++;
    for (; at > 0 && nodes[at - 1] > node; --at) {
      nodes[at] = nodes[at - 1];
      rows[at] = rows[at - 1];
    }
    nodes[at] = node;
    rows[at] = row;
  }
};

// What HT dispatch (ht_dispatch.hpp) and combine (ht_combine.hpp) share in a user's kernel. It
// sends READY, and stages rows in this rank's window; the receive phase waits for the peers' READY, and pulls. What
// groups whose ranks are in several domains need beside that, they get at run time (user/ht.hpp).

UCCLEP_FN Settings routed_settings(const HandleMemory& memory, const RowShape& shape) {
  Settings s;
  s.hidden = shape.hidden;
  s.top_k = memory.state()->top_k;
  s.mode = UCCLEP_MODE_HT;
  s.layout = static_cast<uint32_t>(memory.handle.layout);
  s.alignment_log2 = first_lane(memory.handle.expert_alignment);
  s.waves = memory.handle.waves;
  s.dtype = s.output_dtype = static_cast<uint32_t>(shape.dtype);
  s.pass = static_cast<uint32_t>(shape.pass);
  return s;
}

// An operation that begins; ok: its slots are free.
struct Begun {
  Op op;
  bool ok;

  UCCLEP_FN HandleMemory memory(const ucclEpDeviceHandle& handle) const { return {handle.view, handle.group.shape}; }

  // Block verb of every block: READY to all, nothing exposed.
  UCCLEP_FN bool ready_out(const ucclEpDeviceHandle& handle, const Settings& settings) const {
    if (!ok || block_id() != 0) return ok;
    const HandleMemory mine = memory(handle);
    auto* words = reinterpret_cast<uint32_t*>(mine.scratch_of_warp());
    const Worker worker{warp_id(), block::warps()};
    if (!networked(op)) return send_ready<OneNode>(op, mine, settings, {}, words, worker);
    return every_thread(send_ready<AcrossNodesMasked>(op, mine, settings, {}, words, worker));
  }
};

// Tokens of the rank that has most.
UCCLEP_FN uint32_t most_tokens(const HandleMemory& memory) {
  uint32_t most = 0;
  for (uint32_t s = 0; s < memory.shape.ranks; ++s) {
    most = memory.tokens_from()[s] > most ? memory.tokens_from()[s] : most;
  }
  return most;
}

// Block verb of every block. Where ranks disagreed in the Update no rank has a routing, and none begins an operation;
// nor a combine of what was not dispatched.
UCCLEP_FN Begun begin(const ucclEpDeviceHandle& handle, const RowShape& shape, Kind kind, Operation name) {
  OpState op_state = OpState::load(handle.group, kind);
  const Op op = begin_next(handle, kind, name, op_state);
  const HandleState& state = *HandleMemory{handle.view, handle.group.shape}.state();
  bool ok = op.seq != 0 && fits(op, handle, shape, UCCLEP_MODE_HT, state.top_k);
  const bool ready = state.updated == handle.view.stamp && (kind != Kind::combine || state.capacity != not_dispatched);
  if (ok && !ready) {
    if (thread_id() == 0) report_data(op.group.errors, record_of(op, ucclEpInvalidArgument, Phase::unrouted, -1));
    ok = false;
  }
  const HandleMemory memory{handle.view, handle.group.shape};
  if (ok && routed_rounds(memory) > 1) {
    refuse(op, Field::round_tokens, handle.group.shape.ht_tokens, most_tokens(memory));
    ok = false;
  }
  return {op, ok && slots_free_in_any_group(op, op_state)};
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

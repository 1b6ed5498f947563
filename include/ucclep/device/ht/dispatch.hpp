// SPDX-License-Identifier: Apache-2.0
// HT: for training and prefill, where bandwidth counts. HandleUpdate routes and exchanges counts, so every row has its
// final place before anything moves. A row crosses each link once, and is written once at the far side: by its sender,
// where the receiver has exposed its output, else by the receiver, which pulls it from the sender's staging.
//
//   update:    slots free -> route -> headers out -> headers in -> positions -> end
//   dispatch:  slots free -> READY out -> READY in -> metas out | rows out | rows or metas in -> end
// Floor of dispatch: rows from peers * row bytes / link bandwidth, plus READY's way. No barrier between ranks, nor
// between blocks.
//
// The warps of a block are divided: they send, receive, or handle metas, and none of them waits for another. Who sends
// waits for nobody but READY, and in later rounds for those who read its slot (ht/rounds.hpp); a relay for senders, a
// receiver for both. What is sent is taken by turns (protocol/turns.hpp).
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/receive.hpp"
#include "ucclep/device/ht/rounds.hpp"
#include "ucclep/device/ht/routing.hpp"
#include "ucclep/device/ht/send.hpp"
#include "ucclep/device/ht/zero_copy.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/exchange.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/masks.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/phases.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/protocol/turns.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/tiles.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// Verb of one block, when all headers are here: how many rounds the largest T needs. A handle has few, and so its
// number few bits.
UCCLEP_FN void count_rounds(const HandleMemory& memory) {
  uint32_t last = 0;  // round that has tokens of a source
  for (uint32_t s = thread_id(); s < memory.shape.ranks; s += block_size()) {
    const uint32_t of_source = rounds_of(memory.shape, memory.tokens_from()[s]) - 1;
    last = last < of_source ? of_source : last;
  }
  uint32_t bit = 1, most = 0;
  while (bit < memory.handle.rounds) bit *= 2;
  for (bit /= 2; bit != 0; bit /= 2) {
    if (sync_block_or(last >= most + bit)) most += bit;
  }
  if (thread_id() == 0) memory.state()->rounds = most + 1;
  for (uint32_t r = thread_id(); r < memory.handle.rounds; r += block_size()) memory.parts_read()[r] = 0;
  for (uint32_t s = thread_id(); s < memory.shape.ranks; s += block_size()) {
    memory.come_before(0)[s] = 0;
    memory.come_before(most + 1)[s] = memory.rows_from()[s];
  }
}

// Verb of one block, for the launches that follow: everybody's counts, and what comes of them.
template <class Wire>
UCCLEP_FN bool take_counts(const Op& op, const HtUpdateArgs& args) {
  const HandleMemory memory = memory_of(args);
  if (thread_id() == 0) {
    memory.state()->tokens = args.routing.tokens;
    memory.state()->top_k = args.routing.top_k;
    memory.state()->capacity = not_dispatched;
  }
  if (!Wire::headers_in(op, true, View{})) return false;
  const bool complete =
      receive_headers(op.with(args.group), HeaderWords::of(memory), args.settings, View{}, {warp_id(), block::warps()});
  if (!every_thread(complete)) return false;
  const HtUpdateArgs& now = reload(args);
  if (thread_id() == 0) mark(op.with(now.group), Mark::headers_in);
  count_rounds(memory_of(now));
  place_rows<true>(op.with(now.group), memory_of(now), HeaderWords::of(memory_of(now)), now.zones, now.counters,
                   static_cast<uint32_t*>(shared_memory()));
  return true;
}

template <class Wire>
UCCLEP_FN bool exchange_counts(const Op& op, const OpState& op_state, const HtUpdateArgs& args) {
  if (sums_counts()) announce_update(memory_of(args), args.counters);
  const bool free = slots_free(op, op_state, typename Wire::Consumed{});
  if (!has_masks<Wire>(args.group) && !free) return false;
  bool sent = true;
  const bool routed = route<Wire>(op, args, [&](uint32_t peer) {
    if (Wire::masks && !free) return;
    const HtUpdateArgs& now = reload(args);
    const HandleMemory memory = memory_of(now);
    const uint32_t local = now.group.shape.local_experts();
    const Op same = op.with(now.group);
    if (!Wire::has_header_for(same, peer)) return;
    store_header(same, Wire::header_for(same, peer), now.settings, memory.rows_to()[peer], Form::bulk,
                 now.routing.tokens, memory.counts_to() + uint64_t{peer} * local);
    sent = sent && Wire::header_stored(same, peer, 0, HeaderLayout::packets(local));
  });
  if (Wire::network && !every_thread(sent)) return false;
  return free && routed && (!sums_counts() || take_counts<Wire>(op, reload(args)));
}

template <class Wire>
UCCLEP_FN void update(const HtUpdateArgs& args) {
  const OpState op_state = OpState::load(args.group, Kind::update);
  const Op op = next_operation(args.group, Kind::update, Operation::update, op_state);
  if (has_masks<Wire>(args.group) && !begins(args.group, Kind::update, op.seq)) return;
  Wire::end_update(op, exchange_counts<Wire>(op, op_state, args));
}

// The warps of a block by what they do. One that stands in several roles works for one after the other.
struct WarpRoles {
  WarpRole meta, copy, fetch;

  // exposed: to this rank's peers, or by one of them to this rank.
  static UCCLEP_FN WarpRoles of(bool own_exposed, bool peers_exposed) {
    const uint32_t warps = block::warps();
    const uint32_t metas = own_exposed || peers_exposed ? (warps + 6) / 7 : 0;
    const uint32_t movers = warps > metas ? warps - metas : warps;
    // Staging is local and has to be ahead of the pulling, no more. Rows that are sent over a link take as long as rows
    // that are pulled over one.
    uint32_t copiers = own_exposed ? movers : peers_exposed ? movers / 2 : movers * 2 / 7;
    if (copiers == 0) copiers = 1;
    const uint32_t left = own_exposed ? 0 : movers > copiers ? movers - copiers : movers;
    return {{0, metas}, {warps - movers, copiers}, {warps - left, left}};
  }
  // Of a launch that has nothing to send.
  static UCCLEP_FN WarpRoles all_fetch() { return {{0, 0}, {0, 0}, {0, block::warps()}}; }
};

// What a warp does of a dispatch, round by round. What is known anyway is asked for anew: it would take registers.
template <class Row, class Wire, Phases phases>
struct RowMover {
  const HtDispatchArgs& args;
  Stage& stage;
  PeerTensors* exposed;
  WarpRoles of_exposed;                          // as tensors are exposed
  WarpUniform pulled, lines_leave, own_exposed;  // 1: by some rank here; to some rank; this rank exposes its output

  // Between nodes nobody does.
  UCCLEP_FN bool exposes_own() const { return !Wire::network && phases == Phases::whole && own_exposed != 0; }
  UCCLEP_FN uint32_t rounds() const { return Wire::rounds(memory_of(reload(args))); }
  // Between nodes they are asked for anew, too. Relays are meta warps.
  UCCLEP_FN WarpRoles roles() const {
    if constexpr (Wire::network) {
      if (sent().first >= sent().end) return WarpRoles::all_fetch();
      return WarpRoles::of(phases == Phases::send, true);
    } else {
      return of_exposed;
    }
  }
  UCCLEP_FN uint32_t* next(Turn what) const { return stage.turns() + static_cast<uint32_t>(what); }
  UCCLEP_FN SentRounds sent() const { return SentRounds::of(reload(args).group.shape, rounds(), phases); }
  UCCLEP_FN Shares shares(Turn what) const {
    const SentRounds some = sent();
    return {what, some.first, some.end - some.first, next(what)};
  }
  // A share of a round has been read: by receivers, or in a round that this launch sends by relays.
  UCCLEP_FN bool note_read(const Op& op) const {
    if (phases == Phases::send || !is_awaited(op, rounds())) return true;
    const uint32_t relays = Wire::network ? uint32_t{roles().meta.warps} : 0;
    const RoundParts parts{0, receivers().warps * grid_size(), sent().first, relays * grid_size()};
    return Wire::part_read(op, memory_of(reload(args)).parts_read(), rounds(), parts);
  }
  UCCLEP_FN WarpRole receivers() const { return exposes_own() ? roles().meta : roles().fetch; }

  UCCLEP_FN bool send(const Op& op) {
    bool ok = true;
    if (!Wire::network && roles().meta.has_me() && lines_leave != 0) {
      ok = shares(Turn::metas).each(op, [&](uint32_t block) {
        return send_metas(reload(args), op, stage, exposed, roles().meta.in(block));
      });
    }
    if (roles().copy.has_me() && ok) {
      constexpr Phases sends = phases == Phases::whole ? Phases::whole : Phases::send;
      ok = shares(Turn::rows).each(op, [&](uint32_t block) {
        return send_rows<Row, Wire, sends>(reload(args), op, stage, exposed, Wire::network || pulled != 0,
                                           roles().copy.in(block));
      });
      if (ok) bulk_wait_written();
    }
    if constexpr (Wire::network) {
      if (roles().meta.has_me() && ok) {
        ok = shares(Turn::relays).each(op, [&](uint32_t block) {
          return Wire::relay_rows(reload(args), op, stage, roles().meta.in(block)) && note_read(op);
        });
      }
    }
    return ok;
  }

  UCCLEP_FN bool take(const Op& op, const Worker& worker) {
    if (exposes_own()) return receive_metas<Wire>(reload(args), op, stage, worker);
    if constexpr (Wire::tiles) {
      return TilePuller<Wire>(reload(args), stage).pull(op, worker);
    } else {
      return pull_rows<Wire, phases>(reload(args), op, stage, worker);
    }
  }
  // An awaited round is received by turns, and then counted; of others each warp has its own share.
  UCCLEP_FN bool receive(const Op& op) {
    const WarpRole role = receivers();
    if (!role.has_me()) return true;
    const uint32_t all = rounds();
    const bool awaited = is_awaited(op, all);
    const Shares arrivals{Turn::arrivals, awaited ? 0 : uint32_t{op.round},
                          awaited ? all - op.group.shape.in_flight : 0, next(Turn::arrivals)};
    if (!awaited) arrivals.keep(block_id());  // no later one is
    return arrivals.each(op, [&](uint32_t block) { return take(op, role.in(block)) && note_read(op); });
  }

  // In the order of ht/rounds.hpp.
  UCCLEP_FN bool move(const Op& op) {
    constexpr bool receives = phases != Phases::send;
    for (WarpUniform r = sent().first; r < (receives ? sent().all + op.group.shape.in_flight : uint32_t{sent().end});
         r += 1) {
      const uint32_t slots = reload(args).group.shape.in_flight;
      if (receives && r >= slots && !receive(op.in_round(r - slots))) return false;
      if (r < sent().end && !send(op.in_round(r))) return false;
    }
    return true;
  }
};

// Block verb: what every rank has exposed, and who does what here. turn: of rows, from begin_turn.
template <class Row, class Wire, Phases phases>
UCCLEP_FN bool move_rows(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                         PeerTensors* exposed, uint32_t turn) {
  const DispatchOutput& out = args.output;
  if (phases == Phases::whole && thread_id() == 0 && out.zones == Zones::sources) {
    exposed[op.me()] = own_tensors(memory, out.tokens, out.scales, out.capacity, op.me());
  }
  sync_block();
  bool pulled = false, peers_exposed = false;
  for (uint32_t r = 0; r < op.ranks(); ++r) {
    pulled = pulled || pulls(exposed[r]);
    peers_exposed = peers_exposed || (r != op.me() && !pulls(exposed[r]));
  }
  const bool own_exposed = exposes(op, args.offer);
  constexpr bool receives = phases != Phases::send;
  const SentRounds sent = SentRounds::of(op.group.shape, Wire::rounds(memory), phases);
  const bool sends = phases != Phases::receive || sent.first < sent.end;
  const WarpRoles roles = sends ? WarpRoles::of(own_exposed || !receives, peers_exposed) : WarpRoles::all_fetch();
  RowMover<Row, Wire, phases> mover{
      args, stage, exposed, roles, pulled ? 1u : 0u, peers_exposed ? 1u : 0u, own_exposed ? 1u : 0u};
  mover.shares(Turn::rows).keep(turn);
  if (mover.roles().meta.has_me() && peers_exposed) mover.shares(Turn::metas).keep(begin_turn(op, Turn::metas));
  if (Wire::network && mover.roles().meta.has_me()) mover.shares(Turn::relays).keep(begin_turn(op, Turn::relays));
  if (sent.all > op.group.shape.in_flight) mover.shares(Turn::arrivals).keep(begin_turn(op, Turn::arrivals));
  return every_thread(mover.move(op));
}

template <class Row, class Wire, Phases phases>
UCCLEP_FN HeaderResult exchange_rows(const Op& op, const OpState& op_state, const HandleMemory& memory,
                                     const HtDispatchArgs& args, Stage& stage) {
  const uint32_t turn = begin_turn(op, Turn::rows);  // it comes while READY does
  const HeaderResult ready = exchange_ready<Wire>(op, op_state, memory, args.settings, args.offer, args.wait_ns, stage);
  if constexpr (Wire::network) Wire::note_rows(op, memory, ready == HeaderResult::good);
  if (ready != HeaderResult::good) {
    if constexpr (Wire::network) {
      Wire::give_up(op, memory, ready, relayed_row_bytes(op.group.shape, args.source.wire.row_bytes));
    }
    return ready;
  }
  if constexpr (phases == Phases::whole) fill_rest<Wire>(op, memory, args);
  const HtDispatchArgs& now = reload(args);
  const bool ok = move_rows<Row, Wire, phases>(op.with(now.group), memory_of(now), now, stage, exposed_of(stage), turn);
  return ok ? HeaderResult::good : HeaderResult::lost;
}

// The whole operation, or its send phase: that stages what is not sent, of as many rounds as there are slots, and
// relays.
template <class Row, class Wire, Phases phases = Phases::whole>
UCCLEP_FN void dispatch(const HtDispatchArgs& args) {
  const OpState op_state = OpState::load(args.group, Kind::dispatch);
  Stage stage(args.piece_bytes);
  const Op op = next_operation(args.group, Kind::dispatch, Operation::dispatch, op_state);
  if constexpr (phases == Phases::send) {
    if (has_masks<Wire>(args.group) && !begins_to_send(op)) return;
  }
  const HandleMemory memory{args.handle, args.group.shape};
  if constexpr (phases == Phases::send) {
    if (args.waves.of > 1) forget_received(memory);
    if (args.handle.tile_rows != 0) open_tiles(memory);
  }
  const HeaderResult result = exchange_rows<Row, Wire, phases>(op, op_state, memory, args, stage);
  const bool ok = result != HeaderResult::lost;
  const HtDispatchArgs& now = reload(args);
  const uint32_t rounds = rounds_moved<Wire>(memory_of(now), result);
  if constexpr (phases == Phases::send) {
    end_send_phase_of<Wire>(op.with(now.group), memory_of(now), ok, rounds);
  } else {
    const Op last = op.with(now.group).in_round(rounds - 1);
    Wire::end(last, ok, exposes(last, now.offer), rounds);
  }
}

// Block verb, of the receive phase.
template <class Row, class Wire>
UCCLEP_FN HeaderResult receive_rows(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args,
                                    Stage& stage) {
  const View wait_ns = args.waves.begins() ? args.wait_ns : View{};
  const HeaderResult ready = ready_before<Wire>(op, memory, args.settings, wait_ns, stage);
  const HtDispatchArgs& now = reload(args);
  const Op here = op.with(now.group);
  const bool masked = has_masks<Wire>(now.group);
  if constexpr (Wire::network && Wire::masks) {
    if (masked) Wire::note_rows_late(here, memory_of(now), ready == HeaderResult::good);
  }
  if (ready != HeaderResult::good) return ready;
  if (now.waves.begins()) fill_rest<Wire>(here, memory_of(now), now);
  if (masked) blank_absent(here, memory_of(now), now.output);
  if constexpr (Wire::network && Wire::masks) {
    bool ok = true;
    if (masked) {
      ok = in_turns(here, Turn::relays, WarpRole{0, block::warps()},
                    [&](const Worker& worker) { return Wire::relay_rows_late(reload(args), here, stage, worker); });
    }
    if (!every_thread(ok)) return HeaderResult::lost;
  }
  if constexpr (Wire::tiles) {
    const HandleMemory memory_now = memory_of(now);
    close_tiles(Tiles{memory_now}, now.output.capacity, TileShare::of_grid());
    if (block_id() == 0 && warp_id() == 0) announce_tiles(Tiles{memory_now}, now.output.capacity);
  }
  // Where nothing is left to send none is taken: tiles are received beside other dispatches, whose turns these are.
  const bool sends = Wire::rounds(memory_of(now)) > now.group.shape.in_flight;
  const uint32_t turn = sends ? begin_turn(here, Turn::rows) : no_turn;
  const bool ok = move_rows<Row, Wire, Phases::receive>(here, memory_of(now), now, stage, exposed_of(stage), turn);
  return ok ? HeaderResult::good : HeaderResult::lost;
}

// The receive phase, or of one in waves the part of some of them; also of a device-initiated dispatch
// (ht_dispatch.hpp): sends the rounds for which the send phase had no slots, and pulls what was staged. Where none is
// pending: nothing.
template <class Row, class Wire>
UCCLEP_FN void complete_dispatch(const HtDispatchArgs& args) {
  Stage stage(args.piece_bytes);
  const ReceivePhase phase = ReceivePhase::of<Wire::masks>(args, Kind::dispatch, Operation::dispatch);
  if (!phase.any) return;
  HeaderResult result = HeaderResult::lost;
  if (phase.may_read()) result = receive_rows<Row, Wire>(phase.op, memory_of(args), args, stage);
  const bool ok = result != HeaderResult::lost;
  const HtDispatchArgs& now = reload(args);
  const ReceivePhase later = ReceivePhase::of<Wire::masks>(now, Kind::dispatch, Operation::dispatch);
  if (now.waves.ends()) {
    later.template end<Wire>(ok, rounds_moved<Wire>(memory_of(now), result));
  } else {
    end_part(later.op, ok);
  }
}

// Block verb: all rows as they arrive, the tiles that they complete, and no tile that stays open.
template <class Row, class Wire>
UCCLEP_FN HeaderResult receive_tiles(const ReceivePhase& phase, const HtDispatchArgs& args, Stage& stage) {
  const HandleMemory memory = memory_of(args);
  const Tiles tiles{memory};
  if (thread_id() == 0) fetch_add_relaxed<Scope::gpu>(&tiles.state()->resident, 1u);
  HeaderResult result = HeaderResult::lost;
  if (phase.may_read()) result = receive_rows<Row, InTiles<Wire>>(phase.op, memory, args, stage);
  if (result == HeaderResult::good && !check_totals(phase.op, tiles)) result = HeaderResult::lost;
  if (result != HeaderResult::good) give_up_tiles(tiles);
  return result;
}

// The receive phase of a dispatch of tiles, or a part of it (tile_launch).
template <class Row, class Wire>
UCCLEP_FN void complete_tiles(const HtDispatchArgs& args) {
  Stage stage(args.piece_bytes);
  const ReceivePhase phase = ReceivePhase::of(args, Kind::dispatch, Operation::dispatch);
  if (!phase.any) return;
  HeaderResult result = HeaderResult::lost;
  if (args.waves.begins()) {
    result = receive_tiles<Row, Wire>(phase, args, stage);
  } else if (phase.may_read()) {
    result = ready_before<Wire>(phase.op, memory_of(args), args.settings, View{}, stage);
  }
  const bool ok = result != HeaderResult::lost;
  const HtDispatchArgs& now = reload(args);
  const ReceivePhase later = ReceivePhase::of(now, Kind::dispatch, Operation::dispatch);
  if (now.waves.ends()) {
    later.template end<Wire>(ok, rounds_moved<Wire>(memory_of(now), result));
  } else if (!ok) {
    bulk_wait_written();
  }
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// HT combine. A partial row crosses a link once: its home pulls it, and adds it up at once. Some warps of every block
// stage partial rows in this rank's window, the others add up what homes here are waiting for, so that sums are made
// while rows fly. The arithmetic is that of rows/reduce.hpp.
//
//   slots free -> READY out -> READY in -> runs of partial rows staged | per token: wait for its rows, pull and add,
//   write -> end
// Between nodes warps that have staged rows may have sums of other nodes to stage (ht/nodes/network.hpp).
// Floor: partial rows from peers * row bytes / link bandwidth, plus READY's way, the first run's, and one sum.
//
// Runs are staged for all homes in turn, by place, and sums take tokens in order: what was staged first is wanted
// first. A sum waits for copy warps only, and a copy warp for nobody, and takes its shares by turns
// (protocol/turns.hpp): so all are staged by the blocks that are resident. In FLAT a partial row is a row of the
// caller's: of this rank it is read where it is, and of a rank that has exposed its tensor too; such a rank stages
// nothing.
//
// clang-format off
// | who releases                                   | who acquires                    | what is ordered              |
// |------------------------------------------------|---------------------------------|------------------------------|
// | publish of a run's word, after                 | wait_word, then                 | the run's partial rows       |
// |   bulk_wait_written                            |   acquire_then_bulk             |   before the sums            |
// clang-format on
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/pool.hpp"
#include "ucclep/device/ht/weight_rows.hpp"
#include "ucclep/device/ht/zero_copy.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/masks.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/phases.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/rows/reduce.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/sum_ring.hpp"
#include "ucclep/device/simt/element.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// Of a block's warps some stage, the others add. Staging is local, and has to be ahead of the links; where a partial
// row is itself a sum, it reads several rows for one. A block of one warp does both, one after the other.
struct CombineWarpRoles {
  WarpRole copy, reduce;

  static UCCLEP_FN CombineWarpRoles of(bool stages, bool sums) {
    const uint32_t warps = block::warps();
    if (!stages) return {{0, 0}, {0, warps}};
    if (warps == 1) return {{0, 1}, {0, 1}};
    const uint32_t wanted = sums ? (2 * warps + 2) / 3 : (warps + 1) / 2;
    const uint32_t copiers = wanted < warps ? wanted : warps - 1;
    return {{0, copiers}, {copiers, warps - copiers}};
  }
};

// Tokens that the reduce warps take one by one, in order. Of rounds that peers wait for a share, by turns; of the others
// every grid_size()-th of the rank's, whichever warp of the block is free: who waits for a row keeps none of the others
// from the next token.
struct TokenPool {
  uint32_t* taken;  // in the block's shared memory; of a share: NULL
  WarpUniform first, step, end;
  WarpUniform mine{0};  // tokens of a share so far

  // Before the table of exposed tensors: an address that is known anyway takes no register of its own.
  static UCCLEP_FN uint32_t* word(const Stage& stage) { return reinterpret_cast<uint32_t*>(stage.beyond()); }
  static UCCLEP_FN TokenPool of_block(const Stage& stage, uint32_t begin, uint32_t end) {
    return {word(stage), begin + block_id(), grid_size(), end};
  }
  static UCCLEP_FN TokenPool of_share(const TokenRange& tokens, const Worker& worker) {
    return {nullptr, tokens.begin + worker.index, worker.workers, tokens.end};
  }
  // Block verb. Others may take after the next sync_block.
  static UCCLEP_FN void fill(const Stage& stage) {
    if (thread_id() == 0) *word(stage) = 0;
  }
  // Warp verb: the next token; at or past the end when none is left.
  UCCLEP_FN uint32_t take() {
    uint32_t index = 0;
    if (taken != nullptr) {
      if (lane_id() == 0) index = fetch_add_relaxed<Scope::gpu>(taken, 1u);
      index = broadcast(index, 0);
    } else {
      index = mine;
      mine += 1;
    }
    return first + index * step;
  }
};

// Warp verb: the copies of one received row, experts ascending.
UCCLEP_FN Terms copies_of(const HandleMemory& memory, const HtCombineArgs& args, char* scratch, uint32_t home,
                          uint32_t place) {
  const uint32_t count = memory.recv_count(home)[place], i = lane_id();
  RecvEntry entry{};
  if (i < count) entry = memory.recv_entries(home, place)[i];
  const bool present = i < count && entry.row < args.capacity;
  const uint64_t mask = ballot(present);
  Terms terms{reinterpret_cast<const char**>(scratch), count_lanes(mask), 0};
  if (present) terms.rows[count_lanes(mask & ((uint64_t{1} << i) - 1))] = args.tokens.at(0, entry.row);
  sync_warp();
  return terms;
}

// Warp verb: the partial row of (home, place) to its place in the staging. In FLAT it is the caller's row; at or past
// the capacity, zeros.
template <class Element>
UCCLEP_FN void stage_partial(const HandleMemory& memory, const HtCombineArgs& args, Stage& stage, SumRing& ring,
                             char* to, uint32_t home, uint32_t place) {
  const uint32_t bytes = uniform(args.row_bytes);
  Terms terms{};
  if (args.zones == Zones::sources) {
    const uint64_t index = uint64_t{memory.recv_base()[home]} + place;
    if (ballot(index < args.capacity) != 0) {
      const char* row = args.tokens.at(0, static_cast<int64_t>(index));
      stage.fetch(row, bytes);
      stage.drain(row, bytes, [&](const char* piece, uint64_t offset, uint32_t length) {
        bulk_store(lane_id() == 0, to + offset, piece, length);
      });
      return;
    }
  } else {
    terms = copies_of(memory, args, stage.scratch(), home, place);
  }
  ring.sum<Element>(terms, bytes,
                    [&](uint32_t offset, const Vector<Element>& sum) { store16_stream(to + offset, sum.pack()); });
}

// Warp verb: a run of partial rows for one home, and the word that says so. places: of the round.
template <class Element, class Wire>
UCCLEP_FN void stage_run(const Op& op, const HtCombineArgs& args, Stage& stage, SumRing& ring, uint32_t home,
                         const PlaceRange& places, uint32_t run) {
  const bool pooled = op.group.shape.pool_rows != 0;
  const WindowLayout& window = op.group.layout;
  char* to = op.mine() + (pooled ? window.pool_of(op.slot) : window.back_rows_of(op.slot, home));
  const uint32_t first = places.begin, rows = places.end - first, begin = run * run_rows;
  const uint32_t end = begin + run_rows < rows ? begin + run_rows : rows;
  for (uint32_t at = begin; at < end; ++at) {
    const HtCombineArgs& now = reload(args);
    const uint32_t place = first + at;
    uint32_t index = at;
    if (pooled) {
      index = uniform(pool_row(memory_of(now), now, home, place));
      if (lane_id() == 0) Wire::pool_places(op, home)[at] = index;
      if (index == no_place) continue;
    }
    char* const row = to + uint64_t{index} * now.partial_bytes;
    stage_partial<Element>(memory_of(now), now, stage, ring, row, home, place);
    if (now.weights_back) stage_weights(memory_of(now), now, row, home, place);
  }
  bulk_wait_written();
  if (lane_id() == 0) publish(Wire::run_words(op, home) + run, op.seq);
}

// Verb of the staging warps of the grid, of a round.
template <class Element, class Wire>
UCCLEP_FN bool stage_runs(const Op& op, const HtCombineArgs& args, Stage& stage, SumRing& ring,
                          const WarpUniform& rounds, const Worker& worker) {
  if (op.round != 0 && !slot_free(op)) return false;
  const uint32_t skipped = args.zones == Zones::sources ? 1 : 0;  // this rank's own rows
  const WarpUniform homes = op.ranks() - skipped;
  if (homes == 0) return true;
  uint32_t most = 0;
  for (uint32_t r = 0; r < op.ranks(); ++r) {
    const PlaceRange places = came_in_round(op, memory_of(args), r, rounds);
    const uint32_t rows = uniform(places.end - places.begin);
    most = rows > most ? rows : most;
  }
  const WarpUniform items = (most + run_rows - 1) / run_rows * homes;
  for (WarpUniform item = worker.index; item < items; item += worker.workers) {
    const HtCombineArgs& now = reload(args);
    const uint32_t home = op.rotated(item % homes + skipped), run = item / homes;
    if (Wire::masks && is_masked(now.group, home)) continue;  // of its rows there may be none
    const PlaceRange here = came_in_round(op, memory_of(now), home, rounds), places{uniform(here.begin), uniform(here.end)};
    if (run * run_rows < places.end - places.begin) {
      stage_run<Element, Wire>(op.with(now.group), now, stage, ring, home, places, run);
    }
  }
  return true;
}

// Verb of the summing warps, of a relay: sums for homes elsewhere, likewise.
template <class Element, class Wire>
UCCLEP_FN bool relay_turns(const Op& op, const HtCombineArgs& args, const Stage& stage, SumRing& ring,
                           const WarpRole& reduce) {
  return in_turns(op, Turn::relays, reduce, [&](const Worker& worker) {
    return Wire::template send_sums<Element>(reload(args), op, stage, ring, worker);
  });
}

// Warp verb: the partial rows of one token that are terms of their own, ranks ascending, once they are there: where
// they were exposed, where they are staged, or where they landed.
template <class Wire>
UCCLEP_FN bool partials_of(const Op& op, const HandleMemory& memory, const HtCombineArgs& args,
                           const PeerTensors* exposed, uint32_t token, Terms& terms) {
  constexpr bool lands = Wire::network && Wire::masks;  // rows of ranks come by the network, not sums of nodes
  const WindowLayout& window = op.group.layout;
  const Selection selection = selection_of(memory, token);
  const bool sends = selection.sends() && Wire::is_term(op, selection.rank);
  const uint64_t mask = ballot(sends);
  uint32_t order = 0;
  for (uint64_t left = mask; left != 0; left &= left - 1) {
    if (broadcast(selection.rank, first_lane(left)) < selection.rank) ++order;
  }
  terms = {terms.rows, count_lanes(mask), 0};
  bool ok = true;
  const char* row = nullptr;
  if (sends) {
    const uint32_t rank = selection.rank, place = selection.place;
    const PeerTensors& peer = exposed[rank];
    if (peer.given) {
      if (peer.holds(place)) row = peer.token(place);
    } else if (lands && !op.has_window(rank)) {
      // NOLINTNEXTLINE(bugprone-redundant-branch-condition): other Wires have no such function
      if constexpr (lands) ok = Wire::partial_in(op, args.partial_bytes, rank, place, row);
    } else {
      const uint64_t words = window.back_epochs_of(op.slot, rank);
      const uint32_t at = place - sent_before(op, memory, rank);
      ok = wait_word(op, Phase::rows, rank, op.mine() + words + 8 * uint64_t{at / run_rows});
      row = staged_partial(op, args.partial_bytes, {rank, op.me(), at}, window.back_places_of(op.slot, rank));
    }
    terms.rows[order] = row;
    if (args.weights_back) {
      const bool own = peer.given;  // a rank with weights to return exposes nothing to others
      const float* weights = row == nullptr ? nullptr : weights_behind(row, args.row_bytes);
      if (own && row != nullptr) {
        weights = reinterpret_cast<const float*>(args.weight_rows.at(0, int64_t{peer.base} + place));
      }
      weights_of(terms)[order] = weights;
    }
  }
  for (uint64_t left = ballot(sends && row == nullptr); left != 0; left &= left - 1) {
    terms.zero |= uint64_t{1} << broadcast(order, first_lane(left));
  }
  acquire_then_bulk();
  return every_lane(ok);
}

// In which round a token is, of this one and later ones.
template <class Wire>
UCCLEP_FN Op round_of_token(const Op& op, const HtCombineArgs& args, uint32_t token) {
  if (Wire::rounds(memory_of(args)) == 1) return op;
  return op.in_round(token / op.group.shape.ht_tokens);
}

// Verb of the summing warps of the grid: tokens of the round, or of later ones as well. The rows of a token that the
// output lacks (compare_tokens) are waited for as well, since others wait until they are read.
template <class Element, class Wire>
UCCLEP_FN bool sum_tokens(const Op& op, const HtCombineArgs& args, const PeerTensors* exposed, const Stage& stage,
                          SumRing& ring, TokenPool& pool) {
  for (WarpUniform token = pool.take(); token < pool.end; token = pool.take()) {
    const HtCombineArgs& now = reload(args);
    const uint32_t bytes = token < now.output_rows ? uniform(now.row_bytes) : 0;
    Terms terms{reinterpret_cast<const char**>(stage.scratch()), 0, 0};
    const Op here = round_of_token<Wire>(op.with(now.group), now, token);
    if (!partials_of<Wire>(here, memory_of(now), now, exposed, token, terms)) return false;
    if constexpr (Wire::network) {
      if (!has_masks<Wire>(now.group) && !Wire::template sum_own_node<Element>(here, now, token, ring, terms)) {
        return false;
      }
    }
    if (now.weights_back && bytes != 0) {
      sum_weights(terms, now.settings.top_k, reinterpret_cast<float*>(now.weights_out.at(0, token)));
    }
    ring.sum<Element>(terms, bytes,
                      [&](uint32_t offset, Vector<Element>& sum) { combining::store_result(now, sum, token, offset); });
    if constexpr (Wire::rings) Wire::sums_read(reload(args), op, token);
  }
  return true;
}

// What a warp does of a combine, round by round.
template <class Element, class Wire>
struct PartialMover {
  const HtCombineArgs& args;
  Stage& stage;
  SumRing& ring;
  const PeerTensors* exposed;
  CombineWarpRoles roles;
  WarpUniform rounds;
  Shares rows, arrivals;
  bool rest_summed = false;

  UCCLEP_FN bool send(const Op& op) {
    bool ok = true;
    if (roles.copy.has_me()) {
      ok = in_turns(op, roles.copy, rows, [&](const Worker& worker) {
        return stage_runs<Element, Wire>(op, reload(args), stage, ring, rounds, worker);
      });
    }
    if constexpr (Wire::network) {
      if (roles.reduce.has_me()) ok = relay_turns<Element, Wire>(op, reload(args), stage, ring, roles.reduce);
      if (roles.copy.has_me() && ok) ok = Wire::stage_sums(reload(args), op, stage, roles.copy.me());
    }
    return ok;
  }

  // Rounds that nobody waits for are one pool.
  UCCLEP_FN bool receive(const Op& op) {
    if (!roles.reduce.has_me() || rest_summed) return true;
    rest_summed = !is_awaited(op, rounds);
    return receive_shares(op, roles.reduce, rounds, arrivals, [&](const Worker& worker) {
      const HtCombineArgs& now = reload(args);
      const uint32_t tokens = routed_tokens(memory_of(now));
      const TokenRange range = TokenRange::of(op, tokens);
      TokenPool pool = rest_summed ? TokenPool::of_block(stage, range.begin, tokens)
                                   : TokenPool::of_share(range, worker);
      return sum_tokens<Element, Wire>(op, now, exposed, stage, ring, pool);
    });
  }
};

// Block verb, when READY is in. turn: of rows, from begin_turn.
template <class Element, class Wire, Phases phases>
UCCLEP_FN bool move_partials(const Op& op, const HandleMemory& memory, const HtCombineArgs& args, Stage& stage,
                             uint32_t turn) {
  PeerTensors* exposed = exposed_of(stage);
  const bool stays = phases != Phases::send && args.zones == Zones::sources && !args.device_initiated;
  if (thread_id() == 0 && stays) exposed[op.me()] = own_tensors(memory, args.tokens, View{}, args.capacity, op.me());
  TokenPool::fill(stage);
  sync_block();
  SumRing ring(stage);
  if (phases != Phases::send && block_id() == 0 && thread_id() == 0) {
    compare_tokens(op, memory, args.output_rows, args.settings.top_k);
  }
  const SentRounds sent = SentRounds::of(op, Wire::rounds(memory), phases);
  const bool stages = sent.first < sent.end && !exposes(op, args.offer);
  CombineWarpRoles roles = CombineWarpRoles::of(stages, args.zones != Zones::sources);
  if (phases == Phases::send && !Wire::network) roles = {{0, block::warps()}, {0, 0}};
  PartialMover<Element, Wire> mover{args,
                                    stage,
                                    ring,
                                    exposed,
                                    roles,
                                    sent.all,
                                    shares_sent(Turn::rows, sent, turn),
                                    shares_received(op, sent)};
  const bool ok = in_rounds(
      op, sent, phases != Phases::send, [&](const Op& round) { return mover.send(round); },
      [&](const Op& round) { return mover.receive(round); });
  return every_thread(ok);
}

// Block verb.
template <class Element, class Wire, Phases phases>
UCCLEP_FN bool exchange_partials(const Op& op, const OpState& op_state, const HandleMemory& memory,
                                 const HtCombineArgs& args, Stage& stage) {
  const uint32_t turn = begin_turn(op, Turn::rows);  // it comes while READY does
  const HeaderResult ready = exchange_ready<Wire>(op, op_state, memory, args.settings, args.offer, args.wait_ns, stage);
  if (ready != HeaderResult::good) {
    if constexpr (Wire::network) Wire::give_up(op, memory, ready, args.partial_bytes);
    return ready == HeaderResult::differs;
  }
  return move_partials<Element, Wire, phases>(op, memory, args, stage, turn);
}

template <class Element, class Wire>
UCCLEP_FN void combine(const HtCombineArgs& args) {
  const OpState op_state = OpState::load(args.group, Kind::combine);
  Stage stage(args.piece_bytes);
  const Op op = next_operation(args.group, Kind::combine, Operation::combine, op_state);
  const HandleMemory memory{args.handle, args.group.shape};
  const bool ok = exchange_partials<Element, Wire, Phases::whole>(op, op_state, memory, args, stage);
  const HtCombineArgs& now = reload(args);
  const Op last = op.with(now.group).in_round(Wire::rounds(memory_of(now)) - 1);
  Wire::end(last, ok, exposes(last, now.offer));
}

// The send phase stages what others pull, as far as there are slots; a relay adds up what goes to other nodes, and
// stages what comes from there.
template <class Element, class Wire>
UCCLEP_FN void send_combine(const HtCombineArgs& args) {
  const OpState op_state = OpState::load(args.group, Kind::combine);
  Stage stage(args.piece_bytes);
  const Op op = next_operation(args.group, Kind::combine, Operation::combine, op_state);
  if (has_masks<Wire>(args.group) && !begins_to_send(op)) return;
  const HandleMemory memory{args.handle, args.group.shape};
  const bool ok = exchange_partials<Element, Wire, Phases::send>(op, op_state, memory, args, stage);
  const HtCombineArgs& now = reload(args);
  end_send_phase_of<Wire>(op.with(now.group), memory_of(now), ok, Wire::rounds(memory_of(now)));
}

// The receive phase, also of a device-initiated combine (ht_combine.hpp), which has staged this rank's
// own rows, too. Where none is pending: nothing.
template <class Element, class Wire>
UCCLEP_FN void complete_combine(const HtCombineArgs& args) {
  Stage stage(args.piece_bytes);
  const ReceivePhase phase = ReceivePhase::of<Wire::masks>(args, Kind::combine, Operation::combine);
  if (!phase.any) return;
  const Op& op = phase.op;
  const HandleMemory memory{args.handle, args.group.shape};
  const auto receive = [&] {
    const HeaderResult ready = ready_before<Wire>(op, memory, args.settings, args.wait_ns, stage);
    if (ready != HeaderResult::good) return ready == HeaderResult::differs;
    return move_partials<Element, Wire, Phases::receive>(op, memory, args, stage, begin_turn(op, Turn::rows));
  };
  phase.end<Wire>(phase.may_read() && receive(), Wire::rounds(memory));
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

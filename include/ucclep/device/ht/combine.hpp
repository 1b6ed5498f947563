// SPDX-License-Identifier: Apache-2.0
// HT combine. A partial row crosses a link once: its home pulls it, and adds it up at once. Some warps of every block
// stage partial rows in this rank's window, the others add up what homes here are waiting for, so that sums are made
// while rows fly. The arithmetic is that of rows/reduce.hpp.
//
//   slots free -> READY out -> READY in -> runs of partial rows staged | per token: wait for its rows, pull and add,
//   write -> end
// Between nodes the warps that add up do so for homes elsewhere first (ht/nodes/node_sums.hpp).
// Floor: partial rows from peers * row bytes / link bandwidth, plus READY's way, the first run's, and one sum.
//
// Runs are staged for all homes in turn, by place, and sums take tokens in order: what was staged first is wanted
// first. A sum waits for copy warps only, and a copy warp for nobody but, in later rounds, those who read its slot
// (ht/rounds.hpp); it takes its shares by turns (protocol/turns.hpp): so all are staged by the blocks that are
// resident. In FLAT a partial row is a row of the caller's: of this rank it is read where it is, and of a rank that has
// exposed its tensor too; such a rank stages nothing.
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
#include "ucclep/device/ht/rounds.hpp"
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
#include "ucclep/device/protocol/turns.hpp"
#include "ucclep/device/rows/deliver.hpp"
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

// The tokens that reduce warps take one by one, in order: every grid_size()-th of the rank's goes to the next free warp
// of the block. Where peers wait for a round, the pool has the tokens of all blocks, as not all may be resident. A warp
// that waits for a row does not keep other warps from the next token.
struct TokenPool {
  // Before the table of exposed tensors: an address that is known anyway takes no register of its own.
  static UCCLEP_FN uint32_t* of_block(const Stage& stage) { return reinterpret_cast<uint32_t*>(stage.beyond()); }
  // Block verb. Others may take after the next sync_block.
  static UCCLEP_FN void fill(const Stage& stage) {
    if (thread_id() == 0) *of_block(stage) = 0;
  }
  // Warp verb: the next token; at or past their number when none is left.
  static UCCLEP_FN uint32_t take(const Op& op, const Stage& stage, bool of_all) {
    uint32_t* const taken = of_all ? turns_of(op, Turn::arrivals, 0) : of_block(stage);
    uint32_t index = 0;
    if (lane_id() == 0) index = fetch_add_relaxed<Scope::gpu>(taken, 1u);
    index = broadcast(index, 0);
    return of_all ? index : block_id() + index * grid_size();
  }
};

// What the copies of a row are multiplied by before they are added (tiles), in the scratch behind Terms::rows: the
// weights that dispatch was given.
UCCLEP_FN float* factors_of(const Terms& terms) {
  return reinterpret_cast<float*>(terms.rows + max_top_k);
}

// Warp verb: the copies of one received row, experts ascending.
UCCLEP_FN Terms copies_of(const HandleMemory& memory, const HtCombineArgs& args, char* scratch, uint32_t home,
                          uint32_t place) {
  const uint32_t count = memory.recv_count(home)[place], i = lane_id();
  RecvEntry entry{};
  if (i < count) entry = memory.recv_entries(home, place)[i];
  const bool present = i < count && entry.row < args.capacity;
  const uint64_t mask = ballot(present);
  Terms terms{reinterpret_cast<const char**>(scratch), count_lanes(mask), 0};
  if (present) {
    const uint32_t order = count_lanes(mask & ((uint64_t{1} << i) - 1));
    terms.rows[order] = args.tokens.at(0, entry.row);
    if (args.weighted) factors_of(terms)[order] = entry.weight;
  }
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
  const auto store = [&](uint32_t offset, const Vector<Element>& sum) { store16_stream(to + offset, sum.pack()); };
  if (!args.weighted) return ring.sum<Element>(terms, bytes, store);
  ring.sum<Element>(terms, bytes, store, [&](Vector<Element>& term, uint32_t i) { term.scale(factors_of(terms)[i]); });
}

// Warp verb: a run of partial rows for one home, and the word that says so. first, rows: its places in the round.
template <class Element, class Wire>
UCCLEP_FN void stage_run(const Op& op, const HtCombineArgs& args, Stage& stage, SumRing& ring, uint32_t home,
                         uint32_t first, uint32_t rows, uint32_t run) {
  const bool pooled = op.group.shape.pool_rows != 0;
  const uint32_t begin = run * run_rows;
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
    const WindowLayout& window = now.group.layout;
    const uint64_t rows_at = pooled ? window.pool_of(op.slot) : window.back_rows_of(op.slot, home);
    char* const row = now.group.mine + rows_at + uint64_t{index} * now.partial_bytes;
    stage_partial<Element>(memory_of(now), now, stage, ring, row, home, place);
    if (now.weights_back) stage_weights(memory_of(now), now, row, home, place);
  }
  bulk_wait_written();
  if (lane_id() == 0) publish(Wire::run_words(op, home) + run, op.seq);
}

// Warp verb: does a run leave with the waves of a launch: with the last of its rows.
UCCLEP_FN bool run_leaves_in(const HandleMemory& memory, const WaveRange& waves, uint32_t home, uint32_t first,
                             uint32_t rows) {
  if (waves.of == 1) return true;
  static_assert(run_rows <= wave_size);
  const uint32_t wave = reduce_max(lane_id() < rows ? highest_wave(memory, waves.of, home, first + lane_id()) : 0);
  return wave >= waves.first && wave < waves.end;
}

// Verb of the staging warps of the grid, of a round. masks: the group may have some.
template <class Element, class Wire, Phases phases, bool masks>
UCCLEP_FN bool stage_runs(const Op& op, const HtCombineArgs& args, Stage& stage, SumRing& ring, const Worker& worker) {
  if (op.round != 0 && !Wire::slot_free(op)) return false;
  const uint32_t skipped = args.zones == Zones::sources ? 1 : 0;  // this rank's own rows
  const WarpUniform homes = op.ranks() - skipped;
  if (homes == 0) return true;
  uint32_t most = 0;
  for (uint32_t r = 0; r < op.ranks(); ++r) {
    const PlaceRange places = came_in_round(op, memory_of(args), r);
    const uint32_t rows = uniform(places.end - places.begin);
    most = rows > most ? rows : most;
  }
  const WarpUniform items = (most + run_rows - 1) / run_rows * homes;
  for (WarpUniform item = worker.index; item < items; item += worker.workers) {
    const HtCombineArgs& now = reload(args);
    const uint32_t home = op.rotated(item % homes + skipped), run = item / homes;
    if (masks && is_masked(now.group, home)) continue;  // of its rows there may be none
    const PlaceRange places = came_in_round(op, memory_of(now), home);
    const uint32_t first = uniform(places.begin), rows = uniform(places.end) - first;
    if (run * run_rows >= rows) continue;
    if constexpr (phases == Phases::send) {
      const uint32_t begin = run * run_rows, left = rows - begin, of_run = left < run_rows ? left : run_rows;
      if (!run_leaves_in(memory_of(now), now.waves, home, first + begin, of_run)) continue;
    }
    stage_run<Element, Wire>(op.with(now.group), now, stage, ring, home, first, rows, run);
  }
  return true;
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

// Warp verb. The rows of a token that the output lacks (compare_tokens) are waited for as well, since others wait until
// they are read.
template <class Element, class Wire>
UCCLEP_FN bool sum_token(const Op& op, const HtCombineArgs& args, const PeerTensors* exposed, const Stage& stage,
                         SumRing& ring, const WarpUniform& token) {
  const uint32_t bytes = token < args.output_rows ? uniform(args.row_bytes) : 0;
  Terms terms{reinterpret_cast<const char**>(stage.scratch()), 0, 0};
  if (!partials_of<Wire>(op, memory_of(args), args, exposed, token, terms)) return false;
  if constexpr (Wire::network) {
    if (!has_masks<Wire>(args.group) && !Wire::template sum_own_node<Element>(op, args, token, ring, terms)) {
      return false;
    }
  }
  if (args.weights_back && bytes != 0) {
    sum_weights(terms, args.settings.top_k, reinterpret_cast<float*>(args.weights_out.at(0, token)));
  }
  ring.sum<Element>(terms, bytes,
                    [&](uint32_t offset, Vector<Element>& sum) { combining::store_result(args, sum, token, offset); });
  return true;
}

// What a warp does of a combine. What is known anyway is asked for anew: it would take registers.
template <class Element, class Wire, Phases phases>
struct PartialMover {
  const HtCombineArgs& args;
  Stage& stage;
  SumRing& ring;
  const PeerTensors* exposed;
  bool stages;

  UCCLEP_FN uint32_t rounds() const { return Wire::rounds(memory_of(reload(args))); }
  UCCLEP_FN bool has_awaited(const Op& op) const { return rounds() > op.group.shape.in_flight; }
  UCCLEP_FN CombineWarpRoles roles() const {
    if (phases == Phases::send && !Wire::network) return {{0, block::warps()}, {0, 0}};
    return CombineWarpRoles::of(stages, reload(args).zones != Zones::sources);
  }

  UCCLEP_FN bool send(const Op& op, const SentRounds& sent, uint32_t turn) {
    constexpr bool later = phases == Phases::receive;  // the rounds that a send phase has left, of groups without masks
    constexpr bool masks = Wire::masks && !later;
    if (!roles().copy.has_me()) return true;
    return in_turns(op, Turn::rows, roles().copy, sent, turn, [&](const Op& round, const Worker& worker) {
      return stage_runs<Element, Wire, phases, masks>(round, reload(args), stage, ring, worker);
    });
  }

  UCCLEP_FN Op round_of(const Op& op, uint32_t token) const {
    const HtCombineArgs& now = reload(args);
    return op.with(now.group).in_round(token / now.group.shape.ht_tokens);
  }
  // A token of a round has been summed, or a share of a relay's. Without either there is one part, in the first round.
  UCCLEP_FN bool note_summed(const Op& op) const {
    if (!is_awaited(op, rounds())) return true;
    const HandleMemory memory = memory_of(reload(args));
    const uint32_t tokens = routed_tokens(memory), shares = Wire::network ? roles().reduce.warps * grid_size() : 0;
    const RoundParts parts{tokens == 0 && shares == 0 ? 1 : tokens, shares, 0, 0};
    return Wire::part_read(op, memory.parts_read(), rounds(), parts);
  }
  UCCLEP_FN bool sum_tokens(const Op& op) const {
    for (;;) {
      const HtCombineArgs& now = reload(args);
      const WarpUniform token = TokenPool::take(op, stage, has_awaited(op));
      if (token >= routed_tokens(memory_of(now))) return true;
      if (!sum_token<Element, Wire>(round_of(op, token), now, exposed, stage, ring, token)) return false;
      if (has_awaited(op) && !note_summed(round_of(op, token))) return false;
    }
  }

  // What a warp that relays has taken and not used yet, in words of its shared memory.
  UCCLEP_FN WarpUniform kept(Turn what) const {
    return turn_in(lane_id() == 0 ? stage.turns()[static_cast<uint32_t>(what)] : 0);
  }
  UCCLEP_FN void keep(Turn what, uint32_t taken) const {
    if (lane_id() == 0) stage.turns()[static_cast<uint32_t>(what)] = taken;
  }
  UCCLEP_FN void take_token(const Op& op) const { keep(Turn::arrivals, TokenPool::take(op, stage, has_awaited(op))); }

  // Tokens of so many rounds.
  UCCLEP_FN bool sum_rounds(const Op& op, const WarpUniform& rounds) const {
    for (;; take_token(op)) {
      const HtCombineArgs& now = reload(args);
      const WarpUniform token = kept(Turn::arrivals);
      if (token >= routed_tokens(memory_of(now)) || token / now.group.shape.ht_tokens >= rounds) return true;
      if (!sum_token<Element, Wire>(round_of(op, token), now, exposed, stage, ring, token)) return false;
      if (has_awaited(op) && !note_summed(round_of(op, token))) return false;
    }
  }

  // Of a relay: the rounds in which it has shares in this launch. Those that the send phase has sent are awaited all
  // the same.
  UCCLEP_FN SentRounds relayed(const Op& op) const {
    SentRounds some = SentRounds::of(reload(args).group.shape, rounds(), phases);
    if (phases == Phases::receive && has_awaited(op)) some.first = 0;
    return some;
  }
  // A share of a round: sums for homes elsewhere.
  UCCLEP_FN bool relay_share(const Op& op, uint32_t block) const {
    const HtCombineArgs& now = reload(args);
    const bool sent = phases == Phases::receive && op.round < now.group.shape.in_flight;
    const Worker worker = roles().reduce.in(block);
    if (!sent && !Wire::template send_sums<Element>(now, op.with(now.group), stage, ring, worker)) return false;
    return phases == Phases::send || note_summed(op);
  }

  // Of the warps that sum, and relay. Tokens of a round are summed before a round is relayed that waits for it. Each
  // warp looks before a share whether one will be left, as in in_turns.
  UCCLEP_FN bool relay_and_sum(const Op& op) const {
    constexpr bool sums = phases != Phases::send;
    constexpr Turn seen = Turn::headers;  // a word that is free
    if (sums) take_token(op);
    keep(Turn::relays, begin_turn(op, Turn::relays));
    for (;;) {
      const SentRounds some = relayed(op);
      const WarpUniform turn = kept(Turn::relays), all = (some.end - some.first) * grid_size();
      const uint32_t slots = reload(args).group.shape.in_flight, round = some.first + turn / grid_size();
      const uint32_t summed = turn >= all ? max_rounds : round < slots ? 0 : round - slots + 1;
      if (sums && !sum_rounds(op, summed)) return false;
      if (turn >= all) return true;
      keep(seen, look_at_turns(op, Turn::relays));
      if (!relay_share(op.in_round(round), turn % grid_size())) return false;
      keep(Turn::relays, kept(seen) >= all ? no_turn : begin_turn(op, Turn::relays));
    }
  }

  // The order of ht/rounds.hpp: where rounds are awaited no warp sends and sums (has_rounds of the host). turn: of
  // rows, from begin_turn.
  UCCLEP_FN bool move(const Op& op, const SentRounds& sent, uint32_t turn) {
    if (!send(op, sent, turn)) return false;
    // Of waves the last relays, and sums: what these wait for is all rows.
    if (phases == Phases::send && (!Wire::network || !reload(args).waves.ends())) return true;
    if (!roles().reduce.has_me()) return true;
    if constexpr (Wire::network) {
      return relay_and_sum(op);
    } else {
      return sum_tokens(op);
    }
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
  const SentRounds sent = SentRounds::of(op.group.shape, Wire::rounds(memory), phases);
  const bool stages = sent.first < sent.end && !exposes(op, args.offer);
  PartialMover<Element, Wire, phases> mover{args, stage, ring, exposed, stages};
  bool ok = true;
  if (!Wire::network && phases != Phases::send && routed_tokens(memory) == 0 && block_id() == 0 && warp_id() == 0) {
    ok = mover.note_summed(op);
  }
  return every_thread(ok && mover.move(op, sent, turn));
}

// Block verb.
template <class Element, class Wire, Phases phases>
UCCLEP_FN HeaderResult exchange_partials(const Op& op, const OpState& op_state, const HandleMemory& memory,
                                         const HtCombineArgs& args, Stage& stage) {
  const uint32_t turn = begin_turn(op, Turn::rows);  // it comes while READY does
  const bool begins = phases != Phases::send || args.waves.begins();
  if (!begins && !every_thread(op_state.abort == 0)) return HeaderResult::lost;
  const HeaderResult ready =
      begins ? exchange_ready<Wire>(op, op_state, memory, args.settings, args.offer, args.wait_ns, stage)
             : ready_before<Wire>(op, memory, args.settings, View{}, stage);
  if (ready != HeaderResult::good) {
    if constexpr (Wire::network) {
      if (begins) Wire::give_up(op, memory, ready, args.partial_bytes);
    }
    return ready;
  }
  const bool ok = move_partials<Element, Wire, phases>(op, memory, args, stage, turn);
  return ok ? HeaderResult::good : HeaderResult::lost;
}

template <class Element, class Wire>
UCCLEP_FN void combine(const HtCombineArgs& args) {
  const OpState op_state = OpState::load(args.group, Kind::combine);
  Stage stage(args.piece_bytes);
  const Op op = next_operation(args.group, Kind::combine, Operation::combine, op_state);
  const HandleMemory memory{args.handle, args.group.shape};
  const HeaderResult result = exchange_partials<Element, Wire, Phases::whole>(op, op_state, memory, args, stage);
  const HtCombineArgs& now = reload(args);
  const uint32_t rounds = rounds_moved<Wire>(memory_of(now), result);
  const Op last = op.with(now.group).in_round(rounds - 1);
  Wire::end(last, result != HeaderResult::lost, exposes(last, now.offer), rounds);
}

// The send phase stages what others pull, as far as there are slots; a relay adds up what goes to other nodes. In waves
// it is a launch for each, and what relays do is for the last, since it waits for all rows.
template <class Element, class Wire>
UCCLEP_FN void send_combine(const HtCombineArgs& args) {
  const bool in_waves = args.waves.of > 1;
  if (in_waves && args.waves.end == 0) return take_number(args, Kind::combine, Operation::combine);
  const OpState op_state = OpState::load(args.group, Kind::combine);
  Stage stage(args.piece_bytes);
  const Op op = in_waves ? ReceivePhase::of(args, Kind::combine, Operation::combine).op
                         : next_operation(args.group, Kind::combine, Operation::combine, op_state);
  if (has_masks<Wire>(args.group) && !begins_to_send(op)) return;
  const HandleMemory memory{args.handle, args.group.shape};
  const HeaderResult result = exchange_partials<Element, Wire, Phases::send>(op, op_state, memory, args, stage);
  const HtCombineArgs& now = reload(args);
  const bool ok = result != HeaderResult::lost;
  if (in_waves) return end_part(op.with(now.group), ok);
  end_send_phase_of<Wire>(op.with(now.group), memory_of(now), ok, rounds_moved<Wire>(memory_of(now), result));
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
    if (ready != HeaderResult::good) return ready;
    const uint32_t turn = begin_turn(op, Turn::rows);
    const bool ok = move_partials<Element, Wire, Phases::receive>(op, memory, args, stage, turn);
    return ok ? HeaderResult::good : HeaderResult::lost;
  };
  const HeaderResult result = phase.may_read() ? receive() : HeaderResult::lost;
  phase.end<Wire>(result != HeaderResult::lost, rounds_moved<Wire>(memory, result));
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// The sending side of an HT dispatch. A row is read once. Ranks that exposed their output, and this rank itself in
// FLAT, get it where it belongs; for the others it is staged once, and each of them pulls it. Its meta goes to every
// rank that gets the row, into that rank's landing, in order of place: to those who pull with an epoch that says that
// the row is staged, to the others as lines, or packets where lines do not arrive whole (P15).
//
// The routing may have more tokens than the caller's tensors (compare_tokens). The Update has announced their rows, and
// others wait for them: they are zeros, with weight 0.
//
// clang-format off
// | who releases                                   | who acquires                    | what is ordered              |
// |------------------------------------------------|---------------------------------|------------------------------|
// | publish_run: publish of a meta line's epoch,   | wait_word, then                 | meta body and, if it is      |
// |   after bulk_wait_written                      |   acquire_then_bulk             |   staged, the row            |
// clang-format on
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/rounds.hpp"
#include "ucclep/device/ht/zero_copy.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/phases.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/protocol/token_sets.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/rows/stage.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// Tokens whose metas are announced together: waiting for their arrival costs as much as a row.
constexpr uint32_t run_tokens = 4;

// Does a rank get its rows by pulling them.
UCCLEP_FN bool pulls(const PeerTensors& peer) {
  return !peer.given;
}

// Lane k's weight of a token, of which the caller's tensors may have no row.
UCCLEP_FN float given_weight(const HtDispatchArgs& args, uint32_t token, const Selection& selection) {
  if (token >= args.tokens) return 0;
  return weight_of(args.settings.top_k, args.topk_weights, token, selection);
}

// A RowSink to which the pieces of a row go, or zeros in their place.
template <class Sink>
struct OrZeros {
  const Sink& sink;
  bool zeros;

  UCCLEP_FN void put(char* piece, uint64_t at, uint32_t bytes) const {
    if (zeros) {
      for (uint32_t b = lane_id() * 16; b < bytes; b += wave_size * 16) store16(piece + b, vec16{});
      smem_to_bulk();
    }
    sink.put(piece, at, bytes);
  }
};

// Warp verb: the meta line of a token to the ranks of the lanes with `to`, but for the epoch.
UCCLEP_FN void send_meta(const Op& op, const HtDispatchArgs& args, Stage& stage, uint32_t token,
                         const Selection& selection, bool to) {
  const GroupShape& shape = op.group.shape;
  build_meta(shape, token, selection, given_weight(args, token, selection), stage.scratch());
  char* meta = stage.scratch();
  if (to) {
    meta = meta_at(op, selection.rank, op.me(), place_in_round(op, memory_of(args), selection.rank, selection.place));
  }
  bulk_store(to, meta, stage.scratch(), MetaLayout::of(shape.top_k).body_bytes());
}

// Warp verb: says of the metas of tokens [begin, end) that they have arrived, at the ranks that pull. word: of a meta,
// its epoch if their rows are staged.
template <class Wire>
UCCLEP_FN void publish_run(const Op& op, const HandleMemory& memory, const PeerTensors* exposed, uint32_t begin,
                           uint32_t end, uint32_t word) {
  bulk_wait_written();
  const uint32_t top_k = op.group.shape.top_k;
  for (uint32_t i = begin * top_k + lane_id(); i < end * top_k; i += wave_size) {
    const uint32_t place = memory.at<uint32_t>(memory.handle.offsets.places)[i];
    if (place == no_place) continue;
    const auto expert = static_cast<uint32_t>(memory.at<int32_t>(memory.handle.offsets.topk)[i]);
    const uint32_t rank = op.group.shape.rank_of(expert);
    if (!Wire::reaches(op, rank) || !pulls(exposed[rank])) continue;
    char* meta = meta_at(op, rank, op.me(), place_in_round(op, memory, rank, place));
    publish(reinterpret_cast<uint64_t*>(meta + word), op.seq);
  }
  sync_warp();
}

// Warp verb: ids, weights and source of an own row that stays here (FLAT).
UCCLEP_FN void keep_own(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, uint32_t token,
                        const Selection& selection, uint64_t mine) {
  const ReceivedSelection s{selection.expert, given_weight(args, token, selection), selection.position};
  const uint32_t place = broadcast(selection.place, first_lane(mine));
  const Arrival arrival{op.me(), place, token};
  const Target target = place_row(op, args.output, arrival, s, memory.recv_base()[op.me()]);
  note_placed(op, memory, args.output, arrival, s, target);
}

// Where a row lies that its source has staged, in the source's window.
UCCLEP_FN uint64_t staged_at(const Op& op, uint32_t token, uint32_t row_bytes) {
  const uint32_t at = token - op.round * op.group.shape.ht_tokens;
  return op.group.layout.ht_rows_of(op.slot) + uint64_t{at} * row_bytes;
}

// Are metas sent ahead of the rows: peers may receive those of some waves first.
template <class Wire, Phases phases>
UCCLEP_FN bool metas_first(const HtDispatchArgs& args) {
  return phases == Phases::send && !Wire::network && args.waves.of > 1;
}

// Warp verb: one own row to all that want it. A send phase writes nothing of the output: the own rows are staged, too.
template <class Row, class Wire, Phases phases>
UCCLEP_FN void send_row(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                        const PeerTensors* exposed, uint32_t token) {
  const Selection selection = selection_of(memory, token);
  const PeerTensors& peer = exposed[selection.rank];
  const bool sends = selection.sends() && Wire::reaches(op, selection.rank);
  const bool staged = ballot(sends && pulls(peer)) != 0;
  const bool direct = sends && !pulls(peer) && peer.holds(selection.place);
  typename Wire::RemoteRow remote(op, memory, args, token, selection);
  if (!staged && ballot(direct) == 0 && !remote.any()) return;  // nobody wants it
  const bool given = token < args.tokens;
  const uint32_t row = given ? token : 0;  // there always is one
  Row::fetch(stage, args.source, row);
  if (staged || remote.any()) {
    remote.write_places(op, memory, stage.scratch(), selection);
    send_meta(op, args, stage, token, selection, sends && pulls(peer) && !metas_first<Wire, phases>(args));
    remote.send_head(op.group.shape, stage.scratch());
  }
  if (phases == Phases::whole && args.output.zones == Zones::sources) {
    const uint64_t mine = ballot(sends && selection.rank == op.me());
    if (mine != 0) keep_own(op, memory, args, token, selection, mine);
  }
  char* staging = op.mine() + staged_at(op, token, args.source.wire.row_bytes);
  RowTargets targets{args.source.wire, staged ? staging : nullptr, direct, stage.scratch(), stage.scratch(), 0};
  if (direct) {
    targets.tokens = peer.token(selection.place);
    targets.scales = peer.scale(selection.place);
    targets.scale_step = peer.scales.step;
  }
  const auto& all = remote.and_to(targets, stage.scratch());
  Row::send(stage, args.source, row, OrZeros<decltype(all)>{all, !given});
}

// Warp verb: the first of a round's senders says which places come in it.
template <class Wire>
UCCLEP_FN bool begin_to_send(const Op& op, const HandleMemory& memory, bool waits, bool first) {
  if (op.round == 0) return true;
  if ((waits || first) && !Wire::slot_free(op)) return false;
  return !first || Wire::send_places(op, memory);
}

// Verb of the sending warps of the grid: the metas of all tokens. One round.
template <class Wire>
UCCLEP_FN void send_metas_first(const HtDispatchArgs& args, const Op& op, Stage& stage, const PeerTensors* exposed,
                                const Worker& worker) {
  const WarpUniform all = routed_tokens(memory_of(args));
  for (WarpUniform next = worker.index * run_tokens; next < all; next += worker.workers * run_tokens) {
    const HtDispatchArgs& now = reload(args);
    const Op same = op.with(now.group);
    const uint32_t end = all - next < run_tokens ? uint32_t{all} : next + run_tokens;
    for (uint32_t token = next; token < end; ++token) {
      bulk_wait_read();  // the scratch is free for the next meta
      const Selection selection = selection_of(memory_of(now), token);
      const bool to = selection.sends() && Wire::reaches(same, selection.rank) && pulls(exposed[selection.rank]);
      if (ballot(to) != 0) send_meta(same, now, stage, token, selection, to);
    }
    publish_run<Wire>(same, memory_of(now), exposed, next, end, MetaLayout::of(now.group.shape.top_k).known());
  }
}

// Verb of the sending warps of the grid, of a round.
template <class Row, class Wire, Phases phases>
UCCLEP_FN bool send_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const PeerTensors* exposed,
                         bool pulled, const Worker& worker) {
  const bool first = worker.index == 0;
  if (first && lane_id() == 0) compare_tokens(op, memory_of(args), args.tokens, args.settings.top_k);
  if (!begin_to_send<Wire>(op, memory_of(args), pulled, first)) return false;
  if (metas_first<Wire, phases>(args)) send_metas_first<Wire>(args, op, stage, exposed, worker);
  const TokenRange tokens = TokenRange::of(op, routed_tokens(memory_of(args)));
  for (WarpUniform next = tokens.begin + worker.index * run_tokens; next < tokens.end;
       next += worker.workers * run_tokens) {
    const uint32_t begin = next, all = tokens.end, end = all - begin < run_tokens ? all : begin + run_tokens;
    for (uint32_t token = begin; token < end; ++token) {
      const HtDispatchArgs& now = reload(args);
      send_row<Row, Wire, phases>(op.with(now.group), memory_of(now), now, stage, exposed, token);
    }
    if (!pulled) continue;
    const HtDispatchArgs& now = reload(args);
    const uint32_t staged = MetaLayout::of(now.group.shape.top_k).epoch;
    publish_run<Wire>(op.with(now.group), memory_of(now), exposed, begin, end, staged);
    if (!Wire::push_run(op, reload(args), begin, end)) return false;
  }
  return true;
}

// Where the lines of a meta land.
UCCLEP_FN char* meta_lines_at(const Op& op, uint32_t receiver, uint32_t source, uint32_t at) {
  return op.window(receiver) + op.group.layout.ht_lines_of(op.slot, source) + at * meta_line_bytes(op.group.shape);
}

// Warp verb: the metas of up to run_tokens tokens to ranks that do not pull. What they are made of is read at once.
UCCLEP_FN void send_meta_lines(const Op& op, const HtDispatchArgs& args, const Stage& stage, const PeerTensors* exposed,
                               uint32_t begin, uint32_t tokens) {
  const GroupShape& shape = op.group.shape;
  Selection selections[run_tokens];
  float weights[run_tokens];
  UCCLEP_UNROLL
  for (uint32_t i = 0; i < run_tokens; ++i) {
    const uint32_t token = begin + i < tokens ? begin + i : begin;
    selections[i] = selection_of(memory_of(args), token);
    weights[i] = given_weight(args, token, selections[i]);
  }
  UCCLEP_UNROLL
  for (uint32_t i = 0; i < run_tokens; ++i) {
    const Selection& selection = selections[i];
    const bool to =
        begin + i < tokens && selection.sends() && selection.rank != op.me() && !pulls(exposed[selection.rank]);
    if (ballot(to) == 0) continue;
    build_meta(shape, begin + i, selection, weights[i], stage.scratch());
    char* lines = nullptr;
    if (to) {
      const uint32_t at = place_in_round(op, memory_of(args), selection.rank, selection.place);
      lines = meta_lines_at(op, selection.rank, op.me(), at);
    }
    for (uint64_t left = ballot(to); left != 0; left &= left - 1) {
      auto* there = reinterpret_cast<char*>(broadcast(reinterpret_cast<uint64_t>(lines), first_lane(left)));
      with_meta_lines(shape, [&]([[maybe_unused]] auto lines_of_group) {
        line_store<decltype(lines_of_group)>(there, stage.scratch(), MetaLayout::of(shape.top_k).body_bytes(), op.seq);
      });
    }
    sync_warp();  // all lanes have read the scratch
  }
}

// Verb of the meta warps of the grid, of a round. They need not wait for rows.
UCCLEP_FN bool send_metas(const HtDispatchArgs& args, const Op& op, const Stage& stage, const PeerTensors* exposed,
                          const Worker& worker) {
  if (op.round != 0 && !slot_free(op)) return false;
  const TokenRange tokens = TokenRange::of(op, routed_tokens(memory_of(args)));
  for (WarpUniform next = tokens.begin + worker.index * run_tokens; next < tokens.end;
       next += worker.workers * run_tokens) {
    const HtDispatchArgs& now = reload(args);
    send_meta_lines(op.with(now.group), now, stage, exposed, next, tokens.end);
  }
  return true;
}

// What operations of HT do where all ranks reach each other's windows, without and with masks. The other way, for ranks
// in several nodes, is ht/nodes/network.hpp.

struct OneNode {
  static constexpr bool network = false;
  static constexpr bool masks = false;  // true: in a group with masks, of those who are not lost
  static constexpr bool tiles = false;  // true: a receive phase gives places on arrival (InTiles)
  // Of the running operation.
  static UCCLEP_FN uint32_t rounds(const HandleMemory& memory) { return routed_rounds(memory); }
  using Consumed = ConsumedWord;
  // Of later rounds (ht/rounds.hpp).
  static UCCLEP_FN bool slot_free(const Op& op) { return ht::slot_free(op); }
  static UCCLEP_FN bool send_places(const Op& op, const HandleMemory& memory) {
    ht::send_places(op, memory, [&](uint32_t peer) { return header_for(op, peer); });
    return true;
  }
  static UCCLEP_FN bool places_come(const Op& op, const HandleMemory& memory, uint32_t rounds, bool keeps) {
    return ht::places_come(op, memory, rounds, keeps);
  }
  static UCCLEP_FN bool publish_round(const Op& op) {
    publish_to_peers(op);
    return true;
  }
  // By a call, since few operations have several rounds.
  static UCCLEP_COLD_FN bool part_read(Op op, uint32_t* counts, uint32_t rounds, RoundParts parts) {
    return ht::part_read<OneNode>(op, counts, rounds, parts);
  }

  // ---- Update
  // Lane verb: tokens before `token` that have a row for the column.
  static UCCLEP_FN uint32_t count_before(const TokenSets<HtUpdateArgs>& sets, uint32_t column, uint32_t token) {
    return sets.count_before(column, token);
  }
  // What ends the wait of blocks for each other.
  static UCCLEP_FN const uint32_t* barrier_abort(const Op& op) { return op.group.abort_word; }
  static UCCLEP_FN void end_update(const Op& op, bool ok) { end_operation(op, ok); }

  // ---- Headers
  // Does an Update have one for the peer that has not left yet.
  static UCCLEP_FN bool has_header_for(const Op&, uint32_t) { return true; }
  // Where the one for a peer is put together; and a warp verb, when the warp has done so.
  static UCCLEP_FN Packet* header_for(const Op& op, uint32_t peer) { return header_packets(op, peer, op.me()); }
  static UCCLEP_FN bool header_stored(const Op&, uint32_t, uint32_t, uint32_t) { return true; }
  // Block verb: before they are read. by: this block has the time for it, and none that waits for them comes first.
  static UCCLEP_FN bool headers_in(const Op&, bool, const View&) { return true; }
  static UCCLEP_FN bool ready_in(const Op&, bool, const View&) { return true; }  // the same of READY
  // Rows that READY announces to a peer.
  static UCCLEP_FN uint32_t announced(const Op&, const HandleMemory&, uint32_t) { return 0; }

  // ---- Dispatch and combine
  static UCCLEP_FN bool reaches(const Op&, uint32_t) { return true; }  // the other's window
  // Is a partial row of the rank a term of its own at home.
  static UCCLEP_FN bool is_term(const Op&, uint32_t) { return true; }
  // Block verb. op: in the last of so many rounds.
  static UCCLEP_FN void end(const Op& op, bool ok, bool exposed, uint32_t) { end_exposing(op, ok, exposed); }

  // Where else a row goes: nowhere.
  struct RemoteRow {
    UCCLEP_FN RemoteRow(const Op&, const HandleMemory&, const HtDispatchArgs&, uint32_t, const Selection&) {}
    UCCLEP_FN bool any() const { return false; }
    UCCLEP_FN void write_places(const Op&, const HandleMemory&, char*, const Selection&) const {}
    UCCLEP_FN void send_head(const GroupShape&, const char*) {}
    UCCLEP_FN const RowTargets& and_to(const RowTargets& targets, char*) const { return targets; }
  };
  static UCCLEP_FN bool push_run(const Op&, const HtDispatchArgs&, uint32_t, uint32_t) { return true; }

  // Where a row lies that is pulled.
  static UCCLEP_FN const char* staged_row(const Op& op, const WireShape& wire, uint32_t source, const char* meta) {
    return op.window(source) + staged_at(op, meta_token(meta), wire.row_bytes);
  }
  // At which a run of partial rows for a home is announced.
  static UCCLEP_FN uint64_t* run_words(const Op& op, uint32_t home) {
    return reinterpret_cast<uint64_t*>(op.window(home) + op.group.layout.back_epochs_of(op.slot, op.me()));
  }
  // Beside them, by place: which rows of the pool they take (ht/pool.hpp).
  static UCCLEP_FN uint32_t* pool_places(const Op& op, uint32_t home) {
    return reinterpret_cast<uint32_t*>(op.window(home) + op.group.layout.back_places_of(op.slot, op.me()));
  }
};

// The same in kernels of groups that may have masks. Others do without, as in LL (ConsumedMasked).
struct OneNodeMasked : OneNode {
  static constexpr bool masks = true;
  using Consumed = ConsumedMasked;
  // A rank whose headers did not leave would wait in its repair for others who wait in theirs. No block leaves before
  // its counts are there, so nothing need end the wait for them.
  static UCCLEP_FN const uint32_t* barrier_abort(const Op& op) { return &op.group.masks->never; }
  static UCCLEP_FN bool reaches(const Op& op, uint32_t rank) { return !is_masked(op.group, rank); }
  static UCCLEP_FN bool is_term(const Op& op, uint32_t rank) { return !is_masked(op.group, rank); }
};

// Either way, in the receive phase of a dispatch of tiles.
template <class Wire>
struct InTiles : Wire {
  static constexpr bool tiles = true;
};

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// HT dispatch from a user's kernel: the one that computes the rows sends them, after ucclEpHandleUpdate has routed
// them.
//
//   const auto op = ht::dispatch_begin(handle, shape);          every thread of the grid
//   ht::dispatch_send(warp{}, op, token, row, scales, weights); each token once: any scope, block and order
//   ht::dispatch_end(block{}, op, tokens);                      every block, once, after its last send
// and then ucclEpCompleteDispatch, with config.pass as in the shape. All ranks begin the dispatch in a kernel, or call
// ucclEpDispatch with send_only: a rank that calls it whole may expose its output, into which nobody here writes.
//
// clang-format off
// | who writes                                   | who reads                             | ordered by                         |
// |----------------------------------------------|---------------------------------------|------------------------------------|
// | dispatch_send: a row to this rank's staging, | CompleteDispatch of the peers         | publish of the meta's epoch, after |
// |   its meta to each peer that gets the row    |                                       |   the scope's sync                 |
// | the last block: the handle's state           | CompleteDispatch, on the same stream  | the end of the kernel              |
// clang-format on
//
// A row is read during its dispatch_send only. In one domain there is no wait but dispatch_begin's, for slots that
// peers still read. Between domains dispatch_end waits in every block, at most the group's timeout, for dispatch_begin
// of all ranks and for what other domains send to this rank, which it relays (user/ht.hpp): so no rank's sends
// may wait for what another rank does after its dispatch_end. And dispatch_send may wait while proxies have too many
// commands.
//
// Floor: as dispatch's (ht/dispatch.hpp); peers pull a row as soon as it is staged.
//
// HT dispatch received by a user's kernel, the one that sent it: who computes with some rows waits for these alone.
// HandleUpdate has found out where they are, so there is nothing to ask before.
//
//   ht::dispatch_recv(block{}, op, out, first, last);       rows [first, last) of the output, each once
// after dispatch_end in the same block, instead of ucclEpCompleteDispatch (user/receive.hpp says when the operation
// ends). All ranks may do so, or some. The host's ucclEpCombine is for what the host knows to be dispatched: before it
// comes ucclEpCompleteDispatch all the same, which finds nothing to do.
//
// | who writes                         | who reads                       | ordered by                          |
// |------------------------------------|---------------------------------|-------------------------------------|
// | the peers' staged rows and metas,  | dispatch_recv                   | the meta's epoch (publish, acquire) |
// |   or their relays'                 |                                 |                                     |
// | with masks: rows and metas from    | dispatch_recv                   | wait_row (protocol/by_network.hpp)  |
// |   other domains, by a NIC          |                                 |                                     |
// | dispatch_recv: the output          | the scope, after it             | the scope's sync                    |
// | dispatch_recv: what combine needs  | combine_begin, the host's calls | the end of the operation            |
//
// In FLAT a row says whose it is. Which rows of a source an expert has stands in their metas: in EXPERT_MAJOR a scope
// reads those of all that may be meant. So many rows asked for by a block cost less than as many calls for a few.
// Floor: as dispatch's (ht/dispatch.hpp).
#pragma once
#include "ucclep/device/ht/nodes/network.hpp"
#include "ucclep/device/ht/receive.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/device/user/copies.hpp"
#include "ucclep/device/user/ht.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/receive.hpp"
#include "ucclep/device/user/row_in.hpp"
#include "ucclep/device/user/row_out.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// A dispatch that is pending, as every thread of the grid holds it.
struct OpenDispatch : DeviceOperation {
  WireShape wire;  // how rows lie on the wire

  // What it is in records and traces.
  UCCLEP_FN Op op() const { return of(Kind::dispatch, Operation::dispatch); }
};

// Block verb of every block: the handle's group begins a dispatch of what the last ucclEpHandleUpdate has routed. Waits
// until peers have finished with the slots; at most the group's timeout.
// Registers: 72 (sm_90a), 41 (gfx942).
UCCLEP_FN OpenDispatch dispatch_begin(const ucclEpDeviceHandle& handle, const RowShape& shape) {
  const Begun begun = begin(handle, shape, Kind::dispatch, Operation::dispatch);
  Settings settings = routed_settings(begun.memory(handle), shape);
  settings.scale_bytes = shape.scale_bytes;
  settings.scale_dtype = static_cast<uint32_t>(shape.scale_dtype);
  settings.weights_at_dispatch = shape.weighted ? 1 : 0;
  const bool ok = begun.ready_out(handle, settings);
  const WireShape wire = WireShape::of(shape.token_bytes(), shape.scale_bytes, 1);
  return {{handle, shape, settings, begun.op.seq, begun.op.slot, ok}, wire};
}

// Which of a token's selections send its row to a rank whose window is mapped here, and that is not masked: each the
// first of its rank.
struct RowsHere {
  const Op& op;
  const int32_t* experts;
  const uint32_t* places;
  uint32_t top_k;

  UCCLEP_FN uint32_t rank(uint32_t k) const { return op.group.shape.rank_of(static_cast<uint32_t>(experts[k])); }
  UCCLEP_FN bool has(uint32_t k) const {
    return places[k] != no_place && !network::is_remote(op, rank(k)) && !is_masked(op.group, rank(k));
  }
  UCCLEP_FN bool any() const {
    bool any = false;
    for (uint32_t k = 0; k < top_k; ++k) any = any || has(k);
    return any;
  }
  UCCLEP_FN char* meta(uint32_t k) const { return meta_at(op, rank(k), op.me(), places[k]); }
};

// Verb of the scope: a row and its scales. to(at): offset `at` of where they go, as put_bytes asks for it.
template <class Coop, class To>
UCCLEP_FN void put_row(const OpenDispatch& open, const void* row, const void* scales, To&& to) {
  const uint32_t bytes = open.wire.token_bytes;
  put_bytes<Coop>(bytes, to(0),
                  [&](uint32_t at) { return *reinterpret_cast<const uint64_t*>(static_cast<const char*>(row) + at); });
  put_bytes<Coop>(open.wire.row_bytes - bytes, to(bytes), [&](uint32_t at) {
    return scale_word(static_cast<const char*>(scales), at, open.shape.scale_bytes);
  });
}

// Verb of the scope: what goes to other nodes.
template <class Coop>
UCCLEP_FN void put_remote(const OpenDispatch& open, const RemoteRows& remote, const void* row, const void* scales,
                          const float* weights) {
  const uint32_t head = relayed_head_bytes(remote.memory.shape);
  const auto to = [&](uint64_t at) { return [&remote, at](auto&& store) { remote.each(at, store); }; };
  put_bytes<Coop>(head, to(0), [&](uint32_t at) { return head_word(remote.memory, remote.token, weights, at); });
  put_row<Coop>(open, row, scales, [&](uint32_t at) { return to(head + at); });
}

// Verb of the scope: one token. row: `hidden` elements, 16-byte aligned, in any memory that the scope can read, as are
// scales (scale_bytes of them; NULL where that is 0) and weights (K of the token, NULL where rows have none). lanes<N>:
// all groups of a warp call it together; token >= the routing's tokens sends nothing.
// Registers: 72 (sm_90a), 58 and 80 bytes of stack (gfx942).
template <class Coop>
UCCLEP_FN void dispatch_send(Coop, const OpenDispatch& open, uint32_t token, const void* row, const void* scales,
                             const float* weights = nullptr) {
  if (!open.ok) return;
  const Op op = open.op();
  const HandleMemory memory = open.memory();
  const uint32_t top_k = memory.shape.top_k;
  const bool sends = token < memory.state()->tokens;
  const uint64_t first = sends ? uint64_t{token} * top_k : 0;
  const RowsHere here{op, memory.at<int32_t>(memory.handle.offsets.topk) + first,
                      memory.at<uint32_t>(memory.handle.offsets.places) + first, top_k};
  const RemoteRows remote{op, memory, token,
                          static_cast<uint32_t>(relayed_row_bytes(memory.shape, open.wire.row_bytes))};
  const bool wanted = sends && here.any(), crosses = sends && networked(op) && remote.any();
  if (wanted) {
    char* staged = op.mine() + op.group.layout.ht_rows_of(op.slot) + uint64_t{token} * open.wire.row_bytes;
    put_row<Coop>(open, row, scales, [&](uint32_t at) { return [staged, at](auto&& store) { store(staged + at); }; });
    put_bytes<Coop>(
        MetaLayout::of(top_k).body_bytes(),
        [&](auto&& store) {
          for (uint32_t k = 0; k < top_k; ++k) {
            if (here.has(k)) store(here.meta(k));
          }
        },
        [&](uint32_t at) { return meta_word(memory, token, weights, at); });
  }
  if (crosses) put_remote<Coop>(open, remote, row, scales, weights);
  Coop::sync();
  for (uint32_t k = Coop::rank(); wanted && k < top_k; k += Coop::size()) {
    if (!here.has(k)) continue;
    publish(reinterpret_cast<uint64_t*>(here.meta(k) + MetaLayout::of(top_k).epoch), op.seq);
  }
  if (crosses) remote.template push<Coop>();
}

// Verb of every block, after its last send. tokens: T, sent as 0 .. T - 1; a data record says so where the routing has
// another number of them. False: the operation has failed.
// Registers: 90 (sm_90a), 56 (gfx942).
UCCLEP_FN bool dispatch_end(block, const OpenDispatch& open, uint32_t tokens) {
  const Op op = open.op();
  const bool ok = open.ok && (!relays(op) || relay_dispatch(open, op, open.wire.row_bytes));
  if (!last_out(open, Kind::dispatch, ok)) return ok;
  HandleState* const state = open.memory().state();
  if (tokens != state->tokens) refuse(op, Field::tokens, state->tokens, tokens);
  leave_to_receive(open, Kind::dispatch);
  return true;
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// Rows of the output that come from one source: rows [begin, end), of which the source's first is `base`; expert:
// local, in EXPERT_MAJOR.
struct Segment {
  uint32_t source, expert, base, count, begin, end;

  static UCCLEP_FN Segment of(const OpenDispatch& open, uint32_t source, uint32_t expert, uint32_t first,
                              uint32_t last) {
    const HandleMemory memory = open.memory();
    Segment s{source, expert, memory.recv_base()[source], memory.rows_from()[source], 0, 0};
    if (open.by_expert()) {
      s.base = memory.expert_base(source)[expert];
      s.count = memory.counts_from(source)[expert];
    }
    s.begin = first > s.base ? first : s.base;
    s.end = last < s.base + s.count ? last : s.base + s.count;
    if (s.end < s.begin) s.end = s.begin;
    return s;
  }
};

// Lane verb: body(expert) for all local experts whose zones have some of rows [first, last), or may; for 0 in layouts
// without zones. False: body has said so.
template <class Body>
UCCLEP_FN bool each_zone(const OpenDispatch& open, uint32_t first, uint32_t last, Body&& body) {
  if (!open.by_expert()) return body(0);
  const uint32_t* const begins = open.memory().expert_base(0);
  const uint32_t experts = open.handle.group.shape.local_experts();
  for (uint32_t expert = last_up_to(begins, experts, first); expert < experts && begins[expert] < last; ++expert) {
    if (!body(expert)) return false;
  }
  return true;
}

// Lane verb: body(segment) for all that rows [first, last) consist of. False: body has said so.
template <class Body>
UCCLEP_FN bool each_segment(const OpenDispatch& open, uint32_t first, uint32_t last, Body&& body) {
  const GroupShape& shape = open.handle.group.shape;
  return each_zone(open, first, last, [&](uint32_t expert) {
    for (uint32_t source = 0; source < shape.ranks; ++source) {
      const Segment segment = Segment::of(open, source, expert, first, last);
      if (segment.begin != segment.end && !body(segment)) return false;
    }
    return true;
  });
}

// Lane verb: of the rows that were routed here, those that a group with a limit keeps.
UCCLEP_FN uint32_t rows_kept(const OpenDispatch& open) {
  const uint32_t rows = open.memory().state()->rows, most = open.handle.group.shape.recv_rows;
  return rows < most ? rows : most;
}

// Verb of members that are near, for those of later calls: how many of them come from some source, and are no pads.
template <class Coop>
UCCLEP_FN void count_awaited(const OpenDispatch& open) {
  const GroupShape& shape = open.handle.group.shape;
  const uint32_t kept = rows_kept(open), items = shape.ranks * (open.by_expert() ? shape.local_experts() : 1);
  uint32_t mine = 0;
  for (uint32_t i = Near<Coop>::rank(); i < items; i += Near<Coop>::size()) {
    const Segment segment = Segment::of(open, i % shape.ranks, i / shape.ranks, 0, kept);
    mine += segment.end - segment.begin;
  }
  store_relaxed<Scope::gpu>(&open.memory().state()->awaited, Near<Coop>::sum(mine));
}

// Lane verb: the place, among the rows of its source, of none of a segment's rows is below `lowest` or at `end`.
struct Places {
  uint32_t lowest, end;

  static UCCLEP_FN Places of(const OpenDispatch& open, const Segment& at) {
    const uint32_t rows = open.memory().rows_from()[at.source];
    return {at.begin - at.base, rows - (at.base + at.count - at.end)};
  }
};

// A row of `source` whose meta is there.
struct StagedRow {
  const OpenDispatch& open;
  const Op& op;
  uint32_t source, place;
  const char* meta;

  UCCLEP_FN StagedRow(const OpenDispatch& open, const Op& op, uint32_t source, uint32_t place)
      : open(open), op(op), source(source), place(place), meta(meta_of(open, op, source, place)) {}
  UCCLEP_FN bool wait() const {
    if (lands_alone(op, source)) return network::wait_row(op, source, place, between_nodes_flag);
    return wait_word(op, Phase::staging, source, meta + MetaLayout::of(op.group.shape.top_k).epoch);
  }
  UCCLEP_FN const char* row() const {
    if (lands_alone(op, source)) return meta + relayed_head_bytes(op.group.shape);
    return AcrossNodes::staged_row(op, open.wire, source, meta);
  }
  UCCLEP_FN ReceivedSelection selection(uint32_t k) const { return read_selection(op.group.shape, meta, k); }
  UCCLEP_FN uint32_t position(uint32_t k) const { return selection(k).position; }
  UCCLEP_FN float weight(uint32_t k) const { return selection(k).weight; }
  UCCLEP_FN uint32_t local_expert(uint32_t k) const {
    uint32_t local = 0;
    return is_mine(op, selection(k), local) ? local : not_here;
  }
  // Which row of the output its copy for a segment's expert is; no_place: none of the segment's. weight: of it.
  UCCLEP_FN uint32_t index_in(const Segment& at, float& weight) const {
    if (!open.by_expert()) return at.base + place;
    for (uint32_t k = 0; k < open.shape.top_k; ++k) {
      if (local_expert(k) != at.expert) continue;
      const ReceivedSelection s = selection(k);
      const uint32_t index = at.base + s.position;
      weight = s.weight;
      return index >= at.begin && index < at.end ? index : no_place;
    }
    return no_place;
  }

 private:
  static UCCLEP_FN const char* meta_of(const OpenDispatch& open, const Op& op, uint32_t source, uint32_t place) {
    if (!lands_alone(op, source)) return landed_meta(op, source, place);
    const GroupShape& shape = op.group.shape;
    return network::mine(op) + op.group.layout.relay_in_of(shape, op.slot, relay::own_block(op, source)) +
           place * relayed_row_bytes(shape, open.wire.row_bytes);
  }
};

// Verb of members that are near: a row to its place in the output.
template <class Coop>
UCCLEP_FN void take_row(const StagedRow& row, const DispatchRows& out, uint32_t index, float weight) {
  const OpenDispatch& open = row.open;
  const uint32_t scale_bytes = open.shape.scale_bytes, bytes = open.wire.token_bytes;
  const char* const from = row.row();
  if (out.tokens) copy_vectors<Near<Coop>>(row_at(out.tokens, index, bytes), from, bytes);
  for (uint32_t b = 8 * Near<Coop>::rank(); out.scales && b < scale_bytes; b += 8 * Near<Coop>::size()) {
    store_scale_word(row_at(out.scales, index, scale_bytes), b, scale_bytes,
                     *reinterpret_cast<const uint64_t*>(from + bytes + b));
  }
  if (Near<Coop>::rank() == 0 && out.src_info) out.src_info[index] = int64_t{row.source} << 32 | meta_token(row.meta);
  if (open.by_expert()) {
    if (Near<Coop>::rank() == 0 && out.topk_weights) out.topk_weights[index] = weight;
    note_copies<Coop>(open, row, row.place,
                      [&](uint32_t other) { return open.memory().expert_base(row.source)[other]; });
    return;
  }
  for (uint32_t k = Near<Coop>::rank(); k < open.shape.top_k; k += Near<Coop>::size()) {
    store_topk(open, out, index, k, row.selection(k));
  }
}

// Lane verb: a row of the output with nothing in it.
UCCLEP_FN void zero_row(const OpenDispatch& open, const DispatchRows& out, uint32_t row) {
  char* const tokens = row_at(out.tokens, row, open.wire.token_bytes);
  for (uint32_t b = 0; out.tokens && b < open.wire.token_bytes; b += 16) store16(tokens + b, vec16{});
  char* const scales = row_at(out.scales, row, open.shape.scale_bytes);
  for (uint32_t b = 0; out.scales && b < open.shape.scale_bytes; ++b) scales[b] = 0;
  if (out.topk_weights && open.by_expert()) out.topk_weights[row] = 0.0f;
  if (out.src_info) out.src_info[row] = -1;
}

// Verb of members of a scope: the rows of a segment that were announced and do not come (P12).
template <class Coop>
UCCLEP_FN void blank_rows(const OpenDispatch& open, const DispatchRows& out, const Segment& at) {
  for (uint32_t row = at.begin + Coop::rank(); row < at.end; row += Coop::size()) zero_row(open, out, row);
  if (!open.by_expert()) mark_unused<Coop>(open, out, at.begin, at.end);
}

// Verb of members of a scope: the rows of a segment, by the places that they may have. A warp looks at as many metas as
// it has lanes at once.
template <class Coop>
UCCLEP_FN bool take_rows(const OpenDispatch& open, const Op& op, const DispatchRows& out, const Segment& at) {
  if (is_absent(op.group, op.kind, op.seq, at.source)) {
    blank_rows<Coop>(open, out, at);
    return true;
  }
  const Places places = Places::of(open, at);
  const uint32_t looks = whole_warps<Coop> && open.by_expert() ? wave_size : 1;
  for (uint32_t first = places.lowest + Near<Coop>::index() * looks; first < places.end;
       first += Near<Coop>::count() * looks) {
    const uint32_t mine = looks == 1 ? first : first + lane_id();
    uint32_t index = no_place;
    float weight = 0;
    bool ok = true;
    if (mine < places.end) {
      const StagedRow row(open, op, at.source, mine);
      ok = row.wait();
      if (ok) index = row.index_in(at, weight);
    }
    if (looks == 1) {
      if (!ok) return false;
      if (index != no_place) take_row<Coop>(StagedRow(open, op, at.source, first), out, index, weight);
      continue;
    }
    if constexpr (whole_warps<Coop>) {
      if (!every_lane(ok)) return false;
      sync_warp();  // what one lane has acquired, all have
      for (uint64_t left = ballot(index != no_place); left != 0; left &= left - 1) {
        const uint32_t lane = first_lane(left);
        take_row<Coop>(StagedRow(open, op, at.source, first + lane), out, broadcast(index, lane),
                       broadcast(weight, lane));
      }
    }
  }
  return true;
}

// Verb of members of a scope: what no row fills of rows [first, last): pads are zero, and unused rows say so.
template <class Coop>
UCCLEP_FN void take_rest(const OpenDispatch& open, const DispatchRows& out, uint32_t first, uint32_t last) {
  const HandleMemory memory = open.memory();
  const uint32_t kept = rows_kept(open);
  const uint32_t from = first > kept ? first : kept, end = last < kept ? last : kept;
  if (!open.by_expert()) return mark_unused<Coop>(open, out, from, last);
  for (uint32_t row = from + Coop::rank(); out.topk_weights && row < last; row += Coop::size()) {
    out.topk_weights[row] = 0.0f;
  }
  each_zone(open, first, end, [&](uint32_t expert) {
    const uint32_t begin = memory.expert_base(0)[expert], source = memory.shape.ranks - 1;
    const uint32_t used = memory.expert_base(source)[expert] + memory.counts_from(source)[expert];
    const auto padded = static_cast<uint32_t>(begin + round_up(used - begin, memory.handle.expert_alignment));
    for (uint32_t row = (first > used ? first : used) + Coop::rank(); row < padded && row < end; row += Coop::size()) {
      zero_row(open, out, row);
    }
    return true;
  });
}

// Verb of members of a scope: for combine, how many rows have landed that no relay has counted.
template <class Coop>
UCCLEP_FN void note_landed(const OpenDispatch& open, const Op& op) {
  const HandleMemory memory = open.memory();
  for (uint32_t source = Coop::rank(); source < op.ranks(); source += Coop::size()) {
    if (!lands_alone(op, source)) continue;
    const bool absent = is_absent(op.group, op.kind, op.seq, source);
    memory.relayed(0)[relay::own_block(op, source)] = absent ? 0 : memory.rows_from()[source];
  }
}

// Verb of the scope that receives the last row: what combine needs to know, where ranks agree; of rows beyond a group's
// limit as well, which nobody asks for. They leave a record, unless the group drops them in silence.
template <class Coop>
UCCLEP_FN bool end_dispatch(const OpenDispatch& open, const Op& op) {
  HandleState* const state = open.memory().state();
  const uint32_t rows = state->rows, kept = rows_kept(open);
  const auto note = [&](const Segment& at) { return take_rows<Coop>(open, op, {}, at); };
  if (open.by_expert() && kept < rows && !each_segment(open, kept, rows, note)) return false;
  note_landed<Coop>(open, op);
  if (Coop::rank() != 0) return true;
  state->weighted = open.settings.weights_at_dispatch;
  state->capacity = kept;
  if (op.group.reports_dropped != 0) report_dropped(op, rows, kept);
  return true;
}

// Verb of the scope, after dispatch_end: rows [first, last) of the output to `out`; waits until they are there, at most
// the group's timeout. Pads become zero; rows past the last say that they hold nothing, as after ucclEpDispatch. Every
// row that is no pad is asked for exactly once, by any scope, in any order and block. lanes<N>: all groups of a warp
// call it together, with first = last where there is nothing to do. False: the operation has failed, or ranks disagree
// and nothing comes.
// Registers: 86 and 40 bytes of stack (sm_90a), 58 (gfx942).
template <class Coop>
UCCLEP_FN bool dispatch_recv(Coop, const OpenDispatch& open, const DispatchRows& out, uint32_t first, uint32_t last) {
  const Op op = open.op();
  if (!may_receive<Coop>(open, op)) return false;
  const HeaderResult result = agree<Coop>(open, op, [&] { return count_awaited<Coop>(open), true; });
  if (result == HeaderResult::lost) return false;
  const bool good = result == HeaderResult::good;
  if (!good) count_awaited<Coop>(open);
  const uint32_t kept = rows_kept(open), end = last < kept ? last : kept;
  const uint32_t all = load_relaxed<Scope::gpu>(&open.memory().state()->awaited);
  uint32_t received = 0;
  const bool ok = each_segment(open, first, end, [&](const Segment& at) {
    received += at.end - at.begin;
    return !good || take_rows<Coop>(open, op, out, at);
  });
  if (good) take_rest<Coop>(open, out, first, last);
  if (Coop::any(!ok) || !was_sound<Coop>(op)) return false;
  Coop::sync();
  const bool ends = Coop::any(Coop::rank() == 0 && count_received(open, Kind::dispatch, received, all));
  const bool ended =
      !ends || ((!good || end_dispatch<Coop>(open, op)) && (Coop::rank() != 0 || end_received(open, op)));
  return good && !Coop::any(!ended);
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// LL combine from a user's kernel: the epilogue of the experts' last GEMM sends the rows that it has finished.
//
//   const auto op = ll::combine_begin(handle, shape);       every thread of the grid
//   ll::combine_send(warp{}, op, row_index, row);           each row once: any scope, block and order
//   ll::combine_end(block{}, op);                           every block, once, after its last send
// and then ucclEpCompleteCombine, or combine_recv in the same kernel (ll_combine.hpp).
//
// In EXPERT_MAJOR a rank sends one partial row for the copies of a row (user/copies.hpp).
//
// | who writes                        | who reads                             | ordered by                            |
// |-----------------------------------|---------------------------------------|---------------------------------------|
// | combine_send: copies of a row     | the combine_send of the last of them  | the row's ticket (acq_rel, gpu)       |
// | combine_send: partial rows        | CompleteCombine of the peers          | the lines' epochs; BULK: publish;     |
// |                                   |                                       |   to other domains user/network.hpp   |
// | the last block: the handle's state| CompleteCombine, on the same stream   | the end of the kernel                 |
//
// Waits: combine_begin, for slots that peers still read; between domains combine_begin and combine_send, while proxies
// have too many commands.
//
// Floor: as combine's (ll/combine.hpp).
//
// LL combine received by a user's kernel, the one that sent it: who goes on with a token waits for its rows alone.
//
//   ll::combine_recv(warp{}, op, out, first_token, last_token);   each token of the dispatch once
// after combine_end in the same block, instead of ucclEpCompleteCombine (user/receive.hpp says when the operation
// ends). All ranks may do so, or some.
//
// | who writes                | who reads           | ordered by            |
// |---------------------------|---------------------|-----------------------|
// | the peers' partial rows   | combine_recv        | as in CompleteCombine |
// | combine_recv: the results | the scope, after it | the scope's sync      |
//
// Floor: as combine's (ll/combine.hpp).
#pragma once
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/combine.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/ll/partials.hpp"
#include "ucclep/device/ll/sums.hpp"
#include "ucclep/device/protocol/by_network.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/simt/element.hpp"
#include "ucclep/device/user/copies.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/receive.hpp"
#include "ucclep/device/user/row_in.hpp"
#include "ucclep/device/user/row_out.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// A combine that is pending, as every thread of the grid holds it.
struct OpenCombine : DeviceOperation {
  // What it is in records and traces.
  UCCLEP_FN Op op() const { return of(Kind::combine, Operation::combine); }
};

// Block verb of every block: READY to all. To peers of other domains it says how many partial rows will come.
UCCLEP_FN bool send_ready_to_all(const Op& op, const Settings& settings, const HandleMemory& memory) {
  if (op.group.network == nullptr) {
    ready_out(op, settings, grid_warp(), grid_warps());
    return true;
  }
  bool ok = true;
  const bool updated = memory.state()->updated == memory.handle.stamp;
  for (uint32_t i = grid_warp(); i < op.ranks(); i += grid_warps()) {
    const uint32_t peer = op.rotated(i);
    if (is_masked(op.group, peer)) continue;
    store_header(op, ByNetwork::header_for(op, peer), settings, 0, Form::bulk, 0, nullptr);
    if (lane_id() != 0 || op.has_window(peer)) continue;
    ok = network::push_header_alone(op, peer, updated ? memory.rows_from()[peer] : 0, HeaderLayout::counts) && ok;
  }
  return every_thread(ok);
}

// Block verb of every block: the handle's group begins a combine of what the handle's last dispatch received, which was
// complete before. shape: {hidden, dtype, 0, K}.
// Registers: 78 (sm_90a), 45 (gfx942).
UCCLEP_FN OpenCombine combine_begin(const ucclEpDeviceHandle& handle, const RowShape& shape) {
  OpState op_state = OpState::load(handle.group, Kind::combine);
  const Op op = begin_next(handle, Kind::combine, Operation::combine, op_state);
  const HandleMemory memory{handle.view, handle.group.shape};
  const HandleState state = *memory.state();
  Settings settings;
  settings.hidden = shape.hidden;
  settings.top_k = state.top_k;
  settings.mode = UCCLEP_MODE_LL;
  settings.layout = static_cast<uint32_t>(handle.view.layout);
  settings.dtype = settings.output_dtype = static_cast<uint32_t>(shape.dtype);
  settings.weights_at_dispatch = state.weighted;
  bool ok = op.seq != 0 && fits(op, handle, shape, UCCLEP_MODE_LL, handle.group.shape.top_k);
  if (ok && !shape.sums()) {
    refuse(op, Field::dtype, ucclEpBfloat16, shape.dtype);
    ok = false;
  }
  if (ok && handle.view.layout == UCCLEP_LAYOUT_EXPERT_MAJOR && state.weighted == 0) {
    refuse(op, Field::weights_at_dispatch, 1, 0);
    ok = false;
  }
  ok = ok && slots_free_in_any_group(op, op_state) && send_ready_to_all(op, settings, memory);
  // Where ranks disagreed in the dispatch nothing came, and nothing goes back.
  return {{handle, shape, settings, op.seq, op.slot, ok && state.updated != 0}};
}

// Lane verb: how many rows the dispatch put into a zone: the slab of a local expert (EXPERT_MAJOR), or the rows of a
// source. combine_send of others sends nothing.
UCCLEP_FN uint32_t combine_rows(const OpenCombine& open, uint32_t zone) {
  const HandleMemory memory = open.memory();
  const uint32_t last = memory.shape.ranks - 1;
  if (!open.ok || zone >= (open.by_expert() ? memory.shape.local_experts() : memory.shape.ranks)) return 0;
  return open.by_expert() ? memory.expert_base(last)[zone] + memory.counts_from(last)[zone] : memory.rows_from()[zone];
}

// Lane verb: whose row it is. Those of masked ranks, which may be zero rows, are nobody's.
UCCLEP_FN Home home_of(const OpenCombine& open, uint32_t row_index) {
  const HandleMemory memory = open.memory();
  const uint32_t tokens = open.handle.view.tokens, ranks = memory.shape.ranks, slab = ranks * tokens;
  if (!open.by_expert()) {
    const uint32_t rank = row_index / tokens, place = row_index % tokens;
    if (place >= combine_rows(open, rank) || is_masked(open.handle.group, rank)) return {};
    return {rank, place, 0, true};
  }
  const uint32_t expert = row_index / slab, row = row_index % slab;
  if (row >= combine_rows(open, expert)) return {};
  const uint32_t home = memory.row_homes(expert)[row];
  if (is_masked(open.handle.group, home / tokens)) return {};
  return {home / tokens, home % tokens, expert, true};
}

// Lane verb: what is sent home with this copy, if it is the last.
UCCLEP_FN Copies copies_of(const OpenCombine& open, const Home& home, const void* row) {
  if (!home.valid || !open.by_expert()) return Copies::none(row);
  const HandleMemory memory = open.memory();
  return {static_cast<const char*>(row),
          memory.copies(home.rank, home.place),
          memory.copies_in(home.rank) + home.place,
          memory.recv_entries(home.rank, home.place),
          memory.recv_count(home.rank)[home.place],
          true};
}

// Where a partial row goes: to its home, or to where the network takes it.
UCCLEP_FN char* partial_at(const Op& op, const Home& home, uint32_t bytes, bool line) {
  const WindowLayout& window = op.group.layout;
  if (network::is_remote(op, home.rank)) {
    return network::mine(op) + window.out_back_for(op.group.shape, op.slot, home.rank) + uint64_t{home.place} * bytes;
  }
  return op.window(home.rank) +
         (line ? window.back_lines_of(op.slot, op.me()) + home.place * combining::line_row_bytes(bytes)
               : window.back_rows_of(op.slot, op.me()) + uint64_t{home.place} * bytes);
}

// The copies of a row as terms of its partial row: lane i of a warp has copy i.
struct CopiesOfLanes {
  using Group = combining::GroupOf<2>;
  static constexpr bool weighted = true;
  const char* row;
  float factor;
  uint32_t copies, row_bytes;

  static UCCLEP_FN CopiesOfLanes of(const Copies& copies, uint32_t row_bytes) {
    CopiesOfLanes terms{copies.one, 1.0f, copies.count, row_bytes};
    if (lane_id() < copies.count) terms.factor = copies.entries[lane_id()].weight;
    if (copies.count > 1 && lane_id() < copies.count) terms.row = copies.rows[lane_id()];
    return terms;
  }
  UCCLEP_FN uint32_t count() const { return copies; }
  UCCLEP_FN float weight(uint32_t i) const { return broadcast(factor, i); }
  UCCLEP_FN void look(Group& group, uint32_t index, uint32_t first) const {
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < Group::most; ++i) {
      if (first + i >= copies) break;
      const uint64_t from = broadcast(reinterpret_cast<uint64_t>(row), first + i);
      group.term[i].read(reinterpret_cast<const char*>(from) + index * line_batch_bytes,
                         batch_length(row_bytes, index));
    }
  }
  UCCLEP_FN bool wait(const Group&, uint32_t, uint32_t) const { return true; }
};

// Verb of a scope of warps, which take neighbouring batches of the partial row: put(index, batch).
template <class Element, class Coop, class Put>
UCCLEP_FN void each_batch(const Copies& copies, uint32_t row_bytes, Put&& put) {
  const uint32_t all = line_batches(row_bytes), of_warp = static_cast<uint32_t>(ceil_div(all, Near<Coop>::count()));
  const uint32_t begin = Near<Coop>::index() * of_warp, end = begin + of_warp < all ? begin + of_warp : all;
  if (begin >= end) return;
  if (copies.rows == nullptr) {
    combining::copy_batches<LinesOnly>(copies.one, row_bytes, {begin, end}, put);
  } else {
    combining::sum_batches<Element>(
        CopiesOfLanes::of(copies, row_bytes), {begin, end},
        [&](uint32_t index, const combining::BatchSum<Element>& sum) { put(index, sum.rounded()); });
  }
}

// Verb of the scope: the partial row to its lines, or to where it lies in BULK form.
template <class Element, class Coop>
UCCLEP_FN void put_partial(const Op& op, const Copies& copies, uint32_t bytes, bool line, char* to) {
  if constexpr (whole_warps<Coop>) {
    each_batch<Element, Coop>(copies, bytes, [&](uint32_t index, const LineBatch& batch) {
      const uint32_t length = batch_length(bytes, index);
      if (line) {
        batch.send(to + index * LineBatch::lines * line_bytes, length, op.seq);
      } else {
        batch.write(to + index * line_batch_bytes, length);
      }
    });
  } else {
    const auto each = [&](auto&& store) { store(to); };
    const auto word = [&](uint32_t at) { return sum_word<Element>(copies, at); };
    if (line) put_lines<Coop>(bytes, op.seq, each, word);
    if (!line) put_bytes<Coop>(bytes, each, word);
  }
}

// Verb of the scope: the partial row home.
template <class Element, class Coop>
UCCLEP_FN void send_partial(const OpenCombine& open, const Home& home, const Copies& copies, bool sends) {
  const Op op = open.op();
  const uint32_t bytes = open.shape.token_bytes(), rows = open.memory().rows_from()[home.rank];
  const bool line = combining::form_of(op.group.shape, bytes, rows) == Form::line;
  char* const to = partial_at(op, home, bytes, line);
  if (sends) put_partial<Element, Coop>(op, copies, bytes, line, to);
  Coop::sync();
  if (!sends) return;
  if (line) {
    end_lines<Coop>(bytes, op.seq, [&](auto&& store) { store(to); });
    return;
  }
  if (network::is_remote(op, home.rank)) {
    if (Coop::rank() == 0) network::push_row_alone(op, home.rank, home.place, bytes);
    return;
  }
  const uint32_t parts = combining::bulk_parts(bytes);
  auto* words = reinterpret_cast<uint64_t*>(op.window(home.rank) + op.group.layout.back_epochs_of(op.slot, op.me()));
  for (uint32_t p = Coop::rank(); p < parts; p += Coop::size()) {
    publish(words + uint64_t{home.place} * parts + p, op.seq);
  }
}

// Verb of the scope: one row of the experts' output, `hidden` elements, 16-byte aligned. row_index: where dispatch put
// the row, counted over all leading dimensions of its output; one where it put nothing sends nothing. row: in memory of
// the GPU, unchanged until the combine has ended; where no other copy of it is on this rank (so in RANK_MAJOR) in
// any memory that the scope can read, and only until the call returns.
// lanes<N>: all groups of a warp call it together.
// Registers: 108 (sm_90a), 56 (gfx942).
template <class Coop>
UCCLEP_FN void combine_send(Coop, const OpenCombine& open, uint32_t row_index, const void* row) {
  if (!open.ok) return;
  const Home home = home_of(open, row_index);
  if ((whole_warps<Coop> || Coop::size() == 1) && !home.valid) return;  // of lanes<N> other groups may have rows
  const Copies copies = copies_of(open, home, row);
  const bool sends = all_here<Coop>(home, copies);
  with_element(open.shape.dtype,
               [&](auto element) { send_partial<decltype(element), Coop>(open, home, copies, sends); });
}

// Verb of every block, after its last send. False: the operation has failed.
// Registers: 78 (sm_90a), 45 (gfx942).
UCCLEP_FN bool combine_end(block, const OpenCombine& open) {
  if (!last_out(open)) return open.ok;
  leave_to_receive(open, Kind::combine);
  return true;
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// The partial rows of one token, ranks ascending.
struct TokenPartials : Returns {
  const char* rows[max_top_k];
  uint64_t lines = 0;  // bit i: term i is in LINE form

  UCCLEP_FN TokenPartials(const OpenCombine& open, const Op& op, uint32_t token) : Returns(open, token) {
    const uint32_t bytes = open.shape.token_bytes();
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t sent_there = open.memory().rows_to()[ranks[i]];
      const bool line = combining::form_of(op.group.shape, bytes, sent_there) == Form::line;
      lines |= uint64_t{line} << i;
      rows[i] = line ? op.mine() + op.group.layout.back_lines_of(op.slot, ranks[i]) +
                           places[i] * combining::line_row_bytes(bytes)
                     : network::landed_back(op, ranks[i]) + uint64_t{places[i]} * bytes;
    }
  }

  // Lane verb: what has no epochs inside is there as far as the parts [begin, end). In a group of several domains rows
  // are whole (ll/network.hpp), and the first part's word says so.
  UCCLEP_FN bool wait_parts(const OpenCombine& open, const Op& op, uint32_t begin, uint32_t end) const {
    const uint32_t parts = combining::bulk_parts(open.shape.token_bytes());
    const bool whole = op.group.network != nullptr;
    for (uint32_t i = 0; i < count; ++i) {
      if ((lines >> i & 1) != 0) continue;
      if (network::is_remote(op, ranks[i])) {
        if (!network::wait_row(op, ranks[i], places[i])) return false;
        continue;
      }
      const char* words = op.mine() + op.group.layout.back_epochs_of(op.slot, ranks[i]) + 8ull * places[i] * parts;
      for (uint32_t part = whole ? 0 : begin; part < (whole ? 1 : end); ++part) {
        if (!wait_word(op, Phase::rows, ranks[i], words + 8 * part)) return false;
      }
    }
    return true;
  }
};

// Verb of a warp: some batches of a token's result.
template <class Element>
UCCLEP_FN bool sum_part(const OpenCombine& open, const Op& op, const CombineRows& out, uint32_t token,
                        TokenPartials& from, const BatchRange& range) {
  constexpr uint32_t batches = ll_part_bytes / line_batch_bytes;  // of a BULK part
  const uint32_t bytes = open.shape.token_bytes();
  if (!every_lane(from.wait_parts(open, op, range.begin / batches, ceil_div(range.end, batches)))) return false;
  const combining::Partials partials{from.rows, from.ranks, from.lines, from.count};
  const void* const biases[] = {out.bias, out.bias2};
  const auto write = [&](uint32_t index, combining::BatchSum<Element>& sum) {
    const uint32_t length = batch_length(bytes, index), at = index * line_batch_bytes;
    for (const void* const bias : biases) {
      if (bias == nullptr) continue;
      LineBatch batch;
      batch.read(row_at(const_cast<void*>(bias), token, bytes) + at, length);
      sum.begun = true;  // also where the token has no expert: the bias is added to zero
      sum.add(batch, 1.0f, false);
    }
    sum.rounded().write(row_at(out.tokens, token, bytes) + at, length);
  };
  return combining::sum_batches<Element>(combining::PartialTerms<AnyForm>{op, partials, bytes}, range, write);
}

// Verb of members of less than a warp: all of a token's result.
template <class Element, class Coop>
UCCLEP_FN bool sum_words(const OpenCombine& open, const Op& op, const CombineRows& out, uint32_t token,
                         const TokenPartials& from) {
  const uint32_t bytes = open.shape.token_bytes();
  if (!from.wait_parts(open, op, 0, combining::bulk_parts(bytes))) return false;
  const void* const biases[] = {out.bias, out.bias2};
  for (uint32_t at = 8 * Coop::rank(); at < bytes; at += 8 * Coop::size()) {
    TermSum<Element> sum;
    for (uint32_t i = 0; i < from.count; ++i) {
      const bool line = (from.lines >> i & 1) != 0;
      if (line && !wait_lines(op, Phase::rows, from.ranks[i], from.rows[i], at, at + 8)) return false;
      const uint64_t word = line ? line_word(from.rows[i], at) : *reinterpret_cast<const uint64_t*>(from.rows[i] + at);
      sum.add(sum.unpack(word));
    }
    for (const void* const bias : biases) {
      if (bias == nullptr) continue;
      sum.begun = true;
      sum.add(sum.unpack(*reinterpret_cast<const uint64_t*>(row_at(const_cast<void*>(bias), token, bytes) + at)));
    }
    *reinterpret_cast<uint64_t*>(row_at(out.tokens, token, bytes) + at) = sum.packed();
  }
  return true;
}

// Verb of members of the scope: tokens [first, last). A block's warps take parts of tokens.
template <class Element, class Coop>
UCCLEP_FN bool sum_tokens(const OpenCombine& open, const Op& op, const CombineRows& out, uint32_t first,
                          uint32_t last) {
  if constexpr (whole_warps<Coop>) {
    const RowParts parts = RowParts::of_size(line_batches(open.shape.token_bytes()), combining::max_batches<AnyForm>);
    const uint32_t count = parts.count, items = (last - first) * count;
    for (uint32_t item = Near<Coop>::index(); item < items; item += Near<Coop>::count()) {
      const uint32_t token = first + item / count;
      TokenPartials from(open, op, token);
      if (!sum_part<Element>(open, op, out, token, from, parts.range(item % count))) return false;
    }
  } else {
    for (uint32_t token = first; token < last; ++token) {
      if (!sum_words<Element, Coop>(open, op, out, token, TokenPartials(open, op, token))) return false;
    }
  }
  return true;
}

// Verb of the scope, after combine_end: the results of tokens [first, last) to `out`; waits until they are there, at
// most the group's timeout. Every token is asked for exactly once, by any scope, in any order and block; tokens past
// the last that was dispatched have no result. lanes<N>: all groups of a warp call it together, with first = last where
// there is nothing to do. False: the operation has failed, or ranks disagree and there are no results.
// Registers: 102 and 528 bytes of stack (sm_90a), 69 and 536 bytes of stack (gfx942).
template <class Coop>
UCCLEP_FN bool combine_recv(Coop, const OpenCombine& open, const CombineRows& out, uint32_t first, uint32_t last) {
  return receive_tokens<Coop>(open, first, last, [&](const Op& op, uint32_t begin, uint32_t end) {
    return with_element(open.shape.dtype,
                        [&](auto element) { return sum_tokens<decltype(element), Coop>(open, op, out, begin, end); });
  });
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

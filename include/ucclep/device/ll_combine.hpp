// SPDX-License-Identifier: Apache-2.0
// LL combine from a user's kernel: the epilogue of the experts' last GEMM sends the rows that it has finished.
//
//   const auto op = ll::combine_begin(handle, shape);       every thread of the grid
//   ll::combine_send(warp{}, op, row_index, row);           each row once: any scope, block and order
//   ll::combine_end(block{}, op);                           every block, once, after its last send
// and then ucclEpCompleteCombine, or combine_recv in the same kernel (ll_combine_recv.hpp).
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
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
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
#include "ucclep/device/user/kept_counts.hpp"
#include "ucclep/device/user/network.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/receive.hpp"
#include "ucclep/device/user/row_in.hpp"
#include "ucclep/device/user/row_out.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Verb of some warps: READY to the peers with windows.
UCCLEP_FN void send_ready(const Op& op, const Settings& settings, uint32_t first, uint32_t step) {
  UCCLEP_KEEP_LOOP
  for (uint32_t i = first; i < op.ranks(); i += step) {
    const uint32_t peer = op.rotated(i);
    if (!is_masked(op, peer) && op.has_window(peer)) send_header(op, peer, settings, 0, Form::bulk, 0, nullptr);
  }
}
// And to those of other domains. It says how many partial rows will come; none where nothing has come.
UCCLEP_FN bool push_ready(const Op& op, const OpenCombine& open, bool routed, uint32_t first, uint32_t step) {
  const HandleMemory memory = open.memory();
  bool ok = true;
  UCCLEP_KEEP_LOOP
  for (uint32_t i = first; i < op.ranks(); i += step) {
    const uint32_t peer = op.rotated(i);
    if (is_masked(op, peer) || op.has_window(peer)) continue;
    store_header(op, ByNetwork::header_for(op, peer), open.settings, 0, Form::bulk, 0, nullptr);
    if (lane_id() != 0) continue;
    ok = network::push_header_alone(op, peer, routed ? memory.rows_from()[peer] : 0, HeaderLayout::counts) && ok;
  }
  return ok;
}

// What a combine of those rows goes by.
UCCLEP_FN Settings combine_settings(const ucclEpDeviceHandle& handle, const RowShape& shape, uint32_t top_k,
                                    uint32_t weighted) {
  Settings settings;
  settings.hidden = shape.hidden;
  settings.top_k = top_k;
  settings.mode = UCCLEP_MODE_LL;
  settings.layout = static_cast<uint32_t>(handle.view.layout);
  settings.waves = handle.view.waves;
  settings.dtype = settings.output_dtype = static_cast<uint32_t>(shape.dtype);
  settings.weights_at_dispatch = weighted;
  return settings;
}

// Block verb of every block: an operation begins whose slots are free.
UCCLEP_FN OpenCombine begin_combine(const ucclEpDeviceHandle& handle, const RowShape& shape, const Settings& settings,
                                    const OpenDispatch* dispatch) {
  OpState op_state = OpState::load(handle.group, Kind::combine);
  const bool beside = dispatch != nullptr;
  const Op op = begin_next(handle, Kind::combine, Operation::combine, op_state, beside);
  bool ok = op.seq != 0 && fits(op, handle, shape, UCCLEP_MODE_LL, handle.group.shape.top_k, settings.by_rows != 0);
  if (ok && !shape.sums()) {
    refuse(op, Field::dtype, ucclEpBfloat16, shape.dtype);
    ok = false;
  }
  if (ok && handle.view.layout == UCCLEP_LAYOUT_EXPERT_MAJOR && settings.weights_at_dispatch == 0) {
    refuse(op, Field::weights_at_dispatch, 1, 0);
    ok = false;
  }
  ok = ok && slots_free_in_any_group(op, op_state);
  if (ok) send_ready(op, settings, grid_warp(), grid_warps());
  const DeviceOperation begun{handle, shape, settings, op.seq, op.slot, ok};
  return {begun, beside, beside ? *dispatch : OpenDispatch{begun, WireShape{}, Form::line}};
}

// Block verb of every block: the handle's group begins a combine of what the handle's last dispatch received, which was
// complete before. shape: {hidden, dtype, 0, K}.
// Registers: 72 (sm_90a), 41 (gfx942).
UCCLEP_FN OpenCombine combine_begin(const ucclEpDeviceHandle& handle, const RowShape& shape) {
  const HandleState state = *HandleMemory{handle.view, handle.group.shape}.state();
  OpenCombine open =
      begin_combine(handle, shape, combine_settings(handle, shape, state.top_k, state.weighted), nullptr);
  const bool routed = state.updated == handle.view.stamp;
  if (open.ok && handle.group.network != nullptr) {
    open.ok = every_thread(push_ready(open.op(), open, routed, grid_warp(), grid_warps()));
  }
  open.ok = open.ok && state.updated != 0;  // where ranks disagreed in the dispatch nothing came, and nothing goes back
  return open;
}

// The same of a dispatch that is under way, once it has begun: rows go back as they are received.
UCCLEP_FN OpenCombine combine_begin(const ucclEpDeviceHandle& handle, const RowShape& shape,
                                    const OpenDispatch& dispatch) {
  Settings settings = combine_settings(handle, shape, dispatch.shape.top_k, dispatch.settings.weights_at_dispatch);
  settings.by_rows = dispatch.settings.by_rows;
  OpenCombine open = begin_combine(handle, shape, settings, &dispatch);
  open.ok = open.ok && dispatch.ok;
  return open;
}

// Lane verb: how many rows the dispatch put into a zone: the slab of a local expert (EXPERT_MAJOR), or the rows of a
// source. combine_send of others sends nothing.
UCCLEP_FN uint32_t combine_rows(const OpenCombine& open, uint32_t zone) {
  const HandleMemory memory = open.memory();
  const uint32_t last = memory.shape.ranks - 1;
  if (!open.ok || zone >= (open.by_expert() ? memory.shape.local_experts() : memory.shape.ranks)) return 0;
  const auto word = [](const uint32_t* at) { return load_relaxed<Scope::gpu>(at); };
  if (!open.by_expert()) return word(memory.rows_from() + zone);
  return word(memory.expert_base(last) + zone) + word(memory.counts_from(last) + zone);
}

// Lane verb: whose row it is. Those of masked ranks, which may be zero rows, are nobody's.
UCCLEP_FN Home home_of(const OpenCombine& open, const Op& op, uint32_t row_index) {
  const HandleMemory memory = open.memory();
  const uint32_t tokens = open.handle.view.tokens, ranks = memory.shape.ranks, slab = ranks * tokens;
  if (!open.by_expert()) {
    const uint32_t rank = row_index / tokens, place = row_index % tokens;
    if (place >= combine_rows(open, rank) || is_masked(op, rank)) return {};
    return {rank, place, 0, true};
  }
  const uint32_t expert = row_index / slab, row = row_index % slab;
  if (expert >= memory.shape.local_experts()) return {};
  const uint32_t home = load_relaxed<Scope::gpu>(memory.row_homes(expert) + row);  // on its way with the counts
  if (row >= combine_rows(open, expert) || is_masked(op, home / tokens)) return {};
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
          load_relaxed<Scope::gpu>(memory.recv_count(home.rank) + home.place),
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
  uint32_t expert;
  float factor;
  uint32_t copies, row_bytes;

  static UCCLEP_FN CopiesOfLanes of(const Copies& copies, uint32_t row_bytes, uint32_t top_k) {
    CopiesOfLanes terms{copies.one, not_here, 1.0f, copies.count, row_bytes};
    if (copies.rows == nullptr || lane_id() >= top_k) return terms;
    const RecvEntry entry = load_entry(copies.entries + lane_id());  // does not wait for the count
    if (lane_id() >= copies.count) return terms;
    terms.expert = entry.expert;
    terms.factor = entry.weight;
    return terms;
  }

  // Verb of whole warps, once for each copy: are all here now, for this scope to add up?
  template <class Coop>
  UCCLEP_FN bool all_here(const Home& home, const Copies& from) {
    Coop::sync();  // the copy is whole before it is left
    if (copies == 1) return true;
    bool here = false;
    if (Near<Coop>::index() == 0) {
      if (expert == home.expert)
        store_relaxed<Scope::gpu>(reinterpret_cast<uint64_t*>(from.rows + lane_id()),
                                  reinterpret_cast<uint64_t>(from.one));
      sync_warp();
      if (lane_id() == 0) here = is_last(from);
    }
    here = Coop::any(here);
    Coop::sync();  // what the first has acquired, all have
    if (here && lane_id() < copies) {
      row = reinterpret_cast<const char*>(
          load_relaxed<Scope::gpu>(reinterpret_cast<const uint64_t*>(from.rows + lane_id())));
    }
    return here;
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
UCCLEP_FN void each_batch(const CopiesOfLanes& terms, const Copies& copies, Put&& put) {
  const uint32_t row_bytes = terms.row_bytes;
  const uint32_t all = line_batches(row_bytes), of_warp = static_cast<uint32_t>(ceil_div(all, Near<Coop>::count()));
  const uint32_t begin = Near<Coop>::index() * of_warp, end = begin + of_warp < all ? begin + of_warp : all;
  if (begin >= end) return;
  if (copies.rows == nullptr) {
    combining::copy_batches<LinesOnly>(copies.one, row_bytes, {begin, end}, put);
  } else {
    combining::sum_batches<Element>(terms, {begin, end}, [&](uint32_t index, const combining::BatchSum<Element>& sum) {
      put(index, sum.rounded());
    });
  }
}

// Verb of whole warps: the partial row to its lines, or to where it lies in BULK form.
template <class Element, class Coop>
UCCLEP_FN void put_partial(const Op& op, const CopiesOfLanes& terms, const Copies& copies, bool line, char* to) {
  each_batch<Element, Coop>(terms, copies, [&](uint32_t index, const LineBatch& batch) {
    const uint32_t length = batch_length(terms.row_bytes, index);
    if (line) {
      batch.send(to + index * LineBatch::lines * line_bytes, length, op.seq);
    } else {
      batch.write(to + index * line_batch_bytes, length);
    }
  });
}
// Verb of less than a warp.
template <class Element, class Coop>
UCCLEP_FN void put_words(const Op& op, const Copies& copies, uint32_t bytes, bool line, char* to) {
  const auto each = [&](auto&& store) { store(to); };
  const auto word = [&](uint32_t at) { return sum_word<Element>(copies, at); };
  if (line) put_lines<Coop>(bytes, op.seq, each, word);
  if (!line) put_bytes<Coop>(bytes, each, word);
}

// Verb of the scope: a partial row home. put(line, to): its bytes; nothing is sent where not `sends`.
template <class Coop, class Put>
UCCLEP_FN void send_partial(const OpenCombine& open, const Op& op, const Home& home, bool sends, Put&& put) {
  const uint32_t bytes = open.shape.token_bytes();
  const uint32_t rows = load_relaxed<Scope::gpu>(open.memory().rows_from() + home.rank);
  const bool line = !op.may.bulk || combining::form_of(op.group.shape, bytes, rows) == Form::line;
  char* const to = partial_at(op, home, bytes, line);
  if (sends) put(line, to);
  if (whole_warps<Coop> && line) return;
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
  UCCLEP_KEEP_LOOP
  for (uint32_t p = Coop::rank(); p < parts; p += Coop::size()) {
    publish(words + uint64_t{home.place} * parts + p, op.seq);
  }
}

// Verb of the scope: a copy, and where it is the last one the partial row.
template <class Coop>
UCCLEP_FN void send_copy(const OpenCombine& open, const Op& op, const Home& home, const void* row) {
  if ((whole_warps<Coop> || Coop::size() == 1) && !home.valid) return;  // of lanes<N> other groups may have rows
  const Copies copies = copies_of(open, home, row);
  const uint32_t bytes = open.shape.token_bytes();
  if constexpr (whole_warps<Coop>) {
    CopiesOfLanes terms = CopiesOfLanes::of(copies, bytes, open.shape.top_k);
    if (!terms.template all_here<Coop>(home, copies)) return;
    with_element(open.shape.dtype, [&](auto element) {
      send_partial<Coop>(open, op, home, true, [&](bool line, char* to) {
        put_partial<decltype(element), Coop>(op, terms, copies, line, to);
      });
    });
  } else {
    const bool sends = all_here<Coop>(home, copies);
    with_element(open.shape.dtype, [&](auto element) {
      send_partial<Coop>(open, op, home, sends,
                         [&](bool line, char* to) { put_words<decltype(element), Coop>(op, copies, bytes, line, to); });
    });
  }
}

// Verb of the scope: the copy at this row of the output, whose home follows from the row.
template <class Coop>
UCCLEP_FN void send_row(const OpenCombine& open, const Op& op, uint32_t row_index, const void* row) {
  send_copy<Coop>(open, op, home_of(open, op, row_index), row);
}

// Verb of the scope: one row of the experts' output, `hidden` elements, 16-byte aligned. row_index: where dispatch put
// the row, counted over all leading dimensions of its output; one where it put nothing sends nothing. row: in memory of
// the GPU, unchanged until the combine has ended; where no other copy of it is on this rank (so in RANK_MAJOR) in
// any memory that the scope can read, and only until the call returns.
// lanes<N>: all groups of a warp call it together.
// Registers: 108 and 592 bytes of stack (sm_90a), 48 (gfx942).
template <class Coop>
UCCLEP_FN void combine_send(Coop, const OpenCombine& open, uint32_t row_index, const void* row) {
  if (!open.ok) return;
  in_group_of(open.op(), [=](const Op& op) {
    send_row<Coop>(open, op, row_index, row);
    return true;
  });
}

// Verb of every block, after its last send. False: the operation has failed.
// Registers: 72 (sm_90a), 41 (gfx942).
UCCLEP_FN bool combine_end(block, const OpenCombine& open) {
  if (!last_out(open, Kind::combine)) return open.ok;
  if (open.beside && open.handle.group.network != nullptr) {
    const HeaderResult come = what_comes<block>(open.dispatch, open.dispatch.op());
    if (come == HeaderResult::lost) return false;
    if (!every_thread(push_ready(open.op(), open, come == HeaderResult::good, warp_id(), block::warps()))) return false;
  }
  leave_to_receive(open, Kind::combine);
  return true;
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// LL combine from a user's kernel: the epilogue of the experts' last GEMM sends the rows that it has finished.
//
//   const auto op = ll::combine_begin(handle, shape);       every thread of the grid
//   ll::combine_send(warp{}, op, row_index, row);           each row once: any scope, block and order
//   ll::combine_end(block{}, op);                           every block, once, after its last send
// and then ucclEpCompleteCombine, or combine_recv in the same kernel (ll_open_combine_recv.hpp).
//
// In EXPERT_MAJOR a rank sends one partial row for the copies of a row (open_copies.hpp).
//
// | who writes                        | who reads                             | ordered by                            |
// |-----------------------------------|---------------------------------------|---------------------------------------|
// | combine_send: copies of a row     | the combine_send of the last of them  | the row's ticket (acq_rel, gpu)       |
// | combine_send: partial rows        | CompleteCombine of the peers          | the lines' epochs; BULK: publish;     |
// |                                   |                                       |   to other domains open_network.hpp   |
// | the last block: the handle's state| CompleteCombine, on the same stream   | the end of the kernel                 |
//
// Waits: combine_begin, for slots that peers still read; between domains combine_begin and combine_send, while proxies
// have too many commands.
//
// Floor: as combine's (ll_combine.hpp).
#pragma once
#include "ucclep/device/ll/combine.hpp"
#include "ucclep/device/user/copies.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// A combine that is open, as every thread of the grid holds it.
struct OpenCombine : OpenOperation {
  // What it is in records and traces.
  UCCLEP_FN Op op() const { return of(Kind::combine, Operation::combine); }
};

// Block verb of every block: READY to all. To peers of other domains it says how many partial rows will come.
UCCLEP_FN bool open_ready_out(const Op& op, const Settings& settings, const HandleMemory& memory) {
  if (op.group.network == nullptr) {
    ready_out(op, settings);
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

// Block verb of every block: the handle's group begins a combine of what the handle's last dispatch brought, which was
// complete before. shape: {hidden, dtype, 0, K}.
UCCLEP_FN OpenCombine combine_begin(const ucclEpDeviceHandle& handle, const RowShape& shape) {
  Opening opening = Opening::of(handle.group, Kind::combine);
  const Op op = open_next(handle, Kind::combine, Operation::combine, opening);
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
  ok = ok && open_slots_free(op, opening) && open_ready_out(op, settings, memory);
  // Where ranks disagreed in the dispatch nothing came, and nothing goes back.
  return {{handle, shape, settings, op.seq, op.slot, ok && state.updated != 0}};
}

// Lane verb: whose row it is. Those of masked ranks, which may be zero rows, are nobody's.
UCCLEP_FN Home home_of(const OpenCombine& open, uint32_t row_index) {
  const HandleMemory memory = open.memory();
  const uint32_t tokens = open.handle.view.tokens, ranks = memory.shape.ranks, slab = ranks * tokens;
  if (!open.by_expert()) {
    const uint32_t rank = row_index / tokens, place = row_index % tokens;
    if (rank >= ranks || place >= memory.rows_from()[rank] || is_masked(open.handle.group, rank)) return {};
    return {rank, place, 0, true};
  }
  const uint32_t expert = row_index / slab, row = row_index % slab;
  if (expert >= memory.shape.local_experts()) return {};
  if (row >= memory.expert_base(ranks - 1)[expert] + memory.counts_from(ranks - 1)[expert]) return {};
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
  if (network::is_away(op, home.rank)) {
    return network::mine(op) + window.out_back_for(op.group.shape, op.slot, home.rank) + uint64_t{home.place} * bytes;
  }
  return op.window(home.rank) +
         (line ? window.back_lines_of(op.slot, op.me()) + home.place * combining::line_row_bytes(bytes)
               : window.back_rows_of(op.slot, op.me()) + uint64_t{home.place} * bytes);
}

// Verb of the scope: the partial row home.
template <class Element, class Coop>
UCCLEP_FN void send_partial(const OpenCombine& open, const Home& home, const Copies& copies, bool sends) {
  const Op op = open.op();
  const uint32_t bytes = open.shape.token_bytes(), rows = open.memory().rows_from()[home.rank];
  const bool line = combining::form_of(op.group.shape, bytes, rows) == Form::line;
  char* const to = partial_at(op, home, bytes, line);
  const auto each = [&](auto&& store) { store(to); };
  const auto word = [&](uint32_t at) { return sum_word<Element>(copies, at); };
  if (sends && line) put_lines<Coop>(bytes, op.seq, each, word);
  if (sends && !line) put_bytes<Coop>(bytes, each, word);
  Coop::sync();
  if (!sends) return;
  if (line) {
    end_lines<Coop>(bytes, op.seq, each);
    return;
  }
  if (network::is_away(op, home.rank)) {
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
template <class Coop>
UCCLEP_FN void combine_send(Coop, const OpenCombine& open, uint32_t row_index, const void* row) {
  if (!open.ok) return;
  const Home home = home_of(open, row_index);
  const Copies copies = copies_of(open, home, row);
  const bool sends = all_here<Coop>(home, copies);
  with_element(open.shape.dtype,
               [&](auto element) { send_partial<decltype(element), Coop>(open, home, copies, sends); });
}

// Verb of every block, after its last send. False: the operation has failed.
UCCLEP_FN bool combine_end(block, const OpenCombine& open) {
  if (!last_out(open)) return open.ok;
  leave_to_receive(open, Kind::combine);
  return true;
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

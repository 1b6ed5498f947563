// SPDX-License-Identifier: Apache-2.0
// HT combine from a user's kernel: the epilogue of the experts' last GEMM, forward or backward, sends the rows that it
// has finished.
//
//   const auto op = ht::combine_begin(handle, shape);       every thread of the grid
//   ht::combine_send(warp{}, op, row_index, row);           each row once: any scope, block and order
//   ht::combine_end(block{}, op);                           every block, once, after its last send
// and then ucclEpCompleteCombine, with config.pass as in the shape. All ranks open the combine, or call ucclEpCombine
// with send_only.
//
// In FLAT a row is staged as it is, in EXPERT_MAJOR the sum of its copies for the local experts (open_copies.hpp). In
// one domain, and with masks, there is no wait but combine_begin's: for slots that peers still read, and in
// EXPERT_MAJOR for the other blocks of the grid. Else, between domains, combine_end waits in every block, at most the
// group's timeout, for combine_begin of all ranks and for the sends of those of its domain, of which it adds up what
// goes to homes elsewhere; and where sums land in rings for the sends of all ranks, since it brings these
// (ht_open_network.hpp). So no rank's sends may wait for what another rank does after its combine_end.
//
// clang-format off
// | who writes                                  | who reads                             | ordered by                          |
// |---------------------------------------------|---------------------------------------|-------------------------------------|
// | combine_begin: homes of rows (EXPERT_MAJOR) | combine_send                          | the grid's barrier                  |
// | combine_send: copies of a row               | the combine_send of the last of them  | the row's ticket (acq_rel, gpu)     |
// | combine_send: a row for another domain,     | its NIC, at the command of the        | push_alone, after the scope's sync  |
// |   with masks                                |   scope's first member                |                                     |
// | combine_send: a row to this rank's staging, | the combine_send of the run's last    | the run's ticket (acq_rel, gpu)     |
// |   in a group with a limit its place         |   row                                 |                                     |
// | the same                                    | CompleteCombine of the home, or       | publish of the run's word (system), |
// |                                             |   combine_end of its relay here       |   after the last ticket             |
// | the last block: the handle's state          | CompleteCombine, on the same stream   | the end of the kernel               |
// clang-format on
//
// Floor: as combine's (ht_combine.hpp); a home pulls a run of rows as soon as the last of them is staged.
#pragma once
#include "ucclep/device/user/ht.hpp"
#include "ucclep/device/user/ht_copies.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// A combine that is open, as every thread of the grid holds it.
struct OpenCombine : OpenOperation {
  // What it is in records and traces.
  UCCLEP_FN Op op() const { return of(Kind::combine, Operation::combine); }
};

// Block verb of every block: the handle's group begins a combine of what the handle's last dispatch brought, which was
// complete before. shape: {hidden, dtype, 0, K}, with its pass.
UCCLEP_FN OpenCombine combine_begin(const ucclEpDeviceHandle& handle, const RowShape& shape) {
  Begun begun = begin(handle, shape, Kind::combine, Operation::combine);
  const HandleMemory memory = begun.memory(handle);
  Settings settings = open_settings(memory, shape);
  if (shape.pass == UCCLEP_PASS_FORWARD) settings.weights_at_dispatch = memory.state()->weighted;
  if (begun.ok && !shape.sums()) {
    refuse(begun.op, Field::dtype, ucclEpBfloat16, shape.dtype);
    begun.ok = false;
  }
  bool ok = begun.ready_out(handle, settings);
  if (ok && handle.view.layout == UCCLEP_LAYOUT_EXPERT_MAJOR) ok = note_homes(begun.op, handle);
  return {{handle, shape, settings, begun.op.seq, begun.op.slot, ok}};
}

// Lane verb: of one of the N rows.
UCCLEP_FN Home home_of(const OpenCombine& open, uint32_t row_index) {
  const HandleMemory memory = open.memory();
  if (open.by_expert()) return noted_home(open.handle, row_index);
  const uint32_t rank = last_up_to(memory.recv_base(), memory.shape.ranks, row_index);
  if (is_masked(open.handle.group, rank)) return {};
  return {rank, row_index - memory.recv_base()[rank], 0, true};
}

// Lane verb: what is staged with this copy, if it is the last. Those for which dispatch had no room are missing: they
// are of the highest experts.
UCCLEP_FN Copies copies_of(const OpenCombine& open, const Home& home, const void* row) {
  if (!home.valid || !open.by_expert()) return Copies::none(row);
  const HandleMemory memory = open.memory();
  const CopyMemory copies(open.handle);
  const RecvEntry* const entries = memory.recv_entries(home.rank, home.place);
  uint32_t count = memory.recv_count(home.rank)[home.place];
  while (entries[count - 1].row >= memory.state()->capacity) --count;
  return {static_cast<const char*>(row),
          copies.rows(home.rank, home.place),
          copies.in(home.rank, home.place),
          entries,
          count,
          false};
}

// Lane verb: one more row of its run is staged, or nothing is left of it (index: no_place); the last says so to the
// home, or to its relay in this node. One that needs no relay leaves; a push that fails has ended the operation.
UCCLEP_FN void count_in(const OpenCombine& open, const Home& home, uint32_t index) {
  const Op op = open.op();
  if (lands_alone(op, home.rank)) {
    network::push_row_alone(op, home.rank, home.place, open.shape.token_bytes(), between_nodes_flag);
    return;
  }
  const HandleMemory memory = open.memory();
  if (op.group.shape.pool_rows != 0) AcrossNodes::pool_places(op, home.rank)[home.place] = index;
  const uint32_t run = home.place / run_rows, left = memory.rows_from()[home.rank] - run * run_rows;
  const uint32_t rows = left < run_rows ? left : run_rows;
  uint32_t* const in = memory.runs_in(home.rank) + run;
  if (fetch_add_acq_rel<Scope::gpu>(in, uint32_t{1}) + 1 != rows) return;
  store_relaxed<Scope::gpu>(in, uint32_t{0});  // for the next combine
  publish(AcrossNodes::run_words(op, home.rank) + run, op.seq);
}

// The row of the output that stands for a partial row: that of its first copy. In a group with a limit it is the one of
// the pool, too (ht_pool.hpp).
UCCLEP_FN uint32_t first_copy(const OpenCombine& open, const Home& home, uint32_t row_index) {
  return open.by_expert() ? open.memory().recv_entries(home.rank, home.place)[0].row : row_index;
}

// Where a partial row is staged.
UCCLEP_FN char* staging_of(const OpenCombine& open, const Home& home, uint32_t index) {
  const Op op = open.op();
  const WindowLayout& window = op.group.layout;
  const uint32_t bytes = open.shape.token_bytes();
  if (lands_alone(op, home.rank)) return relay::sum_out(op, bytes, relay::own_block(op, home.rank), home.place);
  if (op.group.shape.pool_rows != 0) return op.mine() + window.pool_of(op.slot) + uint64_t{index} * bytes;
  return op.mine() + window.back_rows_of(op.slot, home.rank) + uint64_t{home.place} * bytes;
}

// Verb of the scope: one row of the experts' output, `hidden` elements, 16-byte aligned. row_index: where dispatch put
// the row; one where it put nothing sends nothing, and so do pads. row: in EXPERT_MAJOR in memory of the GPU, unchanged
// until the combine has ended; in FLAT in any memory that the scope can read, and only until the call returns.
// lanes<N>: all groups of a warp call it together.
template <class Coop>
UCCLEP_FN void combine_send(Coop, const OpenCombine& open, uint32_t row_index, const void* row) {
  if (!open.ok) return;
  const Home home = row_index < open.memory().state()->capacity ? home_of(open, row_index) : Home{};
  const Copies copies = copies_of(open, home, row);
  const bool sends = open.by_expert() ? all_here<Coop>(home, copies) : home.valid;
  const uint32_t index = sends ? first_copy(open, home, row_index) : 0;
  if (sends) {
    char* const to = staging_of(open, home, index);
    with_element(open.shape.dtype, [&](auto element) {
      put_bytes<Coop>(
          open.shape.token_bytes(), [&](auto&& store) { store(to); },
          [&](uint32_t at) { return sum_word<decltype(element)>(copies, at); });
    });
  }
  Coop::sync();
  if (sends && Coop::rank() == 0) count_in(open, home, index);
}

// Grid verb: partial rows of which dispatch had no room for any copy count as zero.
UCCLEP_FN void send_dropped(const OpenCombine& open) {
  const HandleMemory memory = open.memory();
  const bool pooled = memory.shape.pool_rows != 0;
  for (uint32_t i = memory.state()->capacity + grid_warp(); i < memory.state()->rows; i += grid_warps()) {
    const Home home = home_of(open, i);
    if (!home.valid || first_copy(open, home, i) != i) continue;
    if (!pooled || lands_alone(open.op(), home.rank)) {
      char* const to = staging_of(open, home, i);
      const auto there = [&](auto&& store) { store(to); };
      const auto zero = [](uint32_t) { return uint64_t{0}; };
      put_bytes<warp>(open.shape.token_bytes(), there, zero);
    }
    sync_warp();
    if (lane_id() == 0) count_in(open, home, no_place);
  }
}

// Verb of every block, after its last send. False: the operation has failed.
UCCLEP_FN bool combine_end(block, const OpenCombine& open) {
  const Op op = open.op();
  if (open.ok) send_dropped(open);
  const bool ok = open.ok && (!relays(op) || relay_combine(open, op));
  if (!last_out(open, ok)) return ok;
  leave_to_receive(open, Kind::combine);
  return true;
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

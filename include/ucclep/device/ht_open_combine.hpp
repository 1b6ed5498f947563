// SPDX-License-Identifier: Apache-2.0
// HT combine in FLAT from a user's kernel: the epilogue of the experts' last GEMM, forward or backward, sends the rows
// that it has finished.
//
//   const auto op = ht::combine_begin(handle, shape);       every thread of the grid
//   ht::combine_send(warp{}, op, row_index, row);           each row once: any scope, block and order
//   ht::combine_end(block{}, op);                           every block, once, after its last send
// and then ucclEpCompleteCombine, with config.pass as in the shape. All ranks open the combine, or call ucclEpCombine
// with send_only.
//
// clang-format off
// | who writes                                  | who reads                             | ordered by                          |
// |---------------------------------------------|---------------------------------------|-------------------------------------|
// | combine_send: a row to this rank's staging, | the combine_send of the run's last    | the run's ticket (acq_rel, gpu)     |
// |   in a group with a limit its place         |   row                                 |                                     |
// | the same                                    | CompleteCombine of the home           | publish of the run's word (system), |
// |                                             |                                       |   after the last ticket             |
// | the last block: the handle's state          | CompleteCombine, on the same stream   | the end of the kernel               |
// clang-format on
//
// Floor: as combine's (ht_combine.hpp); a home pulls a run of rows as soon as the last of them is staged.
#pragma once
#include "ucclep/device/ht_open.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// A combine that is open, as every thread of the grid holds it.
struct OpenCombine : OpenOperation {
  // What it is in records and traces.
  UCCLEP_FN Op op() const { return of(Kind::combine, Operation::combine); }
};

// Block verb of every block: the handle's group begins a combine of what the handle's last dispatch brought, which was
// complete before. shape: {hidden, dtype, 0, K}.
UCCLEP_FN OpenCombine combine_begin(const ucclEpDeviceHandle& handle, const RowShape& shape) {
  Begun begun = begin(handle, shape, Kind::combine, Operation::combine);
  const HandleMemory memory = begun.memory(handle);
  Settings settings = open_settings(memory, shape);
  if (shape.pass == UCCLEP_PASS_FORWARD) settings.weights_at_dispatch = memory.state()->weighted;
  if (begun.ok && !shape.sums()) {
    refuse(begun.op, Field::dtype, ucclEpBfloat16, shape.dtype);
    begun.ok = false;
  }
  if (begun.ok && handle.view.layout != UCCLEP_LAYOUT_FLAT) {
    refuse(begun.op, Field::layout, UCCLEP_LAYOUT_FLAT, static_cast<uint64_t>(handle.view.layout));
    begun.ok = false;
  }
  const bool ok = begun.ready_out(handle, settings);
  return {{handle, shape, settings, begun.op.seq, begun.op.slot, ok}};
}

// Of a row that this rank received: whose it is.
struct Home {
  uint32_t rank, place;
};

// Lane verb: of one of the N rows.
UCCLEP_FN Home home_of(const HandleMemory& memory, uint32_t row_index) {
  const uint32_t* const base = memory.recv_base();
  uint32_t low = 0, high = memory.shape.ranks;  // base[low] <= row_index < base[high]
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (base[middle] <= row_index) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return {low, row_index - base[low]};
}

// Lane verb: one more row of its run is staged, or nothing is left of it (index: no_place); the last says so to the
// home.
UCCLEP_FN void count_in(const OpenCombine& open, const Home& home, uint32_t index) {
  const Op op = open.op();
  const HandleMemory memory = open.memory();
  if (op.group.shape.pool_rows != 0) OneNode::pool_places(op, home.rank)[home.place] = index;
  const uint32_t run = home.place / run_rows, left = memory.rows_from()[home.rank] - run * run_rows;
  const uint32_t rows = left < run_rows ? left : run_rows;
  uint32_t* const in = memory.runs_in(home.rank) + run;
  if (fetch_add_acq_rel<Scope::gpu>(in, uint32_t{1}) + 1 != rows) return;
  store_relaxed<Scope::gpu>(in, uint32_t{0});  // for the next combine
  publish(OneNode::run_words(op, home.rank) + run, op.seq);
}

// Where a row is staged.
UCCLEP_FN char* staging_of(const OpenCombine& open, const Home& home, uint32_t row_index) {
  const Op op = open.op();
  const WindowLayout& window = op.group.layout;
  const uint64_t bytes = open.shape.token_bytes();
  if (op.group.shape.pool_rows != 0) return op.mine() + window.pool_of(op.slot) + row_index * bytes;
  return op.mine() + window.back_rows_of(op.slot, home.rank) + home.place * bytes;
}

// Verb of the scope: one row of the experts' output, `hidden` elements, 16-byte aligned, in any memory that the scope
// can read, and only until the call returns. row_index: where dispatch put the row; one where it put nothing sends
// nothing. lanes<N>: all groups of a warp call it together.
template <class Coop>
UCCLEP_FN void combine_send(Coop, const OpenCombine& open, uint32_t row_index, const void* row) {
  if (!open.ok) return;
  const HandleMemory memory = open.memory();
  const bool sends = row_index < memory.state()->capacity;
  const Home home = sends ? home_of(memory, row_index) : Home{};
  if (sends) {
    char* const to = staging_of(open, home, row_index);
    put_bytes<Coop>(
        open.shape.token_bytes(), [&](auto&& store) { store(to); },
        [&](uint32_t at) { return *reinterpret_cast<const uint64_t*>(static_cast<const char*>(row) + at); });
  }
  Coop::sync();
  if (sends && Coop::rank() == 0) count_in(open, home, row_index);
}

// Verb of the last block: rows for which dispatch had no room count as zero.
UCCLEP_FN void send_dropped(const OpenCombine& open) {
  const HandleMemory memory = open.memory();
  const bool pooled = memory.shape.pool_rows != 0;
  for (uint32_t i = memory.state()->capacity + warp_id(); i < memory.state()->rows; i += block::warps()) {
    const Home home = home_of(memory, i);
    if (!pooled) {
      char* const to = staging_of(open, home, i);
      put_bytes<warp>(open.shape.token_bytes(), [&](auto&& store) { store(to); }, [](uint32_t) { return uint64_t{0}; });
    }
    sync_warp();
    if (lane_id() == 0) count_in(open, home, no_place);
  }
}

// Verb of every block, after its last send. False: the operation has failed.
UCCLEP_FN bool combine_end(block, const OpenCombine& open) {
  if (!last_out(open)) return open.ok;
  send_dropped(open);
  if (thread_id() == 0) open.memory().state()->opened[static_cast<uint32_t>(Kind::combine)] = open.seq;
  return true;
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

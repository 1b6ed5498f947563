// SPDX-License-Identifier: Apache-2.0
// HT combine from a user's kernel: the epilogue of the experts' last GEMM, forward or backward, sends the rows that it
// has finished.
//
//   const auto op = ht::combine_begin(handle, shape);       every thread of the grid
//   ht::combine_send(warp{}, op, row_index, row);           each row once: any scope, block and order
//   ht::combine_end(block{}, op);                           every block, once, after its last send
// and then ucclEpCompleteCombine, with config.pass as in the shape. All ranks begin the combine in a kernel, or call
// ucclEpCombine with send_only.
//
// In FLAT a row is staged as it is, in EXPERT_MAJOR the sum of its copies for the local experts (user/copies.hpp). In
// one domain, and with masks, there is no wait but combine_begin's: for slots that peers still read, and in
// EXPERT_MAJOR for the other blocks of the grid. Else, between domains, combine_end waits in every block, at most the
// group's timeout, for combine_begin of all ranks and for the sends of those of its domain, of which it adds up what
// goes to homes elsewhere (user/ht.hpp). So no rank's sends may wait for what another rank does after its combine_end.
//
// clang-format off
// | who writes                                  | who reads                             | ordered by                          |
// |---------------------------------------------|---------------------------------------|-------------------------------------|
// | combine_begin: homes of rows (EXPERT_MAJOR) | combine_send                          | the grid's barrier                  |
// | combine_send: copies of a row               | the combine_send of the last of them  | the row's ticket (acq_rel, gpu)     |
// | combine_send: a row for another domain,     | its NIC, at the command of the        | push_stored_alone, after its sync   |
// |   with masks                                |   chunk's last row                    |                                     |
// | combine_send: a row to this rank's staging, | the combine_send of the run's last    | the run's ticket (acq_rel, gpu)     |
// |   in a group with a limit its place         |   row                                 |                                     |
// | the same                                    | CompleteCombine of the home, or       | publish of the run's word (system), |
// |                                             |   combine_end of its relay here       |   after the last ticket             |
// | the last block: the handle's state          | CompleteCombine, on the same stream   | the end of the kernel               |
// clang-format on
//
// Floor: as combine's (ht/combine.hpp); a home pulls a run of rows as soon as the last of them is staged.
//
// HT combine received by a user's kernel, the one that sent it: who goes on with a token waits for its rows alone.
//
//   ht::combine_recv(warp{}, op, out, first_token, last_token);   each token of the routing once
// after combine_end in the same block, instead of ucclEpCompleteCombine (user/receive.hpp says when the operation
// ends). All ranks may do so, or some.
//
// | who writes                     | who reads           | ordered by                         |
// |--------------------------------|---------------------|------------------------------------|
// | the peers' staged partial rows | combine_recv        | the run's word (publish, acquire)  |
// | sums of other nodes, or with   | combine_recv        | wait_row (protocol/by_network.hpp) |
// |   masks partial rows, by a NIC |                     |                                    |
// | combine_recv: the results      | the scope, after it | the scope's sync                   |
//
// Floor: as combine's (ht/combine.hpp).
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/nodes/network.hpp"
#include "ucclep/device/ht/pool.hpp"
#include "ucclep/device/layout/command.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/simt/element.hpp"
#include "ucclep/device/user/copies.hpp"
#include "ucclep/device/user/ht.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/receive.hpp"
#include "ucclep/device/user/row_in.hpp"
#include "ucclep/device/user/row_out.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// A combine that is pending, as every thread of the grid holds it.
struct OpenCombine : DeviceOperation {
  // What it is in records and traces.
  UCCLEP_FN Op op() const { return of(Kind::combine, Operation::combine); }
};

// Block verb of every block: the handle's group begins a combine of what the handle's last dispatch received, which was
// complete before. shape: {hidden, dtype, 0, K}, with its pass.
// Registers: 70 (sm_90a), 41 (gfx942).
UCCLEP_FN OpenCombine combine_begin(const ucclEpDeviceHandle& handle, const RowShape& shape) {
  Begun begun = begin(handle, shape, Kind::combine, Operation::combine);
  const HandleMemory memory = begun.memory(handle);
  Settings settings = routed_settings(memory, shape);
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
  const HandleMemory memory = open.memory();
  if (lands_alone(op, home.rank)) {
    const uint32_t all = memory.rows_from()[home.rank];
    network::push_stored_alone(op, home.rank, home.place, all, open.shape.token_bytes());
    return;
  }
  if (op.group.shape.pool_rows != 0) AcrossNodes::pool_places(op, home.rank)[home.place] = index;
  const uint32_t run = home.place / run_rows, left = memory.rows_from()[home.rank] - run * run_rows;
  const uint32_t rows = left < run_rows ? left : run_rows;
  uint32_t* const in = memory.runs_in(home.rank) + run;
  if (fetch_add_acq_rel<Scope::gpu>(in, uint32_t{1}) + 1 != rows) return;
  store_relaxed<Scope::gpu>(in, uint32_t{0});  // for the next combine
  publish(AcrossNodes::run_words(op, home.rank) + run, op.seq);
}

// The row of the output that stands for a partial row: that of its first copy. In a group with a limit it is the one of
// the pool, too (ht/pool.hpp).
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
// Registers: 72 and 64 bytes of stack (sm_90a), 49 (gfx942).
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
// Registers: 72 (sm_90a), 42 (gfx942).
UCCLEP_FN bool combine_end(block, const OpenCombine& open) {
  const Op op = open.op();
  if (open.ok) send_dropped(open);
  const bool ok = open.ok && (!relays(op) || relay_combine(open, op));
  if (!last_out(open, Kind::combine, ok)) return ok;
  leave_to_receive(open, Kind::combine);
  return true;
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// The partial rows of one token that are terms of their own, ranks ascending: where they are staged, in windows that
// are mapped here, or with masks where they have landed. NULL: nothing is left of one.
struct StagedPartials {
  const char* rows[max_top_k];
  uint32_t count = 0;

  // Lane verb: waits until they are there.
  UCCLEP_FN bool wait(const OpenCombine& open, const Op& op, uint32_t token) {
    const WindowLayout& window = op.group.layout;
    const Returns from(open, token);
    for (uint32_t i = 0; i < from.count; ++i) {
      const uint32_t rank = from.ranks[i], place = from.places[i];
      if (lands_alone(op, rank)) {
        if (!network::wait_row(op, rank, place, between_nodes_flag)) return false;
        rows[count++] = relay::sum_in(op, open.shape.token_bytes(), relay::nodes_of(op).node_of(rank), place);
        continue;
      }
      if (network::is_remote(op, rank)) continue;
      const uint64_t words = window.back_epochs_of(op.slot, rank);
      if (!wait_word(op, Phase::rows, rank, op.mine() + words + 8 * uint64_t{place / run_rows})) return false;
      rows[count++] =
          staged_partial(op, open.shape.token_bytes(), {rank, op.me(), place}, window.back_places_of(op.slot, rank));
    }
    return true;
  }
};

// Lane verb: 16 bytes of a row, of one of which nothing is left zeros.
template <class Element>
UCCLEP_FN Vector<Element> term_of(const char* row, uint32_t at) {
  return Vector<Element>::unpack(row == nullptr ? vec16{} : load16(row + at));
}

// Lane verb: 16 bytes of what these add up to.
template <class Element>
UCCLEP_FN TermSum<Element> sum_here(const StagedPartials& from, uint32_t at) {
  TermSum<Element> sum;
  for (uint32_t i = 0; i < from.count; ++i) sum.add(term_of<Element>(from.rows[i], at));
  return sum;
}

// The same between domains: the own node's ranks are rounded together, and nodes added, ascending (P6).
template <class Element>
UCCLEP_FN TermSum<Element> sum_nodes(const StagedPartials& from, const NodeSums& remote, uint32_t at) {
  const TermSum<Element> own = sum_here<Element>(from, at);
  TermSum<Element> sum;
  for (uint32_t i = 0; i < remote.before; ++i) sum.add(term_of<Element>(remote.rows[i], at));
  if (own.begun) sum.add(Vector<Element>::unpack(own.sum.pack()));
  for (uint32_t i = remote.before; i < remote.count; ++i) sum.add(term_of<Element>(remote.rows[i], at));
  return sum;
}

// Verb of members of a scope: the result of one token. sum(at): 16 bytes of its terms.
template <class Element, class Coop, class Sum>
UCCLEP_FN void store_token(const OpenCombine& open, const CombineRows& out, uint32_t token, Sum&& sum) {
  const uint32_t bytes = open.shape.token_bytes();
  const void* const biases[] = {out.bias, out.bias2};
  for (uint32_t at = 16 * Near<Coop>::rank(); at < bytes; at += 16 * Near<Coop>::size()) {
    TermSum<Element> result = sum(at);
    result.begun = true;  // also where the token has no expert: the bias is added to zero
    for (const void* const bias : biases) {
      if (bias == nullptr) continue;
      result.add(Vector<Element>::unpack(load16(row_at(const_cast<void*>(bias), token, bytes) + at)));
    }
    store16(row_at(out.tokens, token, bytes) + at, result.sum.pack());
  }
}

// Verb of members of a scope: the same, once its terms are there.
template <class Coop>
UCCLEP_FN bool receive_token(const OpenCombine& open, const Op& op, const CombineRows& out, uint32_t token) {
  StagedPartials from;
  if (!from.wait(open, op, token)) return false;
  NodeSums remote;
  if (relays(op) && !remote.wait(open, op, token)) return false;
  with_element(open.shape.dtype, [&](auto element) {
    using Element = decltype(element);
    if (relays(op)) {
      store_token<Element, Coop>(open, out, token, [&](uint32_t at) { return sum_nodes<Element>(from, remote, at); });
    } else {
      store_token<Element, Coop>(open, out, token, [&](uint32_t at) { return sum_here<Element>(from, at); });
    }
  });
  return true;
}

// Verb of the scope, after combine_end: the results of tokens [first, last) to `out`; waits until they are there, at
// most the group's timeout. Every token is asked for exactly once, by any scope, in any order and block; tokens past
// the last that was routed have no result. lanes<N>: all groups of a warp call it together, with first = last where
// there is nothing to do. False: the operation has failed, or ranks disagree and there are no results.
// Registers: 72 and 960 bytes of stack (sm_90a), 61 and 664 bytes of stack (gfx942).
template <class Coop>
UCCLEP_FN bool combine_recv(Coop, const OpenCombine& open, const CombineRows& out, uint32_t first, uint32_t last) {
  const Op op = open.op();
  return receive_tokens<Coop>(open, op, first, last, true, [&](uint32_t begin, uint32_t end) {
    for (uint32_t token = begin + Near<Coop>::index(); token < end; token += Near<Coop>::count()) {
      if (!receive_token<Coop>(open, op, out, token)) return false;
    }
    return true;
  });
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

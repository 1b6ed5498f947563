// SPDX-License-Identifier: Apache-2.0
// HT dispatch from a user's kernel: the one that computes the rows sends them, after ucclEpHandleUpdate has routed
// them.
//
//   const auto op = ht::dispatch_begin(handle, shape);          every thread of the grid
//   ht::dispatch_send(warp{}, op, token, row, scales, weights); each token once: any scope, block and order
//   ht::dispatch_end(block{}, op, tokens);                      every block, once, after its last send
// and then ucclEpCompleteDispatch, with config.pass as in the shape. All ranks open the dispatch, or call
// ucclEpDispatch with send_only: who calls it whole may lend its output, into which nobody here writes.
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
// of all ranks and for what other domains send to this rank, which it relays (ht_open_network.hpp): so no rank's sends
// may wait for what another rank does after its dispatch_end. And dispatch_send may wait while proxies have too many
// commands.
//
// Floor: as dispatch's (high_throughput.hpp); peers pull a row as soon as it is staged.
#pragma once
#include "ucclep/device/user/ht.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// A dispatch that is open, as every thread of the grid holds it.
struct OpenDispatch : OpenOperation {
  WireShape wire;  // how rows lie on the wire

  // What it is in records and traces.
  UCCLEP_FN Op op() const { return of(Kind::dispatch, Operation::dispatch); }
};

// Block verb of every block: the handle's group begins a dispatch of what the last ucclEpHandleUpdate has routed. Waits
// until peers have finished with the slots; at most the group's timeout.
UCCLEP_FN OpenDispatch dispatch_begin(const ucclEpDeviceHandle& handle, const RowShape& shape) {
  const Begun begun = begin(handle, shape, Kind::dispatch, Operation::dispatch);
  Settings settings = open_settings(begun.memory(handle), shape);
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
    return places[k] != no_place && !network::is_away(op, rank(k)) && !is_masked(op.group, rank(k));
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
UCCLEP_FN void put_away(const OpenDispatch& open, const RowsAway& away, const void* row, const void* scales,
                        const float* weights) {
  const uint32_t head = relayed_head_bytes(away.memory.shape);
  const auto to = [&](uint64_t at) { return [&away, at](auto&& store) { away.each(at, store); }; };
  put_bytes<Coop>(head, to(0), [&](uint32_t at) { return head_word(away.memory, away.token, weights, at); });
  put_row<Coop>(open, row, scales, [&](uint32_t at) { return to(head + at); });
}

// Verb of the scope: one token. row: `hidden` elements, 16-byte aligned, in any memory that the scope can read, as are
// scales (scale_bytes of them; NULL where that is 0) and weights (K of the token, NULL where rows have none). lanes<N>:
// all groups of a warp call it together; token >= the routing's tokens sends nothing.
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
  const RowsAway away{op, memory, token, static_cast<uint32_t>(relayed_row_bytes(memory.shape, open.wire.row_bytes))};
  const bool wanted = sends && here.any(), crosses = sends && networked(op) && away.any();
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
  if (crosses) put_away<Coop>(open, away, row, scales, weights);
  Coop::sync();
  for (uint32_t k = Coop::rank(); wanted && k < top_k; k += Coop::size()) {
    if (!here.has(k)) continue;
    publish(reinterpret_cast<uint64_t*>(here.meta(k) + MetaLayout::of(top_k).epoch), op.seq);
  }
  if (crosses) away.template push<Coop>();
}

// Verb of every block, after its last send. tokens: T, sent as 0 .. T - 1; a data record says so where the routing has
// another number of them. False: the operation has failed.
UCCLEP_FN bool dispatch_end(block, const OpenDispatch& open, uint32_t tokens) {
  const Op op = open.op();
  const bool ok = open.ok && (!relays(op) || relay_dispatch(open, op, open.wire.row_bytes));
  if (!last_out(open, ok)) return ok;
  HandleState* const state = open.memory().state();
  if (tokens != state->tokens) refuse(op, Field::tokens, state->tokens, tokens);
  leave_to_receive(open, Kind::dispatch);
  return true;
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// What the kernels do, for any scope.
#pragma once
#include "initiated_kernels.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

using test::InitiatedCombineArgs;
using test::InitiatedDispatchArgs;
using test::ReceiveCombineArgs;
using test::ReceiveDispatchArgs;
using test::RoundArgs;
using test::RoundParts;
using test::Rows;

// Shares out every i below count, each to one scope of the grid, in another order for every seed. All scopes of a block
// take equally many turns; one that has nothing to do in its turn gets `count`. (No lambdas: used by several kernels
// they become functions, for which clang compiles wrong code for AMD.)
template <class Coop>
struct Shares {
  uint32_t count, seed, all, mine;

  UCCLEP_FN Shares(uint32_t count, uint32_t seed) : count(count), seed(seed) {
    all = block_size() / Coop::size() * grid_size();
    mine = thread_id() / Coop::size() * grid_size() + (block_id() + seed) % grid_size();
  }
  UCCLEP_FN uint32_t turns() const { return (count + all - 1) / all; }
  UCCLEP_FN uint32_t item(uint32_t turn) const {
    const uint32_t i = turn * all + mine;
    return i < count ? (i + seed) % count : count;
  }
};

// By one thread of the grid, before the block ends what it sends.
UCCLEP_FN void hold(uint32_t* held) {
  if (held == nullptr || block_id() != 0 || thread_id() != 0) return;
  store_release<Scope::system>(held, 1u);
  while (load_acquire<Scope::system>(held) != 2) pause();
}

template <class Coop>
UCCLEP_FN ll::OpenDispatch send_tokens(const InitiatedDispatchArgs& args) {
  const auto op = ll::dispatch_begin(args.handle, args.shape);
  const Shares<Coop> shares(args.tokens + args.again, args.seed);
  for (uint32_t turn = 0; turn < shares.turns(); ++turn) {
    const uint32_t i = shares.item(turn);
    const bool any = i < shares.count;
    const uint32_t row = !any ? 0 : i < args.tokens ? i : i - args.tokens, token = any ? row : ~0u;
    const auto* weights = reinterpret_cast<const float*>(args.weights.at(row));
    if (args.wide_ids) {
      ll::dispatch_send(Coop{}, op, token, args.rows.at(row), args.scales.at(row),
                        reinterpret_cast<const int64_t*>(args.experts.at(row)), weights);
    } else {
      ll::dispatch_send(Coop{}, op, token, args.rows.at(row), args.scales.at(row),
                        reinterpret_cast<const int32_t*>(args.experts.at(row)), weights);
    }
  }
  hold(args.held);
  ll::dispatch_end(block{}, op, args.said);
  return op;
}

// Of a combine that has begun, in LL or in HT.
template <class Coop, class Open>
UCCLEP_FN Open send_rows(const Open& op, const InitiatedCombineArgs& args) {
  const Shares<Coop> shares(args.count, args.seed);
  for (uint32_t turn = 0; turn < shares.turns(); ++turn) {
    const uint32_t i = shares.item(turn);
    combine_send(Coop{}, op, i < args.count ? i : ~0u, args.rows.at(i < args.count ? i : 0));
  }
  combine_end(block{}, op);
  return op;
}

template <class Coop>
UCCLEP_FN ht::OpenDispatch send_routed_tokens(const InitiatedDispatchArgs& args) {
  const auto op = ht::dispatch_begin(args.handle, args.shape);
  const Shares<Coop> shares(args.tokens, args.seed);
  for (uint32_t turn = 0; turn < shares.turns(); ++turn) {
    const uint32_t i = shares.item(turn);
    const uint32_t row = i < args.tokens ? i : 0, token = i < args.tokens ? i : ~0u;
    ht::dispatch_send(Coop{}, op, token, args.rows.at(row), args.scales.at(row),
                      reinterpret_cast<const float*>(args.weights.at(row)));
  }
  ht::dispatch_end(block{}, op, args.said);
  return op;
}

// The same for ranges of `tile`; who has nothing to do in its turn gets an empty one.
template <class Coop>
struct RowRanges {
  Shares<Coop> shares;
  uint32_t rows, tile;

  UCCLEP_FN RowRanges(uint32_t rows, uint32_t tile, uint32_t seed)
      : shares((rows + tile - 1) / tile, seed), rows(rows), tile(tile) {}
  UCCLEP_FN uint32_t turns() const { return shares.turns(); }
  UCCLEP_FN uint32_t first(uint32_t turn) const {
    const uint32_t i = shares.item(turn);
    return i < shares.count ? i * tile : rows;
  }
  UCCLEP_FN uint32_t last(uint32_t turn) const {
    const uint32_t begin = first(turn);
    return rows - begin < tile ? rows : begin + tile;
  }
};

// Of an operation that is pending, in LL or in HT.
template <class Coop, class Open>
UCCLEP_FN void receive_rows(const Open& op, const ReceiveDispatchArgs& args) {
  const RowRanges<Coop> tiles(args.rows, args.tile, args.send.seed);
  for (uint32_t turn = 0; turn < tiles.turns(); ++turn) {
    dispatch_recv(Coop{}, op, args.out, tiles.first(turn), tiles.last(turn));
  }
}
template <class Coop, class Open>
UCCLEP_FN void receive_tokens(const Open& op, const ReceiveCombineArgs& args) {
  if (args.tokens == 0) combine_recv(Coop{}, op, args.out, 0, 0);
  const RowRanges<Coop> tiles(args.tokens, args.tile, args.send.seed);
  for (uint32_t turn = 0; turn < tiles.turns(); ++turn) {
    combine_recv(Coop{}, op, args.out, tiles.first(turn), tiles.last(turn));
  }
}

template <class Coop>
UCCLEP_FN void receive_zones(const ll::OpenDispatch& op, const ReceiveDispatchArgs& args) {
  const Shares<Coop> shares(args.zones, args.send.seed);
  for (uint32_t turn = 0; turn < shares.turns(); ++turn) {
    const uint32_t zone = shares.item(turn);
    uint32_t rows = 0;
    const bool good = ll::dispatch_rows(Coop{}, op, zone, rows);
    if (good && zone < args.zones && Coop::rank() == 0) args.zone_rows[zone] = static_cast<int32_t>(rows);
  }
}

// Which scopes are tried with a routing that is known: one of whole warps, and one of less.
template <class Coop>
constexpr bool tries_known = false;
template <>
inline constexpr bool tries_known<block> = true;
template <>
inline constexpr bool tries_known<lanes<4>> = true;

template <class Coop>
UCCLEP_FN void send_known(const ll::RoutedDispatch<int64_t>& op, const InitiatedDispatchArgs& args) {
  const Shares<Coop> shares(args.tokens, args.seed);
  for (uint32_t turn = 0; turn < shares.turns(); ++turn) {
    const uint32_t i = shares.item(turn), row = i < args.tokens ? i : 0;
    ll::dispatch_send(Coop{}, op, i < args.tokens ? i : ~0u, args.rows.at(row), args.scales.at(row));
  }
  hold(args.held);
  ll::dispatch_end(block{}, op);
}
UCCLEP_FN ll::RoutedDispatch<int64_t> begin_known(const InitiatedDispatchArgs& args) {
  const TopkRouting<int64_t> routing{reinterpret_cast<const int64_t*>(args.experts.data),
                                     reinterpret_cast<const float*>(args.weights.data), args.said};
  return ll::dispatch_begin(args.handle, args.shape, routing);
}

// Rows go back as they are received.
template <class Coop>
UCCLEP_FN void receive_and_send(const ll::OpenDispatch& there, const ll::OpenCombine& back, const RoundArgs& args) {
  const ReceiveDispatchArgs& in = args.dispatch;
  const Rows& out = args.combine.send.rows;
  const RowRanges<Coop> tiles(in.rows, in.tile, in.send.seed);
  for (uint32_t turn = 0; turn < tiles.turns(); ++turn) {
    const uint32_t first = tiles.first(turn), last = tiles.last(turn);
    dispatch_recv(Coop{}, there, in.out, first, last);
    for (uint32_t i = 0; i < in.tile; ++i) {  // all groups of a warp
      const bool any = first + i < last;
      combine_send(Coop{}, back, any ? first + i : ~0u, out.at(any ? first + i : 0));
    }
  }
}

// A dispatch that knows its routing, and beside it the combine of its rows. No barrier of the grid comes between two.
template <class Coop>
UCCLEP_FN void known_round(const RoundArgs& args) {
  const InitiatedCombineArgs& of_combine = args.combine.send;
  const auto there = begin_known(args.dispatch.send);
  if (args.parts == RoundParts::beside) {
    const auto back = ll::combine_begin(of_combine.handle, of_combine.shape, there);
    send_known<Coop>(there, args.dispatch.send);
    receive_zones<Coop>(there, args.dispatch);
    receive_and_send<Coop>(there, back, args);
    ll::combine_end(block{}, back);
    receive_tokens<Coop>(back, args.combine);
    await_end(block{}, back, Kind::combine);
    return;
  }
  send_known<Coop>(there, args.dispatch.send);
  if (args.receives) receive_zones<Coop>(there, args.dispatch);
  if (args.receives) receive_rows<Coop>(there, args.dispatch);
}

// Between two operations of a kernel.
UCCLEP_FN bool goes_on(const RoundArgs& args) {
  const ucclEpDeviceGroup& group = args.dispatch.send.handle.group;
  return args.parts != RoundParts::both || grid_sync(args.barrier, begin_wait_for_blocks(group));
}

template <class Coop>
UCCLEP_FN void whole_round(const RoundArgs& args) {
  const bool dispatches = args.parts != RoundParts::combine, known = tries_known<Coop> && args.dispatch.send.known;
  if constexpr (tries_known<Coop>) {
    if (dispatches && known) known_round<Coop>(args);
  }
  if (args.parts == RoundParts::beside) return;
  if (dispatches && !known) {
    const auto op = send_tokens<Coop>(args.dispatch.send);
    if (args.receives) receive_zones<Coop>(op, args.dispatch);
    if (args.receives) receive_rows<Coop>(op, args.dispatch);
  }
  if (args.parts == RoundParts::dispatch || !goes_on(args)) return;
  const InitiatedCombineArgs& send = args.combine.send;
  const auto op = send_rows<Coop>(ll::combine_begin(send.handle, send.shape), send);
  if (args.receives) receive_tokens<Coop>(op, args.combine);
}

template <class Coop>
UCCLEP_FN void whole_routed_round(const RoundArgs& args) {
  if (args.parts != RoundParts::combine) {
    const auto op = send_routed_tokens<Coop>(args.dispatch.send);
    if (args.receives) receive_rows<Coop>(op, args.dispatch);
  }
  if (args.parts == RoundParts::dispatch || !goes_on(args)) return;
  const InitiatedCombineArgs& send = args.combine.send;
  const auto op = send_rows<Coop>(ht::combine_begin(send.handle, send.shape), send);
  if (args.receives) receive_tokens<Coop>(op, args.combine);
}

}  // namespace UCCLEP_SIMT_NAMESPACE

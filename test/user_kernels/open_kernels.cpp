// SPDX-License-Identifier: Apache-2.0
// Compiled once per wave size.
#include "open_kernels.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

using test::OpenCombineArgs;
using test::OpenDispatchArgs;
using test::ReceiveCombineArgs;
using test::ReceiveDispatchArgs;
using test::RoundArgs;
using test::RoundParts;

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

template <class Coop>
UCCLEP_FN ll::OpenDispatch send_tokens(const OpenDispatchArgs& args) {
  const auto op = ll::dispatch_begin(args.handle, args.shape);
  const Shares<Coop> shares(args.tokens, args.seed);
  for (uint32_t turn = 0; turn < shares.turns(); ++turn) {
    const uint32_t i = shares.item(turn);
    const uint32_t row = i < args.tokens ? i : 0, token = i < args.tokens ? i : ~0u;
    const auto* weights = reinterpret_cast<const float*>(args.weights.at(row));
    if (args.wide_ids) {
      ll::dispatch_send(Coop{}, op, token, args.rows.at(row), args.scales.at(row),
                        reinterpret_cast<const int64_t*>(args.experts.at(row)), weights);
    } else {
      ll::dispatch_send(Coop{}, op, token, args.rows.at(row), args.scales.at(row),
                        reinterpret_cast<const int32_t*>(args.experts.at(row)), weights);
    }
  }
  ll::dispatch_end(block{}, op, args.said);
  return op;
}

template <class Coop>
UCCLEP_FN ll::OpenCombine send_rows(const OpenCombineArgs& args) {
  const auto op = ll::combine_begin(args.handle, args.shape);
  const Shares<Coop> shares(args.count, args.seed);
  for (uint32_t turn = 0; turn < shares.turns(); ++turn) {
    const uint32_t i = shares.item(turn);
    ll::combine_send(Coop{}, op, i < args.count ? i : ~0u, args.rows.at(i < args.count ? i : 0));
  }
  ll::combine_end(block{}, op);
  return op;
}

template <class Coop>
UCCLEP_FN ht::OpenDispatch send_routed_tokens(const OpenDispatchArgs& args) {
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

template <class Coop>
UCCLEP_FN ht::OpenCombine send_routed_rows(const OpenCombineArgs& args) {
  const auto op = ht::combine_begin(args.handle, args.shape);
  const Shares<Coop> shares(args.count, args.seed);
  for (uint32_t turn = 0; turn < shares.turns(); ++turn) {
    const uint32_t i = shares.item(turn);
    ht::combine_send(Coop{}, op, i < args.count ? i : ~0u, args.rows.at(i < args.count ? i : 0));
  }
  ht::combine_end(block{}, op);
  return op;
}

// The same for ranges of `tile`; who has nothing to do in its turn gets an empty one.
template <class Coop>
struct Tiles {
  Shares<Coop> shares;
  uint32_t rows, tile;

  UCCLEP_FN Tiles(uint32_t rows, uint32_t tile, uint32_t seed)
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

// Of an operation that is open, in LL or in HT.
template <class Coop, class Open>
UCCLEP_FN void receive_rows(const Open& op, const ReceiveDispatchArgs& args) {
  const Tiles<Coop> tiles(args.rows, args.tile, args.send.seed);
  for (uint32_t turn = 0; turn < tiles.turns(); ++turn) {
    dispatch_recv(Coop{}, op, args.out, tiles.first(turn), tiles.last(turn));
  }
}
template <class Coop, class Open>
UCCLEP_FN void receive_tokens(const Open& op, const ReceiveCombineArgs& args) {
  if (args.tokens == 0) combine_recv(Coop{}, op, args.out, 0, 0);
  const Tiles<Coop> tiles(args.tokens, args.tile, args.send.seed);
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

// Between two operations of a kernel.
UCCLEP_FN bool goes_on(const RoundArgs& args) {
  const ucclEpDeviceGroup& group = args.dispatch.send.handle.group;
  return args.parts != RoundParts::both || grid_sync(args.barrier, begin_wait(group.timeout_ns, group.abort_word));
}

template <class Coop>
UCCLEP_FN void whole_round(const RoundArgs& args) {
  if (args.parts != RoundParts::combine) {
    const auto op = send_tokens<Coop>(args.dispatch.send);
    receive_zones<Coop>(op, args.dispatch);
    receive_rows<Coop>(op, args.dispatch);
  }
  if (args.parts == RoundParts::dispatch || !goes_on(args)) return;
  receive_tokens<Coop>(send_rows<Coop>(args.combine.send), args.combine);
}

template <class Coop>
UCCLEP_FN void whole_routed_round(const RoundArgs& args) {
  if (args.parts != RoundParts::combine) {
    receive_rows<Coop>(send_routed_tokens<Coop>(args.dispatch.send), args.dispatch);
  }
  if (args.parts == RoundParts::dispatch || !goes_on(args)) return;
  receive_tokens<Coop>(send_routed_rows<Coop>(args.combine.send), args.combine);
}

UCCLEP_KERNEL(open_dispatch_thread, OpenDispatchArgs) {
  send_tokens<thread>(args);
}
UCCLEP_KERNEL(open_dispatch_lanes4, OpenDispatchArgs) {
  send_tokens<lanes<4>>(args);
}
UCCLEP_KERNEL(open_dispatch_warp, OpenDispatchArgs) {
  send_tokens<warp>(args);
}
UCCLEP_KERNEL(open_dispatch_block, OpenDispatchArgs) {
  send_tokens<block>(args);
}
UCCLEP_KERNEL(open_combine_thread, OpenCombineArgs) {
  send_rows<thread>(args);
}
UCCLEP_KERNEL(open_combine_lanes4, OpenCombineArgs) {
  send_rows<lanes<4>>(args);
}
UCCLEP_KERNEL(open_combine_warp, OpenCombineArgs) {
  send_rows<warp>(args);
}
UCCLEP_KERNEL(open_combine_block, OpenCombineArgs) {
  send_rows<block>(args);
}
UCCLEP_KERNEL(open_ht_dispatch_thread, OpenDispatchArgs) {
  send_routed_tokens<thread>(args);
}
UCCLEP_KERNEL(open_ht_dispatch_lanes4, OpenDispatchArgs) {
  send_routed_tokens<lanes<4>>(args);
}
UCCLEP_KERNEL(open_ht_dispatch_warp, OpenDispatchArgs) {
  send_routed_tokens<warp>(args);
}
UCCLEP_KERNEL(open_ht_dispatch_block, OpenDispatchArgs) {
  send_routed_tokens<block>(args);
}
UCCLEP_KERNEL(open_ht_combine_thread, OpenCombineArgs) {
  send_routed_rows<thread>(args);
}
UCCLEP_KERNEL(open_ht_combine_lanes4, OpenCombineArgs) {
  send_routed_rows<lanes<4>>(args);
}
UCCLEP_KERNEL(open_ht_combine_warp, OpenCombineArgs) {
  send_routed_rows<warp>(args);
}
UCCLEP_KERNEL(open_ht_combine_block, OpenCombineArgs) {
  send_routed_rows<block>(args);
}
UCCLEP_KERNEL(round_thread, RoundArgs) {
  whole_round<thread>(args);
}
UCCLEP_KERNEL(round_lanes4, RoundArgs) {
  whole_round<lanes<4>>(args);
}
UCCLEP_KERNEL(round_warp, RoundArgs) {
  whole_round<warp>(args);
}
UCCLEP_KERNEL(round_block, RoundArgs) {
  whole_round<block>(args);
}
UCCLEP_KERNEL(round_ht_thread, RoundArgs) {
  whole_routed_round<thread>(args);
}
UCCLEP_KERNEL(round_ht_lanes4, RoundArgs) {
  whole_routed_round<lanes<4>>(args);
}
UCCLEP_KERNEL(round_ht_warp, RoundArgs) {
  whole_routed_round<warp>(args);
}
UCCLEP_KERNEL(round_ht_block, RoundArgs) {
  whole_routed_round<block>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE

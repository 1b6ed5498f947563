// SPDX-License-Identifier: Apache-2.0
// Compiled once per wave size.
#include "open_kernels.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

using test::OpenCombineArgs;
using test::OpenDispatchArgs;
using test::ReceiveCombineArgs;
using test::ReceiveDispatchArgs;
using test::RoundArgs;

// Calls body(i) for every i below count, each by one scope of the grid, in another order for every seed. All scopes of
// a block call it equally often; those that have nothing to do get `count`.
template <class Coop, class Body>
UCCLEP_FN void share_out(uint32_t count, uint32_t seed, Body&& body) {
  const uint32_t per_block = block_size() / Coop::size(), all = per_block * grid_size();
  const uint32_t mine = thread_id() / Coop::size() * grid_size() + (block_id() + seed) % grid_size();
  for (uint32_t begin = 0; begin < count; begin += all) {
    const uint32_t i = begin + mine;
    body(i < count ? (i + seed) % count : count);
  }
}

template <class Coop>
UCCLEP_FN ll::OpenDispatch send_tokens(const OpenDispatchArgs& args) {
  const auto op = ll::dispatch_begin(args.handle, args.shape);
  share_out<Coop>(args.tokens, args.seed, [&](uint32_t i) {
    const uint32_t row = i < args.tokens ? i : 0, token = i < args.tokens ? i : ~0u;
    const auto* weights = reinterpret_cast<const float*>(args.weights.at(row));
    if (args.wide_ids) {
      ll::dispatch_send(Coop{}, op, token, args.rows.at(row), args.scales.at(row),
                        reinterpret_cast<const int64_t*>(args.experts.at(row)), weights);
    } else {
      ll::dispatch_send(Coop{}, op, token, args.rows.at(row), args.scales.at(row),
                        reinterpret_cast<const int32_t*>(args.experts.at(row)), weights);
    }
  });
  ll::dispatch_end(block{}, op, args.said);
  return op;
}

template <class Coop>
UCCLEP_FN ll::OpenCombine send_rows(const OpenCombineArgs& args) {
  const auto op = ll::combine_begin(args.handle, args.shape);
  share_out<Coop>(args.count, args.seed, [&](uint32_t i) {
    ll::combine_send(Coop{}, op, i < args.count ? i : ~0u, args.rows.at(i < args.count ? i : 0));
  });
  ll::combine_end(block{}, op);
  return op;
}

// Calls body(first, last) for all tiles of `count`, as share_out; who has nothing to do gets (0, 0).
template <class Coop, class Body>
UCCLEP_FN void share_out_tiles(uint32_t count, uint32_t tile, uint32_t seed, Body&& body) {
  const uint32_t tiles = (count + tile - 1) / tile;
  share_out<Coop>(tiles, seed, [&](uint32_t i) {
    const uint32_t first = i < tiles ? i * tile : 0, end = i < tiles ? first + tile : 0;
    body(first, end < count ? end : count);
  });
}

template <class Coop>
UCCLEP_FN ht::OpenDispatch send_routed_tokens(const OpenDispatchArgs& args) {
  const auto op = ht::dispatch_begin(args.handle, args.shape);
  share_out<Coop>(args.tokens, args.seed, [&](uint32_t i) {
    const uint32_t row = i < args.tokens ? i : 0, token = i < args.tokens ? i : ~0u;
    ht::dispatch_send(Coop{}, op, token, args.rows.at(row), args.scales.at(row),
                      reinterpret_cast<const float*>(args.weights.at(row)));
  });
  ht::dispatch_end(block{}, op, args.said);
  return op;
}

template <class Coop>
UCCLEP_FN ht::OpenCombine send_routed_rows(const OpenCombineArgs& args) {
  const auto op = ht::combine_begin(args.handle, args.shape);
  share_out<Coop>(args.count, args.seed, [&](uint32_t i) {
    ht::combine_send(Coop{}, op, i < args.count ? i : ~0u, args.rows.at(i < args.count ? i : 0));
  });
  ht::combine_end(block{}, op);
  return op;
}

// Of an operation that is open, in LL or in HT.
template <class Coop, class Open>
UCCLEP_FN void receive_rows(const Open& op, const ReceiveDispatchArgs& args) {
  share_out_tiles<Coop>(args.rows, args.tile, args.send.seed,
                        [&](uint32_t first, uint32_t last) { dispatch_recv(Coop{}, op, args.out, first, last); });
}
template <class Coop, class Open>
UCCLEP_FN void receive_tokens(const Open& op, const ReceiveCombineArgs& args) {
  if (args.tokens == 0) combine_recv(Coop{}, op, args.out, 0, 0);
  share_out_tiles<Coop>(args.tokens, args.tile, args.send.seed,
                        [&](uint32_t first, uint32_t last) { combine_recv(Coop{}, op, args.out, first, last); });
}

template <class Coop>
UCCLEP_FN void receive_dispatch(const ReceiveDispatchArgs& args) {
  const auto op = send_tokens<Coop>(args.send);
  share_out<Coop>(args.zones, args.send.seed, [&](uint32_t zone) {
    uint32_t rows = 0;
    const bool good = ll::dispatch_rows(Coop{}, op, zone, rows);
    if (good && zone < args.zones && Coop::rank() == 0) args.zone_rows[zone] = static_cast<int32_t>(rows);
  });
  receive_rows<Coop>(op, args);
}

UCCLEP_FN bool all_blocks(const RoundArgs& args) {
  const ucclEpDeviceGroup& group = args.dispatch.send.handle.group;
  return grid_sync(args.barrier, begin_wait(group.timeout_ns, group.abort_word));
}

template <class Coop>
UCCLEP_FN void whole_round(const RoundArgs& args) {
  receive_dispatch<Coop>(args.dispatch);
  if (all_blocks(args)) receive_tokens<Coop>(send_rows<Coop>(args.combine.send), args.combine);
}

template <class Coop>
UCCLEP_FN void whole_routed_round(const RoundArgs& args) {
  receive_rows<Coop>(send_routed_tokens<Coop>(args.dispatch.send), args.dispatch);
  if (all_blocks(args)) receive_tokens<Coop>(send_routed_rows<Coop>(args.combine.send), args.combine);
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
UCCLEP_KERNEL(receive_dispatch_thread, ReceiveDispatchArgs) {
  receive_dispatch<thread>(args);
}
UCCLEP_KERNEL(receive_dispatch_lanes4, ReceiveDispatchArgs) {
  receive_dispatch<lanes<4>>(args);
}
UCCLEP_KERNEL(receive_dispatch_warp, ReceiveDispatchArgs) {
  receive_dispatch<warp>(args);
}
UCCLEP_KERNEL(receive_dispatch_block, ReceiveDispatchArgs) {
  receive_dispatch<block>(args);
}
UCCLEP_KERNEL(receive_combine_thread, ReceiveCombineArgs) {
  receive_tokens<thread>(send_rows<thread>(args.send), args);
}
UCCLEP_KERNEL(receive_combine_lanes4, ReceiveCombineArgs) {
  receive_tokens<lanes<4>>(send_rows<lanes<4>>(args.send), args);
}
UCCLEP_KERNEL(receive_combine_warp, ReceiveCombineArgs) {
  receive_tokens<warp>(send_rows<warp>(args.send), args);
}
UCCLEP_KERNEL(receive_combine_block, ReceiveCombineArgs) {
  receive_tokens<block>(send_rows<block>(args.send), args);
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
UCCLEP_KERNEL(receive_ht_dispatch_thread, ReceiveDispatchArgs) {
  receive_rows<thread>(send_routed_tokens<thread>(args.send), args);
}
UCCLEP_KERNEL(receive_ht_dispatch_lanes4, ReceiveDispatchArgs) {
  receive_rows<lanes<4>>(send_routed_tokens<lanes<4>>(args.send), args);
}
UCCLEP_KERNEL(receive_ht_dispatch_warp, ReceiveDispatchArgs) {
  receive_rows<warp>(send_routed_tokens<warp>(args.send), args);
}
UCCLEP_KERNEL(receive_ht_dispatch_block, ReceiveDispatchArgs) {
  receive_rows<block>(send_routed_tokens<block>(args.send), args);
}
UCCLEP_KERNEL(receive_ht_combine_thread, ReceiveCombineArgs) {
  receive_tokens<thread>(send_routed_rows<thread>(args.send), args);
}
UCCLEP_KERNEL(receive_ht_combine_lanes4, ReceiveCombineArgs) {
  receive_tokens<lanes<4>>(send_routed_rows<lanes<4>>(args.send), args);
}
UCCLEP_KERNEL(receive_ht_combine_warp, ReceiveCombineArgs) {
  receive_tokens<warp>(send_routed_rows<warp>(args.send), args);
}
UCCLEP_KERNEL(receive_ht_combine_block, ReceiveCombineArgs) {
  receive_tokens<block>(send_routed_rows<block>(args.send), args);
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

// SPDX-License-Identifier: Apache-2.0
// Compiled once per wave size.
#include "open_kernels.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

using test::OpenCombineArgs;
using test::OpenDispatchArgs;

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
UCCLEP_FN void send_tokens(const OpenDispatchArgs& args) {
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
}

template <class Coop>
UCCLEP_FN void send_rows(const OpenCombineArgs& args) {
  const auto op = ll::combine_begin(args.handle, args.shape);
  share_out<Coop>(args.count, args.seed, [&](uint32_t i) {
    ll::combine_send(Coop{}, op, i < args.count ? i : ~0u, args.rows.at(i < args.count ? i : 0));
  });
  ll::combine_end(block{}, op);
}

template <class Coop>
UCCLEP_FN void send_routed_tokens(const OpenDispatchArgs& args) {
  const auto op = ht::dispatch_begin(args.handle, args.shape);
  share_out<Coop>(args.tokens, args.seed, [&](uint32_t i) {
    const uint32_t row = i < args.tokens ? i : 0, token = i < args.tokens ? i : ~0u;
    ht::dispatch_send(Coop{}, op, token, args.rows.at(row), args.scales.at(row),
                      reinterpret_cast<const float*>(args.weights.at(row)));
  });
  ht::dispatch_end(block{}, op, args.said);
}

template <class Coop>
UCCLEP_FN void send_routed_rows(const OpenCombineArgs& args) {
  const auto op = ht::combine_begin(args.handle, args.shape);
  share_out<Coop>(args.count, args.seed, [&](uint32_t i) {
    ht::combine_send(Coop{}, op, i < args.count ? i : ~0u, args.rows.at(i < args.count ? i : 0));
  });
  ht::combine_end(block{}, op);
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

}  // namespace UCCLEP_SIMT_NAMESPACE

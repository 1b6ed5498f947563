// SPDX-License-Identifier: Apache-2.0
// A kernel for each call of the device API, made by warps: what it needs beside the call is its operation's begin. The
// compilers say how many registers each takes (call_costs.py).
#include "ucclep/device.hpp"

namespace ucclep {

struct CallArgs {
  ucclEpDeviceHandle handle;
  RowShape shape;
  ucclEpDeviceWindow to, from;
  char *rows, *scales;
  const int32_t* experts;
  const float* weights;
  uint32_t first, last;
  int peer, id;
  uint64_t bytes;
  bool* went;
};

}  // namespace ucclep

#define CALL_LL_DISPATCH(name, call)                             \
  UCCLEP_KERNEL(ll_##name, ucclep::CallArgs) {                   \
    using namespace ucclep;                                      \
    const auto op = ll::dispatch_begin(args.handle, args.shape); \
    [[maybe_unused]] uint32_t rows;                              \
    call;                                                        \
  }
#define CALL_LL_COMBINE(name, call)                             \
  UCCLEP_KERNEL(ll_##name, ucclep::CallArgs) {                  \
    using namespace ucclep;                                     \
    const auto op = ll::combine_begin(args.handle, args.shape); \
    call;                                                       \
  }
#define CALL_HT_DISPATCH(name, call)                             \
  UCCLEP_KERNEL(ht_##name, ucclep::CallArgs) {                   \
    using namespace ucclep;                                      \
    const auto op = ht::dispatch_begin(args.handle, args.shape); \
    call;                                                        \
  }
#define CALL_HT_COMBINE(name, call)                             \
  UCCLEP_KERNEL(ht_##name, ucclep::CallArgs) {                  \
    using namespace ucclep;                                     \
    const auto op = ht::combine_begin(args.handle, args.shape); \
    call;                                                       \
  }
#define CALL_CHANNEL(name, call)                        \
  UCCLEP_KERNEL(name, ucclep::CallArgs) {               \
    using namespace ucclep;                             \
    const ucclEpDeviceGroup& group = args.handle.group; \
    call;                                               \
  }

CALL_LL_DISPATCH(dispatch_begin, *args.went = op.ok)
CALL_LL_DISPATCH(dispatch_send,
                 ll::dispatch_send(warp{}, op, args.first, args.rows, args.scales, args.experts, args.weights))
CALL_LL_DISPATCH(dispatch_end, *args.went = ll::dispatch_end(block{}, op, args.last))
CALL_LL_DISPATCH(dispatch_rows, *args.went = ll::dispatch_rows(warp{}, op, args.first, rows) && rows > args.last)
CALL_LL_DISPATCH(dispatch_recv,
                 *args.went = ll::dispatch_recv(warp{}, op, {args.rows, args.scales}, args.first, args.last))
CALL_LL_COMBINE(combine_begin, *args.went = op.ok)
CALL_LL_COMBINE(combine_send, ll::combine_send(warp{}, op, args.first, args.rows))
CALL_LL_COMBINE(combine_end, *args.went = ll::combine_end(block{}, op))
CALL_LL_COMBINE(combine_recv, *args.went = ll::combine_recv(warp{}, op, {args.rows}, args.first, args.last))

CALL_HT_DISPATCH(dispatch_begin, *args.went = op.ok)
CALL_HT_DISPATCH(dispatch_send, ht::dispatch_send(warp{}, op, args.first, args.rows, args.scales, args.weights))
CALL_HT_DISPATCH(dispatch_end, *args.went = ht::dispatch_end(block{}, op, args.last))
CALL_HT_DISPATCH(dispatch_recv,
                 *args.went = ht::dispatch_recv(warp{}, op, {args.rows, args.scales}, args.first, args.last))
CALL_HT_COMBINE(combine_begin, *args.went = op.ok)
CALL_HT_COMBINE(combine_send, ht::combine_send(warp{}, op, args.first, args.rows))
CALL_HT_COMBINE(combine_end, *args.went = ht::combine_end(block{}, op))
CALL_HT_COMBINE(combine_recv, *args.went = ht::combine_recv(warp{}, op, {args.rows}, args.first, args.last))

CALL_CHANNEL(put, ucclep::put(warp{}, group, args.peer, args.to, args.bytes, args.from, args.bytes, args.bytes))
CALL_CHANNEL(signal, ucclep::signal(warp{}, group, args.peer, args.id))
CALL_CHANNEL(put_signal, ucclep::put_signal(warp{}, group, args.peer, args.to, args.bytes, args.from, args.bytes,
                                            args.bytes, args.id))
CALL_CHANNEL(wait_signal, *args.went = ucclep::wait_signal(warp{}, group, args.id, args.bytes))
CALL_CHANNEL(flush, *args.went = ucclep::flush(warp{}, group))
CALL_CHANNEL(barrier, *args.went = ucclep::barrier(warp{}, group, world))

// SPDX-License-Identifier: Apache-2.0
// libucclep_device: the functions of ucclep/device_library.h, thin callers of the device headers. Compiled to bitcode
// by clang, and to PTX by nvcc.
#include "ucclep/device_library.h"

#include <cstddef>
#include <type_traits>

#include "ucclep/device.hpp"

namespace ucclep {
namespace {

static_assert(UCCLEP_DEVICE_ABI == device_abi);
static_assert(sizeof(ucclEpDeviceGroupLayout_t) == sizeof(ucclEpDeviceGroup));
static_assert(sizeof(ucclEpDeviceHandleLayout_t) == sizeof(ucclEpDeviceHandle));
static_assert(sizeof(ucclEpDeviceWindowLayout_t) == sizeof(ucclEpDeviceWindow));
static_assert(alignof(ucclEpDeviceGroup) == 8 && alignof(ucclEpDeviceHandle) == 8 && alignof(ucclEpDeviceWindow) == 8);
static_assert(offsetof(ucclEpDeviceGroupLayout_t, abi) == offsetof(ucclEpDeviceGroup, abi));
static_assert(offsetof(ucclEpDeviceGroupLayout_t, rank) == offsetof(ucclEpDeviceGroup, rank));
static_assert(offsetof(ucclEpDeviceHandleLayout_t, abi) == offsetof(ucclEpDeviceHandle, abi));
static_assert(offsetof(ucclEpDeviceHandleLayout_t, group) == offsetof(ucclEpDeviceHandle, group));
static_assert(offsetof(ucclEpDeviceWindowLayout_t, abi) == offsetof(ucclEpDeviceWindow, abi));
static_assert(offsetof(ucclEpDeviceWindowLayout_t, id) == offsetof(ucclEpDeviceWindow, id));
static_assert(offsetof(ucclEpDeviceWindowLayout_t, ranks) == offsetof(ucclEpDeviceWindow, ranks));
static_assert(offsetof(ucclEpDeviceWindowLayout_t, bytes) == offsetof(ucclEpDeviceWindow, bytes));
static_assert(offsetof(ucclEpDeviceWindowLayout_t, data) == offsetof(ucclEpDeviceWindow, data));
static_assert(offsetof(ucclEpDeviceWindowLayout_t, peers) == offsetof(ucclEpDeviceWindow, peers));
static_assert(offsetof(ucclEpDeviceWindowLayout_t, peer_bytes) == offsetof(ucclEpDeviceWindow, peer_bytes));
static_assert(domain == 0 && world == 1);

// What lies at an address.
template <class T>
UCCLEP_FN T* at(uint64_t address) {
  return reinterpret_cast<T*>(address);
}
template <class T>
UCCLEP_FN const T& object(uint64_t address) {
  return *at<const T>(address);
}

// Block verb: an operation that has begun, where the other calls of the block find it.
template <class Open>
UCCLEP_FN int32_t keep(uint64_t op, const Open& open) {
  static_assert(sizeof(Open) <= UCCLEP_DEVICE_OPERATION_BYTES && alignof(Open) <= 8);
  static_assert(std::is_trivially_copyable_v<Open>);
  if (thread_id() == 0) __builtin_memcpy(at<void>(op), &open, sizeof(open));
  sync_block();
  return open.ok;
}

// ---- The channel.
template <class Coop>
UCCLEP_FN int32_t put_here(uint64_t group, int32_t peer, uint64_t dst, uint64_t dst_offset, uint64_t src,
                           uint64_t src_offset, uint64_t bytes) {
  Coop::sync();
  put(Coop{}, object<ucclEpDeviceGroup>(group), peer, object<ucclEpDeviceWindow>(dst), dst_offset,
      object<ucclEpDeviceWindow>(src), src_offset, bytes);
  return 1;
}
template <class Coop>
UCCLEP_FN int32_t put_signal_here(uint64_t group, int32_t peer, uint64_t dst, uint64_t dst_offset, uint64_t src,
                                  uint64_t src_offset, uint64_t bytes, int32_t id) {
  Coop::sync();
  put_signal(Coop{}, object<ucclEpDeviceGroup>(group), peer, object<ucclEpDeviceWindow>(dst), dst_offset,
             object<ucclEpDeviceWindow>(src), src_offset, bytes, id);
  return 1;
}
template <class Coop>
UCCLEP_FN int32_t signal_here(uint64_t group, int32_t peer, int32_t id) {
  signal(Coop{}, object<ucclEpDeviceGroup>(group), peer, id);
  return 1;
}
template <class Coop>
UCCLEP_FN int32_t wait_signal_here(uint64_t group, int32_t id, uint64_t at_least) {
  Coop::sync();
  return wait_signal(Coop{}, object<ucclEpDeviceGroup>(group), id, at_least);
}
template <class Coop>
UCCLEP_FN int32_t flush_here(uint64_t group) {
  Coop::sync();
  return flush(Coop{}, object<ucclEpDeviceGroup>(group));
}
template <class Coop>
UCCLEP_FN int32_t barrier_here(uint64_t group, uint32_t team) {
  return barrier(Coop{}, object<ucclEpDeviceGroup>(group), team == domain ? domain : world);
}

// ---- Dispatch.
template <class Coop>
UCCLEP_FN int32_t dispatch_send_here(uint64_t op, uint32_t token, uint64_t row, uint64_t scales, uint64_t experts,
                                     uint32_t id_bytes, uint64_t weights) {
  Coop::sync();
  const auto open = object<ll::OpenDispatch>(op);
  const auto send = [&](const auto* ids) {
    ll::dispatch_send(Coop{}, open, token, at<const void>(row), at<const void>(scales), ids, at<const float>(weights));
  };
  if (id_bytes == 8) {
    send(at<const int64_t>(experts));
  } else {
    send(at<const int32_t>(experts));
  }
  return open.ok;
}
template <class Coop>
UCCLEP_FN int32_t dispatch_rows_here(uint64_t op, uint32_t zone) {
  Coop::sync();
  uint32_t rows = 0;
  const bool ok = ll::dispatch_rows(Coop{}, object<ll::OpenDispatch>(op), zone, rows);
  return ok ? static_cast<int32_t>(rows) : -1;
}
template <class Coop>
UCCLEP_FN int32_t dispatch_recv_here(uint64_t op, const DispatchRows& out, uint32_t first, uint32_t last) {
  Coop::sync();
  const auto open = object<ll::OpenDispatch>(op);
  const bool ok = ll::dispatch_recv(Coop{}, open, out, first, last);
  Coop::sync();
  return ok;
}

// ---- Combine.
template <class Coop>
UCCLEP_FN int32_t combine_send_here(uint64_t op, uint32_t row_index, uint64_t row) {
  Coop::sync();
  const auto open = object<ll::OpenCombine>(op);
  ll::combine_send(Coop{}, open, row_index, at<const void>(row));
  return open.ok;
}
template <class Coop>
UCCLEP_FN int32_t combine_recv_here(uint64_t op, const CombineRows& out, uint32_t first, uint32_t last) {
  Coop::sync();
  const auto open = object<ll::OpenCombine>(op);
  const bool ok = ll::combine_recv(Coop{}, open, out, first, last);
  Coop::sync();
  return ok;
}

}  // namespace
}  // namespace ucclep

using ucclep::block;
using ucclep::warp;

// ucclep_NAME_warp and ucclep_NAME_block, which return what is behind the parameters.
#define SCOPES(name, parameters, result)                       \
  UCCLEP_LIBRARY_FN int32_t ucclep_##name##_warp parameters {  \
    using Coop = warp;                                         \
    return result;                                             \
  }                                                            \
  UCCLEP_LIBRARY_FN int32_t ucclep_##name##_block parameters { \
    using Coop = block;                                        \
    return result;                                             \
  }

SCOPES(put,
       (uint64_t group, int32_t peer, uint64_t dst, uint64_t dst_offset, uint64_t src, uint64_t src_offset,
        uint64_t bytes),
       ucclep::put_here<Coop>(group, peer, dst, dst_offset, src, src_offset, bytes))
SCOPES(put_signal,
       (uint64_t group, int32_t peer, uint64_t dst, uint64_t dst_offset, uint64_t src, uint64_t src_offset,
        uint64_t bytes, int32_t id),
       ucclep::put_signal_here<Coop>(group, peer, dst, dst_offset, src, src_offset, bytes, id))
SCOPES(signal, (uint64_t group, int32_t peer, int32_t id), ucclep::signal_here<Coop>(group, peer, id))
SCOPES(wait_signal, (uint64_t group, int32_t id, uint64_t at_least),
       ucclep::wait_signal_here<Coop>(group, id, at_least))
SCOPES(flush, (uint64_t group), ucclep::flush_here<Coop>(group))
SCOPES(barrier, (uint64_t group, uint32_t team), ucclep::barrier_here<Coop>(group, team))

UCCLEP_LIBRARY_FN int32_t ucclep_ll_dispatch_begin_block(uint64_t handle, uint64_t op, uint32_t hidden, int32_t dtype,
                                                         uint32_t scale_bytes, int32_t scale_dtype, uint32_t top_k,
                                                         int32_t weighted) {
  const ucclep::RowShape shape{.hidden = hidden,
                               .dtype = static_cast<ucclEpDataType_t>(dtype),
                               .scale_bytes = scale_bytes,
                               .top_k = top_k,
                               .scale_dtype = static_cast<ucclEpDataType_t>(scale_dtype),
                               .weighted = weighted != 0};
  ucclep::sync_block();
  return ucclep::keep(op, ucclep::ll::dispatch_begin(ucclep::object<ucclEpDeviceHandle>(handle), shape));
}
SCOPES(ll_dispatch_send,
       (uint64_t op, uint32_t token, uint64_t row, uint64_t scales, uint64_t experts, uint32_t id_bytes,
        uint64_t weights),
       ucclep::dispatch_send_here<Coop>(op, token, row, scales, experts, id_bytes, weights))
UCCLEP_LIBRARY_FN int32_t ucclep_ll_dispatch_end_block(uint64_t op, uint32_t tokens) {
  ucclep::sync_block();
  return ucclep::ll::dispatch_end(block{}, ucclep::object<ucclep::ll::OpenDispatch>(op), tokens);
}
SCOPES(ll_dispatch_rows, (uint64_t op, uint32_t zone), ucclep::dispatch_rows_here<Coop>(op, zone))
SCOPES(ll_dispatch_recv,
       (uint64_t op, uint64_t tokens, uint64_t scales, uint64_t topk_idx, uint64_t topk_weights, uint64_t src_info,
        uint32_t first, uint32_t last),
       ucclep::dispatch_recv_here<Coop>(op,
                                        {ucclep::at<void>(tokens), ucclep::at<void>(scales),
                                         ucclep::at<int32_t>(topk_idx), ucclep::at<float>(topk_weights),
                                         ucclep::at<int64_t>(src_info)},
                                        first, last))

UCCLEP_LIBRARY_FN int32_t ucclep_ll_combine_begin_block(uint64_t handle, uint64_t op, uint32_t hidden, int32_t dtype,
                                                        uint32_t top_k) {
  const ucclep::RowShape shape{.hidden = hidden, .dtype = static_cast<ucclEpDataType_t>(dtype), .top_k = top_k};
  ucclep::sync_block();
  return ucclep::keep(op, ucclep::ll::combine_begin(ucclep::object<ucclEpDeviceHandle>(handle), shape));
}
SCOPES(ll_combine_rows, (uint64_t op, uint32_t zone),
       (Coop::sync(),
        static_cast<int32_t>(ucclep::ll::combine_rows(ucclep::object<ucclep::ll::OpenCombine>(op), zone))))
SCOPES(ll_combine_send, (uint64_t op, uint32_t row_index, uint64_t row),
       ucclep::combine_send_here<Coop>(op, row_index, row))
UCCLEP_LIBRARY_FN int32_t ucclep_ll_combine_end_block(uint64_t op) {
  ucclep::sync_block();
  return ucclep::ll::combine_end(block{}, ucclep::object<ucclep::ll::OpenCombine>(op));
}
SCOPES(ll_combine_recv, (uint64_t op, uint64_t tokens, uint64_t bias, uint64_t bias2, uint32_t first, uint32_t last),
       ucclep::combine_recv_here<Coop>(
           op, {ucclep::at<void>(tokens), ucclep::at<const void>(bias), ucclep::at<const void>(bias2)}, first, last))

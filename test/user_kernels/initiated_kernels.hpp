// SPDX-License-Identifier: Apache-2.0
// Kernels as users write them, with the device API: they send rows that lie in tensors, each scope its share, in an
// order that mixes tokens and blocks.
#pragma once
#include "ucclep/device.hpp"

namespace ucclep::test {

// Rows of a tensor: strides in bytes.
struct Rows {
  const char* data = nullptr;
  int64_t stride = 0;

  UCCLEP_HD const char* at(uint32_t row) const { return data == nullptr ? nullptr : data + row * stride; }
};

struct InitiatedDispatchArgs {
  ucclEpDeviceHandle handle;
  RowShape shape;
  Rows rows, scales, experts, weights;
  uint32_t tokens, said, seed;  // said: to dispatch_end
  bool wide_ids;                // int64
  bool known = false;           // LL, int64: the routing is there when the dispatch begins
  uint32_t again;               // LL: so many of the tokens are sent once more
  uint32_t* held;               // LL: becomes 1 before dispatch_end, which waits for 2; NULL: for nothing
};

struct InitiatedCombineArgs {
  ucclEpDeviceHandle handle;
  RowShape shape;
  Rows rows;
  uint32_t count, seed;
};

// What a kernel receives itself: `rows` of the output, `tile` at a time.
struct ReceiveDispatchArgs {
  InitiatedDispatchArgs send;
  DispatchRows out;
  uint32_t rows, tile, zones;
  int32_t* zone_rows;  // [zones] what dispatch_rows says
};

struct ReceiveCombineArgs {
  InitiatedCombineArgs send;
  CombineRows out;
  uint32_t tokens, tile;
};

// beside: both, the combine begun before rows come.
enum class RoundParts { dispatch, combine, both, beside };

struct RoundArgs {
  RoundParts parts;
  ReceiveDispatchArgs dispatch;
  ReceiveCombineArgs combine;
  GridBarrier* barrier;
  bool receives = true;  // false: the host completes what the kernel sends
};

// One kernel for all of them, as compilers for GPUs take long for each: round_SCOPE, of HT round_ht_SCOPE.
inline constexpr const char* scopes[] = {"thread", "lanes4", "warp", "block"};

}  // namespace ucclep::test

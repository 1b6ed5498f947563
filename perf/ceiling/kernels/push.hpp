// SPDX-License-Identifier: Apache-2.0
// Dispatch at its simplest: a row is loaded once, and stored to its place at each rank that wants it.
#pragma once
#include "ceiling/kernels/arguments.hpp"
#include "ucclep/device/protocol/operation.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Each warp holds one row; the warps of an SM are enough to keep loads and stores of several rows under way.
UCCLEP_FN void push_rows(const CeilingCopyArgs& args) {
  auto* shared = static_cast<unsigned char*>(shared_memory());
  auto* barrier = reinterpret_cast<BulkBarrier*>(shared) + warp_id();
  unsigned char* row = shared + ceiling_barrier_bytes(block::warps()) + size_t{warp_id()} * args.row_bytes;
  if (lane_id() == 0) bulk_barrier_init(barrier);
  sync_block();
  // Each rank begins with another peer.
  const uint32_t peer = (args.rank + 1 + lane_id()) % args.ranks;
  const unsigned char* input = args.input + args.first_input * args.input_stride;
  uint32_t phase = 0;
  for (uint32_t token = grid_warp(); token < args.tokens; token += grid_warps()) {
    const int32_t place = lane_id() < args.ranks ? args.places[size_t{token} * args.ranks + peer] : -1;
    bulk_wait_read();
    bulk_load(row, input + size_t{token} * args.row_bytes, args.row_bytes, barrier);
    bulk_wait_loaded(barrier, phase);
    phase ^= 1;
    const bool wanted = place >= 0;
    bulk_store(wanted, wanted ? args.windows[peer] + static_cast<size_t>(place) * args.row_bytes : nullptr, row,
               args.row_bytes);
  }
  bulk_wait_written();
}

}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// Tensors of the caller as kernels see them: what a dispatch reads and writes, and the counters.
#pragma once
#include <cstdint>
#include "ucclep/device/arch/qualifiers.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/simt/divisor.hpp"

namespace ucclep {

// What an HT Update publishes to the host, in memory that both see. In a graph it runs without a call of the host.
struct HostCounts {
  uint64_t sequence;  // goes up by two at the end of each Update, and is odd while one of a graph is under way
  int64_t call;       // the newest of the host's calls that has ended
  int64_t rows;       // of the Update that ended last; -1: ranks disagreed
  // Of each local expert, padding included, as far as they are kept; they follow in memory.
  UCCLEP_HD int64_t* rows_of_experts() { return reinterpret_cast<int64_t*>(this + 1); }
};

// Optional outputs (ucclEpCounters_t), int32 or int64.
struct CounterViews {
  View tokens_per_expert, tokens_per_expert_unpadded, expert_offsets, tokens_per_rank, tokens_per_expert_rank,
      recv_total;
  View cumulative;              // int32 [L], added to
  View wait_ns;                 // int64 [R], added to
  uint32_t num_expert_offsets;  // L or L + 1
  int64_t* recv_total_host;
  HostCounts* host_counts;  // of an HT handle
  int64_t host_call;        // number of the host's call of Update; 0: captured into a graph
};

// How rows of one expert (or all rows) are placed in the output.
enum class Zones : uint32_t {
  slabs,    // LL EXPERT_MAJOR: every expert has a slab of its own, rows count from 0
  experts,  // HT EXPERT_MAJOR: zones one after the other, padded
  sources   // RANK_MAJOR and FLAT: by source rank
};

struct RoutingInput {
  View topk_idx;  // [T, K] int32 or int64
  uint32_t tokens;
  Divisor top_k;
  uint32_t set_tokens;  // HT: tokens whose sets a block holds at a time
  bool kept = false;    // LL: what the handle's memory has kept: of an Update, or of what a user's kernel has sent
};

struct WireShape {
  uint32_t token_bytes;          // of a row, a multiple of 16
  uint32_t scale_count;          // elements of scales per row
  uint32_t scale_element_bytes;  // 1, 2, 4 or 8
  uint32_t row_bytes;            // tokens and padded scales
  // In LINE form a batch carries batch_bytes of the tokens and the batch_scale_bytes of their scales, the last batch
  // what is left of both. batch_scale_bytes 0: scales have lines of their own.
  uint32_t batch_bytes, batch_scale_bytes;
  uint32_t batches;

  // Bytes of tokens in a batch.
  UCCLEP_HD constexpr uint32_t batch_tokens(uint32_t index) const {
    const uint32_t left = token_bytes - index * batch_bytes;
    return left < batch_bytes ? left : batch_bytes;
  }
  UCCLEP_HD constexpr uint32_t scale_bytes() const { return scale_count * scale_element_bytes; }
  static UCCLEP_HD constexpr WireShape of(uint32_t token_bytes, uint32_t scale_count, uint32_t scale_element_bytes) {
    const auto scales = static_cast<uint32_t>(round_up(uint64_t{scale_count} * scale_element_bytes, 16));
    const uint32_t batches = (token_bytes + line_batch_bytes - 1) / line_batch_bytes;
    return {token_bytes, scale_count, scale_element_bytes, token_bytes + scales, line_batch_bytes, 0, batches};
  }
  // The same for rows that are quantised on their way; group_scale_bytes: of 128 elements.
  UCCLEP_HD constexpr WireShape quantised(uint32_t group_scale_bytes) const {
    WireShape shape = *this;
    shape.batch_bytes = line_batch_quantised;
    shape.batch_scale_bytes = line_batch_quantised / 128 * group_scale_bytes;
    shape.batches = (token_bytes + line_batch_quantised - 1) / line_batch_quantised;
    return shape;
  }
};

// The rows of one dispatch as the caller gives them.
struct RowSource {
  View tokens, scales;
  WireShape wire;
  bool round_scale;   // of fp8 quantisation
  bool scale_powers;  // scales are e8m0 exponents, one byte each
};

struct DispatchOutput {
  View tokens, scales, topk_idx, topk_weights, src_info;
  uint64_t rows;      // of the tensor (HT); of a slab (LL)
  uint64_t capacity;  // of these rows, what may be written: in HT the group may have a limit
  WireShape wire;
  Zones zones;
  uint32_t top_k;  // of the routing
  bool ranked;     // RANK_MAJOR: rows are [source][place], else one after the other
  bool global_ids;
};

// A tensor of the caller's in one of the caller's windows, for peers to reach.
struct ExposedTensor {
  static constexpr uint32_t nowhere = 0xffffffffu;  // + 1 is OfferWords' 0
  uint32_t window = nowhere;                        // its id
  uint32_t stride = 0, step = 0;                    // bytes from row to row, and from element to element
  uint64_t offset = 0;                              // of the first row

  UCCLEP_HD bool given() const { return window != nowhere; }
};

// What a rank exposes to all. The host fills it.
struct ZeroCopyOffer {
  ExposedTensor tokens, scales;
  uint32_t capacity;
};

// A tensor in another rank's, or in one's own, memory. data NULL: not exposed.
struct PeerTensor {
  char* data;
  int64_t stride, step;  // bytes from row to row, and from element to element
};

// What one rank has exposed to this one. Rows are counted from `base`, and at or past the capacity there are none. A
// tensor without a row has no address, and may be exposed all the same.
struct PeerTensors {
  bool given;
  PeerTensor tokens, scales;
  uint32_t base, capacity;

  UCCLEP_HD bool holds(uint32_t place) const { return uint64_t{base} + place < capacity; }
  UCCLEP_HD char* token(uint32_t place) const { return tokens.data + (int64_t{base} + place) * tokens.stride; }
  UCCLEP_HD char* scale(uint32_t place) const { return scales.data + (int64_t{base} + place) * scales.stride; }
};

// Of a block, in shared memory: room for what its warps take tokens from (TokenPool), then [ranks] PeerTensors.
constexpr uint32_t before_exposed = 16;
UCCLEP_HD constexpr uint64_t exposed_table_bytes(uint32_t ranks) {
  return before_exposed + sizeof(PeerTensors) * ranks;
}

}  // namespace ucclep

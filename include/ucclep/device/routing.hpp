// SPDX-License-Identifier: Apache-2.0
// From topk_idx to places: which ranks and experts get how many rows of this rank, and the place of each row among
// those of the same (source, destination), in token order (protocol P5). One scan over chunks of tokens; a warp takes a
// chunk and goes through its tokens one after the other, a lane per selection, so ranks and experts of one token never
// collide.
#pragma once
#include "ucclep/device/signal.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Typed access to a handle's memory (HandleLayout).
struct HandleMemory {
  const ucclEpDeviceHandle& handle;
  const GroupShape& shape;

  template <class T>
  UCCLEP_FN T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(handle.memory + offset);
  }
  UCCLEP_FN HandleState* state() const { return at<HandleState>(0); }
  UCCLEP_FN uint32_t* rows_to() const { return at<uint32_t>(handle.offsets.rows_to); }
  UCCLEP_FN uint32_t* counts_to() const { return at<uint32_t>(handle.offsets.counts_to); }
  UCCLEP_FN uint32_t* rows_from() const { return at<uint32_t>(handle.offsets.rows_from); }
  UCCLEP_FN uint32_t* tokens_from() const { return at<uint32_t>(handle.offsets.tokens_from); }
  UCCLEP_FN uint32_t* forms_from() const { return at<uint32_t>(handle.offsets.forms_from); }
  UCCLEP_FN uint32_t* counts_from(uint32_t source) const {
    return at<uint32_t>(handle.offsets.counts_from) + uint64_t{source} * shape.local_experts();
  }
  UCCLEP_FN uint32_t* recv_base() const { return at<uint32_t>(handle.offsets.recv_base); }
  UCCLEP_FN uint32_t* expert_base(uint32_t source) const {
    return at<uint32_t>(handle.offsets.expert_base) + uint64_t{source} * shape.local_experts();
  }
  UCCLEP_FN uint32_t* recv_count(uint32_t source) const {
    return at<uint32_t>(handle.offsets.recv_count) + uint64_t{source} * handle.tokens;
  }
  UCCLEP_FN RecvEntry* recv_entries(uint32_t source, uint32_t place) const {
    return at<RecvEntry>(handle.offsets.recv_entries) + (uint64_t{source} * handle.tokens + place) * shape.top_k;
  }
  // Columns 0..R-1: ranks; R..R+E-1: experts.
  UCCLEP_FN uint32_t* chunk(uint32_t index) const {
    return at<uint32_t>(handle.offsets.chunks) + uint64_t{index} * (shape.ranks + shape.experts);
  }
};

template <class Args>
UCCLEP_FN HandleMemory memory_of(const Args& args) {
  return {args.handle, args.group.shape};
}

// What one lane knows of its selection k of a token. Lanes beyond K have none.
struct Selection {
  int32_t expert;     // -1: none
  uint32_t rank;      // of the expert
  uint32_t place;     // no_place unless this is the token's first selection of that rank: the lane that sends the row
  uint32_t position;  // among this rank's rows of that expert
  UCCLEP_FN bool sends() const { return place != no_place; }
};

// Warp verb, after routing: selection lane_id() of a token.
UCCLEP_FN Selection selection_of(const HandleMemory& memory, uint32_t token) {
  Selection s{-1, 0, no_place, 0};
  const uint32_t k = lane_id();
  if (k >= memory.shape.top_k) return s;
  const uint64_t i = uint64_t{token} * memory.shape.top_k + k;
  s.expert = memory.at<int32_t>(memory.handle.offsets.topk)[i];
  if (s.expert < 0) return s;
  const uint32_t* before = memory.chunk(token / chunk_tokens);
  s.rank = static_cast<uint32_t>(s.expert) / memory.shape.local_experts();
  s.position = memory.at<uint32_t>(memory.handle.offsets.positions)[i] + before[memory.shape.ranks + s.expert];
  const uint32_t place = memory.at<uint32_t>(memory.handle.offsets.places)[i];
  if (place != no_place) s.place = place + before[s.rank];
  return s;
}

struct RoutingInput {
  View topk_idx;  // [T, K] int32 or int64
  uint32_t tokens, top_k;
};

UCCLEP_FN int64_t load_index(const View& view, int64_t row, int64_t column) {
  const char* at = view.at(0, row, column);
  return view.element_bytes == 8 ? *reinterpret_cast<const int64_t*>(at) : *reinterpret_cast<const int32_t*>(at);
}

constexpr int64_t no_bad_id = -1;  // -1 is a legal entry

// Lane verb: an id that counted as -1 leaves a data record.
UCCLEP_FN void report_bad_id(const Op& op, int64_t bad) {
  if (bad == no_bad_id) return;
  ErrorRecord record = record_of(op, ucclEpInvalidArgument, Phase::routing, -1);
  record.expected = op.group.shape.experts;
  record.got = static_cast<uint64_t>(bad);
  report_data(op.group.errors, record);
}

// Warp verb: lane k's expert of one token, checked: -1 where there is none. An id out of range, or one that stands in
// the row already, counts as -1; *bad gets the first such id.
UCCLEP_FN int32_t checked_expert(const GroupShape& shape, const RoutingInput& input, uint32_t token, int64_t* bad) {
  const uint32_t k = lane_id();
  int64_t id = -1;
  if (k < input.top_k) id = load_index(input.topk_idx, token, k);
  const bool in_range = id >= 0 && id < shape.experts;
  const bool none = k >= input.top_k || id == -1;
  // Lanes without an expert match nobody.
  const uint64_t same = match_any(in_range ? static_cast<uint32_t>(id) : shape.experts + k);
  const bool first = first_lane(same) == k;
  if (!none && !(in_range && first)) *bad = id;
  return in_range && first ? static_cast<int32_t>(id) : -1;
}

// Warp verb: one chunk. Counts go into the chunk's row of the table; places and positions count from the chunk's start.
UCCLEP_FN void scan_chunk(const HandleMemory& memory, const RoutingInput& input, uint32_t chunk, int64_t* bad) {
  const GroupShape& shape = memory.shape;
  uint32_t* count = memory.chunk(chunk);
  for (uint32_t c = lane_id(); c < shape.ranks + shape.experts; c += wave_size) count[c] = 0;
  sync_warp();
  const uint32_t begin = chunk * chunk_tokens;
  const uint32_t end = begin + chunk_tokens < input.tokens ? begin + chunk_tokens : input.tokens;
  const uint32_t k = lane_id();
  for (uint32_t token = begin; token < end; ++token) {
    const int32_t expert = checked_expert(shape, input, token, bad);
    const uint32_t rank = expert >= 0 ? static_cast<uint32_t>(expert) / shape.local_experts() : shape.ranks + k;
    const bool sends = first_lane(match_any(rank)) == k && expert >= 0;
    if (k < shape.top_k) {
      const uint64_t i = uint64_t{token} * shape.top_k + k;
      memory.at<int32_t>(memory.handle.offsets.topk)[i] = expert;
      memory.at<uint32_t>(memory.handle.offsets.places)[i] = sends ? count[rank]++ : no_place;
      memory.at<uint32_t>(memory.handle.offsets.positions)[i] = expert >= 0 ? count[shape.ranks + expert]++ : 0;
    }
    sync_warp();  // the next token's lanes read these counts
  }
}

// Grid verb: exclusive prefix over the chunks, column by column; the totals go to rows_to and counts_to.
UCCLEP_FN void scan_columns(const HandleMemory& memory, uint32_t chunks) {
  const uint32_t columns = memory.shape.ranks + memory.shape.experts;
  for (uint32_t c = block_id() * block_size() + thread_id(); c < columns; c += grid_size() * block_size()) {
    uint32_t sum = 0;
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      uint32_t* count = memory.chunk(chunk) + c;
      const uint32_t own = *count;
      *count = sum;
      sum += own;
    }
    if (c < memory.shape.ranks) {
      memory.rows_to()[c] = sum;
    } else {
      memory.counts_to()[c - memory.shape.ranks] = sum;
    }
  }
}

// Grid verb: routes all tokens of this rank. After it, selection_of, rows_to and counts_to are valid for every block.
UCCLEP_FN bool route(const Op& op, const HandleMemory& memory, const RoutingInput& input) {
  const auto chunks = static_cast<uint32_t>(ceil_div(input.tokens, chunk_tokens));
  int64_t bad = no_bad_id;
  for (uint32_t chunk = grid_warp(); chunk < chunks; chunk += grid_warps()) scan_chunk(memory, input, chunk, &bad);
  report_bad_id(op, bad);
  if (!sync_grid(op)) return false;
  scan_columns(memory, chunks);
  if (block_id() == 0 && thread_id() == 0) {
    HandleState* state = memory.state();
    state->tokens = input.tokens;
    state->top_k = input.top_k;
    state->updated = 1;
  }
  return sync_grid(op);
}

}  // namespace UCCLEP_SIMT_NAMESPACE

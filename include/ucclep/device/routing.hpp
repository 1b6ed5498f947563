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
  s.rank = static_cast<uint32_t>(s.expert) / memory.shape.local_experts();
  s.position = memory.at<uint32_t>(memory.handle.offsets.positions)[i];
  s.place = memory.at<uint32_t>(memory.handle.offsets.places)[i];
  return s;
}

struct RoutingInput {
  View topk_idx;  // [T, K] int32 or int64
  uint32_t tokens, top_k;
  uint32_t scanners;  // warps of a block that scan: those whose ScanScratch fits into shared memory
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

// Warp verb: of lanes with the same expert the lowest keeps it, the others count as having none (no_expert).
UCCLEP_FN uint32_t without_repeats(const GroupShape& shape, uint32_t id, int64_t* bad) {
  const uint32_t k = lane_id();
  const bool first = first_lane(match_any(id == no_expert ? shape.experts + k : id)) == k;  // no_expert matches nobody
  if (!first) *bad = id;
  return first ? id : no_expert;
}

// Where a warp scans: in shared memory, since every token waits for the counts of the one before.
struct ScanScratch {
  uint16_t* ids;    // [chunk_tokens][K]: expert, or no_expert
  uint8_t* counts;  // [R + E]: rows of this chunk so far; a chunk has too few tokens to overflow them

  static UCCLEP_HD constexpr uint64_t bytes(const GroupShape& shape) {
    return round_up(2ull * chunk_tokens * shape.top_k + shape.ranks + shape.experts, 16);
  }
  static UCCLEP_FN ScanScratch at(char* base, const GroupShape& shape) {
    return {reinterpret_cast<uint16_t*>(base), reinterpret_cast<uint8_t*>(base + 2ull * chunk_tokens * shape.top_k)};
  }
};
static_assert(chunk_tokens <= UINT8_MAX);

// Coop verb (a warp, a block): ids of the tokens from begin to end into shared memory, [token][K]. One out of range
// counts as none; *bad gets such an id.
template <class Coop>
UCCLEP_FN void load_ids(Coop, const GroupShape& shape, const RoutingInput& input, uint32_t begin, uint32_t end,
                        uint16_t* shared, int64_t* bad) {
  constexpr uint32_t batch = 4;  // loads in flight
  const uint32_t entries = (end - begin) * input.top_k;
  for (uint32_t first = Coop::rank(); first < entries; first += batch * Coop::size()) {
    int64_t ids[batch];
    UCCLEP_UNROLL
    for (uint32_t j = 0; j < batch; ++j) {
      const uint32_t i = first + j * Coop::size();
      ids[j] = i < entries ? load_index(input.topk_idx, begin + i / input.top_k, i % input.top_k) : -1;
    }
    UCCLEP_UNROLL
    for (uint32_t j = 0; j < batch; ++j) {
      const uint32_t i = first + j * Coop::size();
      const bool in_range = ids[j] >= 0 && ids[j] < shape.experts;
      if (!in_range && ids[j] != -1) *bad = ids[j];
      if (i < entries) shared[i] = in_range ? static_cast<uint16_t>(ids[j]) : no_expert;
    }
  }
}

// Warp verb: one chunk. Counts go into the chunk's row of the table; places and positions count from the chunk's start.
UCCLEP_FN void scan_chunk(const HandleMemory& memory, const RoutingInput& input, uint32_t chunk, char* shared,
                          int64_t* bad) {
  const GroupShape& shape = memory.shape;
  const ScanScratch scratch = ScanScratch::at(shared, shape);
  const uint32_t columns = shape.ranks + shape.experts;
  const uint32_t begin = chunk * chunk_tokens;
  const uint32_t end = begin + chunk_tokens < input.tokens ? begin + chunk_tokens : input.tokens;
  for (uint32_t c = lane_id(); c < columns; c += wave_size) scratch.counts[c] = 0;
  load_ids(warp{}, shape, input, begin, end, scratch.ids, bad);
  sync_warp();
  const uint32_t k = lane_id();
  for (uint32_t token = begin; token < end; ++token) {
    uint32_t id = no_expert;
    if (k < input.top_k) id = scratch.ids[(token - begin) * input.top_k + k];
    id = without_repeats(shape, id, bad);
    const bool valid = id != no_expert;
    const uint32_t rank = valid ? id / shape.local_experts() : shape.ranks + k;
    const bool sends = first_lane(match_any(rank)) == k && valid;
    if (k < shape.top_k) {
      const uint64_t i = uint64_t{token} * shape.top_k + k;
      memory.at<int32_t>(memory.handle.offsets.topk)[i] = valid ? static_cast<int32_t>(id) : -1;
      memory.at<uint32_t>(memory.handle.offsets.places)[i] = sends ? scratch.counts[rank]++ : no_place;
      memory.at<uint32_t>(memory.handle.offsets.positions)[i] = valid ? scratch.counts[shape.ranks + id]++ : 0;
    }
    sync_warp();  // the next token's lanes read these counts
  }
  uint32_t* count = memory.chunk(chunk);
  for (uint32_t c = lane_id(); c < columns; c += wave_size) count[c] = scratch.counts[c];
  sync_warp();  // the scratch is free for the next chunk
}

// Grid verb: exclusive prefix over the chunks, a warp per column; the totals go to rows_to and counts_to.
UCCLEP_FN void scan_columns(const HandleMemory& memory, uint32_t chunks) {
  const uint32_t columns = memory.shape.ranks + memory.shape.experts;
  for (uint32_t c = grid_warp(); c < columns; c += grid_warps()) {
    uint32_t carry = 0;
    for (uint32_t first = 0; first < chunks; first += wave_size) {
      const uint32_t chunk = first + lane_id();
      uint32_t* count = memory.chunk(chunk) + c;
      const uint32_t own = chunk < chunks ? *count : 0;
      const uint32_t upto = scan_add(own);
      if (chunk < chunks) *count = carry + upto - own;
      carry += shfl(upto, wave_size - 1);
    }
    if (lane_id() != 0) continue;
    if (c < memory.shape.ranks) {
      memory.rows_to()[c] = carry;
    } else {
      memory.counts_to()[c - memory.shape.ranks] = carry;
    }
  }
}

// Grid verb, after scan_columns: places and positions count from the first token on.
UCCLEP_FN void add_earlier_chunks(const HandleMemory& memory, uint32_t tokens) {
  const uint32_t top_k = memory.shape.top_k, entries = tokens * top_k;
  for (uint32_t i = block_id() * block_size() + thread_id(); i < entries; i += grid_size() * block_size()) {
    const int32_t expert = memory.at<int32_t>(memory.handle.offsets.topk)[i];
    if (expert < 0) continue;
    const uint32_t* before = memory.chunk(i / top_k / chunk_tokens);
    uint32_t& place = memory.at<uint32_t>(memory.handle.offsets.places)[i];
    if (place != no_place) place += before[static_cast<uint32_t>(expert) / memory.shape.local_experts()];
    memory.at<uint32_t>(memory.handle.offsets.positions)[i] += before[memory.shape.ranks + expert];
  }
}

// Grid verb: routes all tokens of this rank. After it rows_to and counts_to are valid for every block; selection_of is
// for the next launch.
UCCLEP_FN bool route(const Op& op, const HandleMemory& memory, const RoutingInput& input) {
  const auto chunks = static_cast<uint32_t>(ceil_div(input.tokens, chunk_tokens));
  int64_t bad = no_bad_id;
  const uint32_t scanners = input.scanners;
  char* const shared = static_cast<char*>(shared_memory()) + ScanScratch::bytes(memory.shape) * warp_id();
  if (warp_id() < scanners) {
    for (uint32_t chunk = warp_id() * grid_size() + block_id(); chunk < chunks; chunk += grid_size() * scanners) {
      scan_chunk(memory, input, chunk, shared, &bad);
    }
  }
  report_bad_id(op, bad);
  if (!sync_grid(op)) return false;
  scan_columns(memory, chunks);
  if (block_id() == 0 && thread_id() == 0) {
    HandleState* state = memory.state();
    state->tokens = input.tokens;
    state->top_k = input.top_k;
    state->updated = 1;
  }
  if (!sync_grid(op)) return false;
  add_earlier_chunks(memory, input.tokens);
  return true;
}

}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// From topk_idx to places (protocol P5): what a handle holds of a routing, and what the scans of HT (ht/routing.hpp)
// and LL (ll/routing.hpp) share besides protocol/token_sets.hpp.
#pragma once
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/operation.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Typed access to a handle's memory (HandleLayout).
struct HandleMemory {
  const HandleView& handle;
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
  UCCLEP_FN uint32_t* row_homes(uint32_t local_expert) const {
    return at<uint32_t>(handle.offsets.row_homes) + uint64_t{local_expert} * shape.ranks * handle.tokens;
  }
  UCCLEP_FN uint64_t* noted(uint32_t source) const {
    return at<uint64_t>(handle.offsets.noted) + uint64_t{source} * handle.tokens;
  }
  UCCLEP_FN uint32_t* copies_in(uint32_t source) const {
    return at<uint32_t>(handle.offsets.copies_in) + uint64_t{source} * handle.tokens;
  }
  UCCLEP_FN uint32_t* sent_to() const { return at<uint32_t>(handle.offsets.sent_to); }
  UCCLEP_FN uint32_t* runs_in(uint32_t home) const {
    return at<uint32_t>(handle.offsets.runs_in) + home * ceil_div(handle.tokens, run_rows);
  }
  UCCLEP_FN char* scratch_of_warp() const {
    return at<char>(handle.offsets.metas) + warp_id() * HandleLayout::meta_scratch;
  }
  UCCLEP_FN const char** copies(uint32_t source, uint32_t place) const {
    return at<const char*>(handle.offsets.copies) + (uint64_t{source} * handle.tokens + place) * shape.top_k;
  }
  UCCLEP_FN uint32_t* token_sets() const { return at<uint32_t>(handle.offsets.token_sets); }
  // Columns 0..R-1: ranks; R..R+E-1: experts; then nodes.
  UCCLEP_FN uint32_t* chunk(uint32_t index) const {
    return at<uint32_t>(handle.offsets.chunks) + uint64_t{index} * (shape.ranks + shape.experts + shape.nodes.nodes);
  }
  UCCLEP_FN uint32_t* node_places(uint32_t token) const {
    return at<uint32_t>(handle.offsets.node_places) + uint64_t{token} * shape.top_k;
  }
  // Of ranks, and behind them of nodes.
  UCCLEP_FN uint32_t* sent_before(uint32_t round) const {
    return at<uint32_t>(handle.offsets.sent_before) + uint64_t{round} * (shape.ranks + shape.nodes.nodes);
  }
  UCCLEP_FN uint32_t* come_before(uint32_t round) const {
    return at<uint32_t>(handle.offsets.come_before) + uint64_t{round} * shape.ranks;
  }
  UCCLEP_FN uint32_t* parts_read() const { return at<uint32_t>(handle.offsets.parts_read); }
  UCCLEP_FN uint32_t* rows_to_nodes() const { return at<uint32_t>(handle.offsets.rows_to_nodes); }
  UCCLEP_FN uint32_t* relayed(uint32_t round) const {
    return at<uint32_t>(handle.offsets.relayed) + uint64_t{round} * shape.nodes.blocks();
  }
  // Of the row at a place of a block, in a round.
  UCCLEP_FN uint64_t relay_row(uint32_t round, uint32_t block, uint32_t place) const {
    const uint64_t rows = HandleLayout::relay_rows(shape, handle.tokens, handle.rounds);
    return block * rows + uint64_t{round} * shape.ht_tokens + place;
  }
  UCCLEP_FN uint32_t& relay_count(uint64_t row) const { return at<uint32_t>(handle.offsets.relay_counts)[row]; }
  UCCLEP_FN RelayEntry* relay_entries(uint64_t row) const {
    return at<RelayEntry>(handle.offsets.relay_entries) + row * shape.top_k;
  }
};

template <class Args>
UCCLEP_FN HandleMemory memory_of(const Args& args) {
  return {args.handle, args.group.shape};
}

// Lane verb: which of `count` ascending numbers is the last that is not above the value; the first is not.
UCCLEP_FN uint32_t last_up_to(const uint32_t* numbers, uint32_t count, uint32_t value) {
  uint32_t low = 0, high = count;  // numbers[low] <= value < numbers[high]
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (numbers[middle] <= value) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Verb of one thread: does a handle's memory hold a routing of such a handle, or none. On memory of the caller's
// something else may have been written since.
UCCLEP_FN void check_stamp(const Op& op, const HandleMemory& memory, uint32_t updated) {
  if (updated == 0 || updated == memory.handle.stamp) return;
  report_data(op.group.errors, record_of(op, ucclEpInvalidArgument, Phase::handle_mem, -1));
}

// Grid verb: may an operation go by what the memory holds. updated: HandleState's.
UCCLEP_FN bool is_routed(const Op& op, const HandleMemory& memory, uint32_t updated) {
  if (block_id() == 0 && thread_id() == 0) check_stamp(op, memory, updated);
  return updated == memory.handle.stamp;
}

// Verb of one thread: the routing has so many tokens.
UCCLEP_FN void note_routing(const HandleMemory& memory, uint32_t tokens, uint32_t top_k) {
  memory.state()->tokens = tokens;
  memory.state()->top_k = top_k;
}

// Tokens that the routing has. The handle has room for no more, whatever its memory says.
UCCLEP_FN WarpUniform routed_tokens(const HandleMemory& memory) {
  const uint32_t tokens = memory.state()->tokens, most = memory.handle.tokens;
  return tokens < most ? tokens : most;
}

// Rounds of an operation by the routing; one where ranks have disagreed on it. The handle has room for no more,
// whatever its memory says.
UCCLEP_FN uint32_t routed_rounds(const HandleMemory& memory) {
  const HandleState& state = *memory.state();
  const uint32_t rounds = state.rounds, most = memory.handle.rounds;
  if (most == 1 || rounds == 0 || state.updated != memory.handle.stamp) return 1;
  return uniform(rounds < most ? rounds : most);
}

// Verb of one thread: the caller's tensors have `tokens` rows of top_k entries. The routing may have others: a graph
// may have replayed an Update of its own, the caller may have written to the memory, and the tokens of a
// device-initiated operation are only known here. The operation goes on, and accesses what both have.
UCCLEP_FN void compare_tokens(const Op& op, const HandleMemory& memory, uint32_t tokens, uint32_t top_k) {
  const HandleState& state = *memory.state();
  if (state.tokens == tokens && state.top_k == top_k) return;
  ErrorRecord record = record_of(op, ucclEpInvalidArgument, Phase::tokens, -1);
  const bool columns = state.tokens == tokens;
  record.field = columns ? Field::top_k : Field::tokens;
  record.expected = columns ? state.top_k : state.tokens;
  record.got = columns ? top_k : tokens;
  report_data(op.group.errors, record);
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
  // One latency, not two: none waits for another.
  s.expert = memory.at<int32_t>(memory.handle.offsets.topk)[i];
  s.position = memory.at<uint32_t>(memory.handle.offsets.positions)[i];
  s.place = memory.at<uint32_t>(memory.handle.offsets.places)[i];
  if (s.expert >= 0) s.rank = memory.shape.rank_of(static_cast<uint32_t>(s.expert));
  return s;
}

UCCLEP_FN int64_t load_index(const View& view, int64_t row, int64_t column) {
  const char* at = view.at(0, row, column);
  return view.element_bytes == 8 ? *reinterpret_cast<const int64_t*>(at) : *reinterpret_cast<const int32_t*>(at);
}

// An entry of such a tensor on its way. Nothing is done with it before value(), so that nothing waits for it: to extend
// an int32 right behind its load would hold up all that a warp asks for afterwards.
struct IndexAhead {
  int32_t narrow = -1;
  int64_t wide = -1;

  UCCLEP_FN void read(const View& view, int64_t row, int64_t column) {
    const char* at = view.at(0, row, column);
    if (view.element_bytes == 8) {
      wide = *reinterpret_cast<const int64_t*>(at);
    } else {
      narrow = *reinterpret_cast<const int32_t*>(at);
    }
  }
  UCCLEP_FN int64_t value(const View& view) const { return view.element_bytes == 8 ? wide : narrow; }
};

constexpr int64_t no_bad_id = -1;  // -1 is a legal entry

// Which expert an id of a routing means. Ids of a caller go through the group's expert map, if it has one. Here, and
// nowhere else, a logical expert becomes a physical one: all that is counted, kept and sent is physical. What a handle
// has kept is so already, whatever map has come since.
struct ExpertIds {
  const ucclEpDeviceGroup& group;
  uint32_t logical;  // experts of the map; 0: ids are physical

  // The word changes between launches only, in the order of their streams, as does what it stands for.
  static UCCLEP_FN uint32_t logical_of(const ucclEpDeviceGroup& group, const RoutingInput& input) {
    return input.kept ? 0 : group.state->logical_experts;
  }
  static UCCLEP_FN ExpertIds of_caller(const ucclEpDeviceGroup& group) { return {group, group.state->logical_experts}; }
  static UCCLEP_FN ExpertIds of(const ucclEpDeviceGroup& group, const RoutingInput& input) {
    return {group, logical_of(group, input)};
  }

  UCCLEP_FN uint32_t end() const { return logical != 0 ? logical : group.shape.experts; }
  // Lane verb: the physical expert of a token's id, or no_expert; *bad gets an id out of range.
  UCCLEP_FN uint32_t expert(uint32_t token, int64_t id, int64_t* bad) const {
    if (id < 0 || id >= end()) {
      if (id != -1) *bad = id;
      return no_expert;
    }
    const auto given = static_cast<uint32_t>(id);
    return logical == 0 ? given : copy_of(token, given);
  }
  // Lane verb: the copy of a logical expert that a token takes.
  UCCLEP_FN uint32_t copy_of(uint32_t token, uint32_t expert) const {
    const ExpertCopies copies = group.state->expert_copies()[expert];
    const uint32_t turn = copies.count > 1 ? (static_cast<uint32_t>(group.rank) + token) % copies.count : 0;
    return group.state->physical_experts(group.shape)[copies.first + turn];
  }
};

// Lane verb: an id that counted as -1 leaves a data record.
UCCLEP_FN void report_bad_id(const Op& op, int64_t bad) {
  if (bad == no_bad_id) return;
  ErrorRecord record = record_of(op, ucclEpInvalidArgument, Phase::routing, -1);
  record.expected = ExpertIds::of_caller(op.group).end();
  record.got = static_cast<uint64_t>(bad);
  report_data(op.group.errors, record);
}

// Warp verb: the expert of lane k's id of a token. Of lanes with the same the lowest has it, the others have none
// (no_expert): copies of different logical experts differ.
UCCLEP_FN uint32_t expert_of_lane(const ExpertIds& ids, uint32_t token, int64_t id, int64_t* bad) {
  const uint32_t k = lane_id(), expert = ids.expert(token, id, bad);
  const uint32_t nobody = ids.group.shape.experts + k;
  const bool first = first_lane(match_any(expert == no_expert ? nobody : expert)) == k;
  if (!first) *bad = id;
  return first ? expert : no_expert;
}

}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// The routing of an LL dispatch. A barrier of the grid costs more than what it would share out: every block that counts
// reads all of the rank's ids. For each rank and expert it keeps the set of tokens that choose it, a bit a token, and
// all that is asked of the routing is how many bits are set.
#pragma once
#include "ucclep/device/ll_args.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Tokens [first, end) of this rank. Columns as in the handle's table: ranks, then experts.
struct TokenSets {
  const LlDispatchArgs& args;
  uint32_t* words;  // [R + E][words of a set]
  Parked capacity;  // tokens
  Parked first = 0, end = 0;

  static UCCLEP_FN TokenSets in(uint32_t* shared, const LlDispatchArgs& args) {
    const uint32_t tokens = TokenSetShape::of(args.group.shape).tokens;
    if (tokens != 0) return {args, shared, tokens};
    return {args, memory_of(args).token_sets(), (args.handle.tokens + 63) / 64 * 64};
  }

  UCCLEP_FN uint32_t set_words() const { return (capacity + 31) / 32; }
  UCCLEP_FN uint32_t* set(uint32_t column) const { return words + uint64_t{column} * set_words(); }
  UCCLEP_FN uint32_t column_of(uint32_t expert) const { return args.group.shape.ranks + expert; }

  // Block verb: the sets of the tokens from `from` on. An id out of range is in no set, one that is there twice counts
  // once; *bad gets the first kind.
  UCCLEP_FN void require(uint32_t from, int64_t* bad) {
    if (end != 0 && first == from) return;
    sync_block();  // nobody reads the old ones any more
    const LlDispatchArgs& now = read_again(args);
    const GroupShape& shape = now.group.shape;
    const RoutingInput& input = now.routing;
    first = from;
    end = input.tokens - from < capacity ? input.tokens : from + capacity;
    const uint32_t all = (shape.ranks + shape.experts) * set_words();
    for (uint32_t i = thread_id(); i < all; i += block_size()) words[i] = 0;
    sync_block();
    const uint32_t entries = (end - first) * input.top_k, local = shape.local_experts();
    for (uint32_t i = thread_id(); i < entries; i += block_size()) {
      const uint32_t token = i / input.top_k;
      const int64_t id = load_index(input.topk_idx, first + token, i - token * input.top_k);
      if (id < 0 || id >= shape.experts) {
        if (id != -1) *bad = id;
        continue;
      }
      const auto expert = static_cast<uint32_t>(id);
      set_bits(set(shape.ranks + expert) + token / 32, 1u << token % 32);
      set_bits(set(expert / local) + token / 32, 1u << token % 32);
    }
    sync_block();
  }

  // Lane verb: tokens of a set, all or those before `token`.
  UCCLEP_FN uint32_t count(uint32_t column) const { return count_before(column, end); }
  UCCLEP_FN uint32_t count_before(uint32_t column, uint32_t token) const {
    const uint32_t* set_of = set(column);
    const uint32_t stop = end, bits = (token < stop ? token : stop) - first;
    uint32_t count = 0;
    for (uint32_t w = 0; w < bits / 32; ++w) count += count_lanes(set_of[w]);
    if (bits % 32 != 0) count += count_lanes(set_of[bits / 32] & ((1u << bits % 32) - 1));
    return count;
  }
  // Lane verb: tokens 64 * i .. 64 * i + 63 of the tile.
  UCCLEP_FN uint64_t bits(uint32_t column, uint32_t i) const {
    return set(column)[2 * i] | uint64_t{set(column)[2 * i + 1]} << 32;
  }

  // Lane verb: adds to a selection what lies before its token: place counts the tokens with a row to the same rank,
  // position those with the same expert.
  UCCLEP_FN void add_before(uint32_t token, Selection& selection) const {
    if (selection.expert < 0 || token < first) return;
    if (selection.sends()) selection.place += count_before(selection.rank, token);
    selection.position += count_before(column_of(static_cast<uint32_t>(selection.expert)), token);
  }
};

// Warp verb: lane k's selection of a token, before anything is counted.
UCCLEP_FN Selection begin_selection(const GroupShape& shape, const RoutingInput& input, uint32_t token, int64_t* bad) {
  const uint32_t k = lane_id();
  int64_t given = -1;
  if (k < input.top_k) given = load_index(input.topk_idx, token, k);
  const bool in_range = given >= 0 && given < shape.experts;
  if (!in_range && given != -1) *bad = given;
  const uint32_t id = without_repeats(shape, in_range ? static_cast<uint32_t>(given) : uint32_t{no_expert}, bad);
  const bool valid = id != no_expert;
  Selection s{valid ? static_cast<int32_t>(id) : -1, valid ? id / shape.local_experts() : 0, no_place, 0};
  const bool sends = first_lane(match_any(valid ? s.rank : shape.ranks + k)) == k && valid;
  if (sends) s.place = 0;
  return s;
}

// Warp verb: what combine will need of it. Ids that the handle keeps already are read by all blocks: they stay.
UCCLEP_FN void keep_selection(const HandleMemory& memory, const RoutingInput& input, uint32_t token,
                              const Selection& s) {
  const uint32_t k = lane_id();
  if (k >= memory.shape.top_k) return;
  const uint64_t i = uint64_t{token} * memory.shape.top_k + k;
  auto* ids = memory.at<int32_t>(memory.handle.offsets.topk);
  if (input.topk_idx.data != reinterpret_cast<const char*>(ids)) ids[i] = s.expert;
  memory.at<uint32_t>(memory.handle.offsets.places)[i] = s.place;
  memory.at<uint32_t>(memory.handle.offsets.positions)[i] = s.position;
}

// Lane verb: the counts of two experts after this round, and before it what earlier rounds have left in the handle.
UCCLEP_FN uint32_t add_count(const TokenSets& sets, uint32_t column, uint32_t* sum) {
  const uint32_t earlier = sets.first == 0 ? 0 : *sum;
  return *sum = earlier + sets.count(column);
}

// Block verb: the header for one peer, whose packets the threads share out.
UCCLEP_FN void send_routed_header(const Op& op, const LlDispatchArgs& args, TokenSets& sets, uint32_t peer, Form form,
                                  int64_t* bad) {
  const HandleMemory memory = memory_of(args);
  const Parked local = memory.shape.local_experts(), experts = peer * local, tokens = args.routing.tokens;
  Packet* header = header_packets(op, peer, op.me());
  const uint32_t present = HeaderLayout::present(local);
  for (uint32_t first = 0; first == 0 || first < tokens; first += sets.capacity) {
    sets.require(first, bad);
    const uint32_t groups = form == Form::line ? HeaderLayout::present_packets(sets.end - first) : 0;
    const bool whole = sets.end == tokens;
    for (uint32_t i = thread_id(); i < present + groups; i += block_size()) {
      uint64_t value = 0;
      uint32_t packet = i;
      if (i >= present) {
        value = sets.bits(peer, i - present);
        packet += first / 64;
      } else if (i >= HeaderLayout::counts) {
        const uint32_t expert = experts + 2 * (i - HeaderLayout::counts);
        value = add_count(sets, sets.column_of(expert), memory.counts_to() + expert);
        if (expert + 1 < experts + local) {
          value |= uint64_t{add_count(sets, sets.column_of(expert + 1), memory.counts_to() + expert + 1)} << 32;
        }
      } else if (i == HeaderLayout::rows) {
        value = add_count(sets, peer, memory.rows_to() + peer) | uint64_t{static_cast<uint32_t>(form)} << 32;
      } else {
        value = i == HeaderLayout::tokens         ? uint64_t{uint32_t{tokens}}
                : i == HeaderLayout::settings_low ? args.settings.low()
                                                  : args.settings.high();
      }
      if (whole || i >= present) store_packet(header + packet, value, op.seq);
    }
  }
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

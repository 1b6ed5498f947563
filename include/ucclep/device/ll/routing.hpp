// SPDX-License-Identifier: Apache-2.0
// The routing of an LL dispatch. A barrier of the grid costs more than what it would share out: every block that counts
// reads all of the rank's ids, and has the sets of all tokens, or of as many as fit, in rounds.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/token_sets.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

using LlSets = TokenSets<LlDispatchArgs>;

// In the block's shared memory, or else in the handle's.
UCCLEP_FN LlSets sets_in(uint32_t* shared, const LlDispatchArgs& args) {
  const uint32_t tokens = TokenSetShape::of(args.group.shape).tokens;
  if (tokens != 0) return {args, shared, tokens};
  return LlSets::in_handle(args, memory_of(args).token_sets(), args.handle.tokens);
}

// Warp verb: lane k's selection of a token, before anything is counted. given: lane k's id.
UCCLEP_FN Selection select(const ExpertIds& ids, uint32_t token, int64_t given, int64_t* bad) {
  const GroupShape& shape = ids.group.shape;
  const uint32_t k = lane_id(), id = expert_of_lane(ids, token, given, bad);
  const bool valid = id != no_expert;
  Selection s{valid ? static_cast<int32_t>(id) : -1, valid ? shape.rank_of(id) : 0, no_place, 0};
  const bool sends = first_lane(match_any(valid ? s.rank : shape.ranks + k)) == k && valid;
  if (sends) s.place = 0;
  return s;
}

// Lane k's id of a token as it was given, read ahead of the token's turn.
struct IdAhead : IndexAhead {
  uint32_t logical = 0;  // ExpertIds

  template <class Args>
  UCCLEP_FN void read(const Args& args, uint32_t token) {
    const RoutingInput& input = args.routing;
    logical = ExpertIds::logical_of(args.group, input);
    narrow = -1, wide = -1;
    if (lane_id() < input.top_k && token < input.tokens) IndexAhead::read(input.topk_idx, token, lane_id());
  }
  // Warp verb, after read() for the same token.
  template <class Args>
  UCCLEP_FN Selection selection(const Args& args, uint32_t token, int64_t* bad) const {
    return select({args.group, logical}, token, value(args.routing.topk_idx), bad);
  }
};

template <class Args>
UCCLEP_FN Selection begin_selection(const Args& args, uint32_t token, int64_t* bad) {
  IdAhead id;
  id.read(args, token);
  return id.selection(args, token, bad);
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

// Verb of the blocks that count: the positions of every row; put(op, args, token, selection), a warp verb, sends them.
// ahead: has been read for the warp's first token, and reads the next when all of one has been used.
template <class Args, class Ahead, class Put>
UCCLEP_FN void place_tokens(const Op& op, const Args& args, const Job& job, TokenSets<Args>& sets, Ahead& ahead,
                            int64_t* bad, Put&& put) {
  const WarpUniform tokens = args.routing.tokens;
  for (WarpUniform begin = 0; begin + job.block() < tokens; begin += job.warps()) {
    const Args& here = reload(args);
    const WarpUniform token = begin + job.warp();
    Selection selection = ahead.selection(here, token, bad);
    for (WarpUniform first = 0; first < tokens; first += sets.capacity) {
      sets.require(first, tokens, bad);
      if (token < tokens) sets.add_before(token, selection);
    }
    if (token >= tokens) continue;
    const Args& now = reload(args);
    put(op.with(now.group), now, token, selection);
    ahead.read(reload(args), token + job.warps());
    keep_selection(memory_of(now), now.routing, token, selection);
    sync_warp();  // all lanes have read the scratch
  }
}

// Lane verb: the counts of two experts after this round, and before it what earlier rounds have left in the handle.
template <class Args>
UCCLEP_FN uint32_t add_count(const TokenSets<Args>& sets, uint32_t column, uint32_t* sum) {
  const uint32_t earlier = sets.first == 0 ? 0 : *sum;
  return *sum = earlier + sets.count(column);
}

// Warp verb: the wave of a token's row for the rank of lane k's selection: that of its lowest expert there.
UCCLEP_FN uint32_t lowest_wave(const GroupShape& shape, const Selection& selection, uint32_t waves) {
  const uint32_t local = shape.local_experts();
  uint32_t lowest = selection.expert >= 0 ? static_cast<uint32_t>(selection.expert) - selection.rank * local : 0;
  UCCLEP_KEEP_LOOP
  for (uint32_t k = 0; k < shape.top_k; ++k) {
    const auto other = static_cast<uint32_t>(broadcast(selection.expert, k)) - selection.rank * local;
    if (other < lowest) lowest = other;  // an expert of a lower rank, and none, are larger than any: numbers wrap
  }
  return wave_of(lowest, waves, local);
}
// Warp verb: of a selection the rows of one wave, as if the others were not sent.
UCCLEP_FN Selection of_wave(const GroupShape& shape, Selection selection, uint32_t wave, uint32_t waves) {
  if (lowest_wave(shape, selection, waves) != wave) selection.place = no_place;
  return selection;
}

// Lane verb: packet i of what a header says of waves (HeaderLayout::wave_packets), as far as the sets have it.
template <class Args>
UCCLEP_FN uint64_t count_waves(const TokenSets<Args>& sets, const HandleMemory& memory, uint32_t peer, uint32_t waves,
                               uint32_t i) {
  uint64_t value = 0;
  for (uint32_t half = 0; half < 2 && 2 * i + half < waves; ++half) {
    const uint32_t wave = 2 * i + half;
    uint32_t& sum = memory.sent_before(wave + 1)[peer];
    sum = (sets.first == 0 ? 0 : sum) + sets.count_in_waves(peer, wave, waves, sets.end);
    value |= uint64_t{sum} << 32 * half;
  }
  return value;
}

// Block verb: the header for one peer, whose packets the threads share out, each kind by warps of its own.
// relayed(sets) counts the rows that the peer relays, after each round. in_waves: there may be waves.
template <bool in_waves = false, class Args, class Relayed>
UCCLEP_FN void send_routed_header(const Op& op, const Args& args, TokenSets<Args>& sets, uint32_t peer, Packet* header,
                                  Form form, int64_t* bad, Relayed&& relayed) {
  const HandleMemory memory = memory_of(args);
  const WarpUniform local = memory.shape.local_experts(), experts = peer * local, tokens = args.routing.tokens;
  const uint32_t pairs = (local + 1) / 2, fixed = round_up(pairs, wave_size), bits = fixed + wave_size;
  for (uint32_t first = 0; first == 0 || first < tokens; first += sets.capacity) {
    sets.require(first, tokens, bad);
    uint32_t groups = by_token(form) ? HeaderLayout::present_packets(sets.end - first) : 0;
    uint32_t waves = 1;
    if constexpr (in_waves) waves = args.waves.of;
    if (in_waves && waves > 1 && !by_token(form)) groups = HeaderLayout::wave_packets(waves);
    const bool whole = sets.end == tokens;
    for (uint32_t i = thread_id(); i < bits + groups; i += block_size()) {
      if (i < pairs) {
        const uint32_t expert = experts + 2 * i;
        uint64_t value = add_count(sets, sets.column_of(expert), memory.counts_to() + expert);
        if (2 * i + 1 < local) {
          value |= uint64_t{add_count(sets, sets.column_of(expert + 1), memory.counts_to() + expert + 1)} << 32;
        }
        if (whole) store_packet(header + HeaderLayout::counts + i, value, op.seq);
      } else if (in_waves && i >= bits && !by_token(form)) {
        const uint64_t value = count_waves(sets, memory, peer, waves, i - bits);
        if (whole) store_packet(header + HeaderLayout::present(local) + i - bits, value, op.seq);
      } else if (i >= bits) {
        store_packet(header + HeaderLayout::present(local) + first / 64 + i - bits, sets.bits(peer, i - bits), op.seq);
      } else if (i >= fixed && i - fixed < HeaderLayout::counts) {
        const uint32_t rows = i - fixed == HeaderLayout::rows     ? add_count(sets, peer, memory.rows_to() + peer)
                              : i - fixed == HeaderLayout::tokens ? relayed(sets)
                                                                  : 0;
        const uint64_t value = i - fixed == HeaderLayout::rows     ? rows | uint64_t{static_cast<uint32_t>(form)} << 32
                               : i - fixed == HeaderLayout::tokens ? uint32_t{tokens} | uint64_t{rows} << 32
                               : i - fixed == HeaderLayout::settings_low ? args.settings.low()
                                                                         : args.settings.high();
        if (whole) store_packet(header + i - fixed, value, op.seq);
      }
    }
  }
  sync_warp();  // all lanes have stored theirs before any goes on to wait for the peer, which waits for this
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// The top-k ids of a small batch. They go to every peer in the header as they stand, ahead of all that is counted from
// them: a receiver counts for itself, and knows from the ids where rows stay. So neither sets of tokens
// (protocol/token_sets.hpp) nor metas are waited for. The rest of the header follows, for kernels that find rows in
// other ways.
//
// Floor: one read of the ids, and one flight of a packet.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// The top-k ids of one rank in the registers of a warp: expert ids, no_expert where there is none. Id k of a token is
// entry (token << shift) + k.
struct TopkHeader {
  static constexpr uint32_t steps = max_topk_ids / wave_size;
  uint32_t expert[steps];

  static UCCLEP_FN uint32_t entry(uint32_t step) { return step * wave_size + lane_id(); }

  // A rank's own, on their way.
  struct Ahead {
    IndexAhead ids[steps];

    UCCLEP_FN void read(const LlDispatchArgs& args) {
      const RoutingInput& input = args.routing;
      UCCLEP_UNROLL
      for (uint32_t s = 0; s < steps; ++s) {
        const uint32_t token = entry(s) >> args.tables.topk_shift, k = entry(s) - (token << args.tables.topk_shift);
        if (token < input.tokens && k < input.top_k) ids[s].read(input.topk_idx, token, k);
      }
    }
  };

  // Warp verb: those. What is no id of an expert, or there twice, counts as none: who sends metas reports it.
  static UCCLEP_FN TopkHeader of(const LlDispatchArgs& args, const Ahead& ahead) {
    const uint32_t shift = args.tables.topk_shift;
    TopkHeader topk;
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      const int64_t id = ahead.ids[s].value(args.routing.topk_idx);
      topk.expert[s] = id >= 0 && id < args.group.shape.experts ? static_cast<uint32_t>(id) : no_expert;
    }
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      const uint32_t token = entry(s) >> shift, expert = topk.expert[s];
      const uint32_t key = expert == no_expert ? ~lane_id() : token << 16 | expert;  // no_expert matches nobody
      if (first_lane(match_any(key)) != lane_id()) topk.expert[s] = no_expert;
    }
    return topk;
  }

  // Warp verb: of a rank that has sent them. words: max_topk_ids of them.
  static UCCLEP_FN TopkHeader in(const uint16_t* words) {
    TopkHeader topk;
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) topk.expert[s] = words[entry(s)];
    return topk;
  }

  // Warp verb: entries with a property, a bit each.
  template <class Property>
  UCCLEP_FN uint64_t where(Property&& property) const {
    uint64_t found = 0;
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) found |= ballot(property(expert[s])) << s * wave_size % 64;
    return found;
  }

  // Warp verb: entry i, of the lane's own.
  UCCLEP_FN uint32_t at(uint32_t i) const {
    uint32_t value = 0;
    UCCLEP_UNROLL
    for (uint32_t s = 0; s < steps; ++s) {
      const uint32_t there = shfl(expert[s], i % wave_size);
      if (i / wave_size % steps == s) value = there;
    }
    return value;
  }
};

// Is a global id an expert of the rank.
UCCLEP_FN bool is_of(const GroupShape& shape, uint32_t rank, uint32_t expert) {
  return expert - rank * shape.local_experts() < shape.local_experts();
}

// Warp verb: which tokens have a row at the rank, a bit each.
UCCLEP_FN uint64_t tokens_to(const LlDispatchArgs& args, const TopkHeader& topk, uint32_t rank) {
  const uint32_t shift = args.tables.topk_shift, begin = lane_id() << shift;
  const uint64_t of_token = (uint64_t{1} << (1u << shift)) - 1;
  const uint64_t sent = topk.where([&](uint32_t expert) { return is_of(args.group.shape, rank, expert); });
  return ballot(begin < max_topk_ids && (sent >> begin % max_topk_ids & of_token) != 0);
}

// Warp verb: the fixed packets of the header for a peer, which of the tokens come there, and the top-k ids of all of
// them.
UCCLEP_FN void send_topk(const Op& op, const LlDispatchArgs& args, const TopkHeader& topk, uint32_t peer) {
  const GroupShape& shape = op.group.shape;
  const uint64_t present = tokens_to(args, topk, peer);
  constexpr uint32_t fixed = HeaderLayout::counts, first = fixed + 1;
  const uint32_t i = lane_id(), packet = i - first;
  uint64_t word = 0;
  UCCLEP_UNROLL
  for (uint32_t j = 0; j < 4; ++j) word |= uint64_t{topk.at(4 * packet + j)} << 16 * j;
  Packet* to = header_packets(op, peer, op.me());
  if (i < fixed) {
    const uint64_t tokens = args.routing.tokens | HeaderLayout::has_topk;
    store_packet(to + i, fixed_packet(i, args.settings, count_lanes(present), Form::line, tokens), op.seq);
  } else if (i == fixed) {
    store_packet(to + HeaderLayout::present(shape.local_experts()), present, op.seq);
  } else if (packet < HeaderLayout::topk_packets) {
    store_packet(to + HeaderLayout::topk(shape) + packet, word, op.seq);
  }
  sync_warp();  // all lanes have stored theirs before any goes on to wait for the peer, which waits for this
}

// Warp verb: the rest of that header, the rows for each of the peer's experts; and what the handle keeps of all this.
UCCLEP_FN void send_counts(const Op& op, const LlDispatchArgs& args, const TopkHeader& topk, uint32_t peer) {
  const HandleMemory memory = memory_of(args);
  const uint32_t local = memory.shape.local_experts(), end = args.routing.tokens << args.tables.topk_shift;
  const uint32_t rows = count_lanes(tokens_to(args, topk, peer));
  if (lane_id() == 0) memory.rows_to()[peer] = rows;
  Packet* const to = header_packets(op, peer, op.me()) + HeaderLayout::counts;
  for (uint32_t first = 0; first < local; first += 2 * wave_size) {
    const uint32_t expert = first + 2 * lane_id();  // and the next one
    uint32_t counts[2] = {};
    UCCLEP_KEEP_LOOP
    for (uint32_t i = 0; i < end; ++i) {
      const uint32_t chosen = topk.at(i) - peer * local;
      counts[0] += chosen == expert ? 1 : 0;
      counts[1] += chosen == expert + 1 ? 1 : 0;
    }
    if (expert >= local) continue;
    const bool both = expert + 1 < local;
    store_packet(to + expert / 2, counts[0] | (both ? uint64_t{counts[1]} << 32 : 0), op.seq);
    memory.counts_to()[peer * local + expert] = counts[0];
    if (both) memory.counts_to()[peer * local + expert + 1] = counts[1];
  }
}

// Warp verb: what lies before a token's selections, as TokenSets::add_before.
UCCLEP_FN void add_before(const LlDispatchArgs& args, const TopkHeader& topk, uint32_t token, Selection& selection) {
  const uint32_t shift = args.tables.topk_shift;
  const uint64_t earlier_tokens = (uint64_t{1} << token) - 1, earlier = (uint64_t{1} << (token << shift)) - 1;
  for (uint64_t left = ballot(selection.expert >= 0); left != 0; left &= left - 1) {
    const uint32_t lane = first_lane(left), expert = broadcast(static_cast<uint32_t>(selection.expert), lane);
    const uint64_t rows = tokens_to(args, topk, broadcast(selection.rank, lane));
    const uint64_t same = topk.where([&](uint32_t other) { return other == expert; });
    if (lane_id() != lane) continue;
    if (selection.sends()) selection.place += count_lanes(rows & earlier_tokens);
    selection.position += count_lanes(same & earlier);
  }
}

// Warp verb: waits for the fixed packets of a header and, if they say that top-k ids follow, for these and for the
// tokens that come. value: lane i's packet, as send_topk has it.
UCCLEP_FN bool receive_topk(const Op& op, uint32_t source, uint64_t& value) {
  constexpr uint32_t fixed = HeaderLayout::counts, all = fixed + 1 + HeaderLayout::topk_packets;
  const GroupShape& shape = op.group.shape;
  const uint32_t i = lane_id();
  const uint32_t at = i < fixed    ? i
                      : i == fixed ? HeaderLayout::present(shape.local_experts())
                                   : HeaderLayout::topk(shape) + i - fixed - 1;
  const Packet* const packet = header_packets(op, op.me(), source) + at;
  return wait_peer_warp(op, Phase::header, source, [&] {
    const Packet seen = i < all ? load_packet(packet) : Packet{0, op.seq};
    value = seen.value;
    const uint64_t late = ballot(seen.epoch != op.seq);
    if ((late & ((1u << fixed) - 1)) != 0) return false;
    return late == 0 || (broadcast(value, HeaderLayout::tokens) & HeaderLayout::has_topk) == 0;
  });
}
static_assert(HeaderLayout::counts + 1 + HeaderLayout::topk_packets <= 32);

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

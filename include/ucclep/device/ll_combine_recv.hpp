// SPDX-License-Identifier: Apache-2.0
// LL combine received by a user's kernel, the one that sent it: who goes on with a token waits for its rows alone.
//
//   ll::combine_recv(warp{}, op, out, first_token, last_token);   each token of the dispatch once
// after combine_end in the same block, instead of ucclEpCompleteCombine (user/receive.hpp says when the operation
// ends). All ranks may do so, or some.
//
// | who writes                | who reads           | ordered by            |
// |---------------------------|---------------------|-----------------------|
// | the peers' partial rows   | combine_recv        | as in CompleteCombine |
// | combine_recv: the results | the scope, after it | the scope's sync      |
//
// Floor: as combine's (ll/combine.hpp).
#pragma once
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/ll/partials.hpp"
#include "ucclep/device/ll/sums.hpp"
#include "ucclep/device/ll_combine.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/simt/element.hpp"
#include "ucclep/device/user/kept_counts.hpp"
#include "ucclep/device/user/network.hpp"
#include "ucclep/device/user/operation.hpp"
#include "ucclep/device/user/receive.hpp"
#include "ucclep/device/user/row_in.hpp"
#include "ucclep/device/user/row_out.hpp"
#include "ucclep/device/user/waits.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Lane verb: a partial row in BULK form is there as far as the parts [begin, end). In a group of several domains rows
// are whole (ll/network.hpp), and the first part's word says so.
UCCLEP_FN bool wait_partial(const OpenCombine& open, const Op& op, uint32_t rank, uint32_t place, uint32_t begin,
                            uint32_t end) {
  if (network::is_remote(op, rank)) return network::wait_row(op, rank, place);
  const bool whole = op.networked();
  const uint64_t first = uint64_t{place} * combining::bulk_parts(open.shape.token_bytes());
  const char* const words = op.mine() + op.group.layout.back_epochs_of(op.slot, rank) + 8 * first;
  for (uint32_t part = whole ? 0 : begin; part < (whole ? 1 : end); ++part) {
    if (!await_word(op, Phase::rows, rank, words + 8 * part)) return false;
  }
  return true;
}

// The partial rows of one token, ranks ascending, as lanes of a warp have one each.
struct PartialsOfLanes {
  const char* at = nullptr;
  uint32_t of_rank = 0, place = 0, count = 0;
  uint64_t line_mask = 0;  // bit i: term i is in LINE form

  // Warp verb.
  UCCLEP_FN PartialsOfLanes(const OpenCombine& open, const Op& op, uint32_t token) {
    const HandleMemory memory = open.memory();
    const uint32_t bytes = open.shape.token_bytes();
    const Selection selection = selection_of(memory, token);
    const bool sends = selection.sends() && !is_masked(op, selection.rank);
    const uint64_t mask = ballot(sends);
    const uint32_t order = combining::order_of(selection, mask);
    const char* row = nullptr;
    bool line = false;
    if (sends) {
      line = !op.may.bulk || combining::form_of(op.group.shape, bytes, memory.rows_to()[selection.rank]) == Form::line;
      row = line ? op.mine() + op.group.layout.back_lines_of(op.slot, selection.rank) +
                       selection.place * combining::line_row_bytes(bytes)
                 : network::landed_back(op, selection.rank) + uint64_t{selection.place} * bytes;
    }
    count = count_lanes(mask);
    UCCLEP_KEEP_LOOP
    for (uint64_t left = mask; left != 0; left &= left - 1) {
      const uint32_t lane = first_lane(left), to = broadcast(order, lane);
      const uint64_t here = broadcast(reinterpret_cast<uint64_t>(row), lane);
      const uint32_t rank_here = broadcast(selection.rank, lane), place_here = broadcast(selection.place, lane);
      if (lane_id() == to) at = reinterpret_cast<const char*>(here), of_rank = rank_here, place = place_here;
      line_mask |= uint64_t{broadcast(line ? 1u : 0u, lane)} << to;
    }
  }
  // Warp verbs, as of combining::Partials.
  UCCLEP_FN const char* row(uint32_t i) const {
    return reinterpret_cast<const char*>(broadcast(reinterpret_cast<uint64_t>(at), i));
  }
  UCCLEP_FN uint32_t rank(uint32_t i) const { return broadcast(of_rank, i); }
  UCCLEP_FN bool in_lines(uint32_t i) const { return (line_mask >> i & 1) != 0; }
  UCCLEP_FN const char* lines(uint32_t i, uint32_t batch) const {
    return row(i) + batch * LineBatch::lines * line_bytes;
  }
  // What has no epochs inside is there as far as the parts [begin, end).
  UCCLEP_FN bool wait_parts(const OpenCombine& open, const Op& op, uint32_t begin, uint32_t end) const {
    const bool waits = lane_id() < count && !in_lines(lane_id());
    const bool ok = !waits || wait_partial(open, op, of_rank, place, begin, end);
    sync_warp();  // what a lane has acquired is ordered before what all of them read
    return every_lane(ok);
  }
};

// The same as each member of a smaller scope knows them.
struct TokenPartials : Returns {
  const char* rows[max_top_k];
  uint64_t lines = 0;  // bit i: term i is in LINE form

  UCCLEP_FN TokenPartials(const OpenCombine& open, const Op& op, uint32_t token) : Returns(open, token) {
    const uint32_t bytes = open.shape.token_bytes();
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t sent_there = open.memory().rows_to()[ranks[i]];
      const bool line = combining::form_of(op.group.shape, bytes, sent_there) == Form::line;
      lines |= uint64_t{line} << i;
      rows[i] = line ? op.mine() + op.group.layout.back_lines_of(op.slot, ranks[i]) +
                           places[i] * combining::line_row_bytes(bytes)
                     : network::landed_back(op, ranks[i]) + uint64_t{places[i]} * bytes;
    }
  }
  UCCLEP_FN bool wait_parts(const OpenCombine& open, const Op& op, uint32_t begin, uint32_t end) const {
    for (uint32_t i = 0; i < count; ++i) {
      if ((lines >> i & 1) == 0 && !wait_partial(open, op, ranks[i], places[i], begin, end)) return false;
    }
    return true;
  }
};

// Verb of a warp: some batches of a token's result.
template <class Element>
UCCLEP_FN bool sum_part(const OpenCombine& open, const Op& op, const CombineRows& out, uint32_t token,
                        const BatchRange& range) {
  constexpr uint32_t batches = ll_part_bytes / line_batch_bytes;  // of a BULK part
  const uint32_t bytes = open.shape.token_bytes();
  const PartialsOfLanes from(open, op, token);
  if (!from.wait_parts(open, op, range.begin / batches, ceil_div(range.end, batches))) return false;
  const void* const biases[] = {out.bias, out.bias2};
  const auto write = [&](uint32_t index, combining::BatchSum<Element>& sum) {
    const uint32_t length = batch_length(bytes, index), at = index * line_batch_bytes;
    for (const void* const bias : biases) {
      if (bias == nullptr) continue;
      LineBatch batch;
      batch.read(row_at(const_cast<void*>(bias), token, bytes) + at, length);
      sum.begun = true;  // also where the token has no expert: the bias is added to zero
      sum.add(batch, 1.0f, false);
    }
    sum.rounded().write(row_at(out.tokens, token, bytes) + at, length);
  };
  using Terms = combining::PartialTerms<AnyForm, combining::GroupOf<2>, PartialsOfLanes>;
  return combining::sum_batches<Element>(Terms{op, from, bytes}, range, write);
}

// Verb of members of less than a warp: all of a token's result.
template <class Element, class Coop>
UCCLEP_FN bool sum_words(const OpenCombine& open, const Op& op, const CombineRows& out, uint32_t token,
                         const TokenPartials& from) {
  const uint32_t bytes = open.shape.token_bytes();
  if (!from.wait_parts(open, op, 0, combining::bulk_parts(bytes))) return false;
  const void* const biases[] = {out.bias, out.bias2};
  for (uint32_t at = 8 * Coop::rank(); at < bytes; at += 8 * Coop::size()) {
    TermSum<Element> sum;
    for (uint32_t i = 0; i < from.count; ++i) {
      const bool line = (from.lines >> i & 1) != 0;
      if (line && !wait_lines(op, Phase::rows, from.ranks[i], from.rows[i], at, at + 8)) return false;
      const uint64_t word = line ? line_word(from.rows[i], at) : *reinterpret_cast<const uint64_t*>(from.rows[i] + at);
      sum.add(sum.unpack(word));
    }
    for (const void* const bias : biases) {
      if (bias == nullptr) continue;
      sum.begun = true;
      sum.add(sum.unpack(*reinterpret_cast<const uint64_t*>(row_at(const_cast<void*>(bias), token, bytes) + at)));
    }
    *reinterpret_cast<uint64_t*>(row_at(out.tokens, token, bytes) + at) = sum.packed();
  }
  return true;
}

// Verb of members of the scope: tokens [first, last). A block's warps take parts of tokens.
template <class Element, class Coop>
UCCLEP_FN bool sum_tokens(const OpenCombine& open, const Op& op, const CombineRows& out, uint32_t first,
                          uint32_t last) {
  if constexpr (whole_warps<Coop>) {
    const uint32_t batches = line_batches(open.shape.token_bytes());
    const RowParts parts = RowParts::of<combining::max_batches<AnyForm>>(batches, last - first, Near<Coop>::count());
    const uint32_t count = parts.count, items = (last - first) * count;
    UCCLEP_KEEP_LOOP
    for (uint32_t item = Near<Coop>::index(); item < items; item += Near<Coop>::count()) {
      if (!sum_part<Element>(open, op, out, first + item / count, parts.range(item % count))) return false;
    }
  } else {
    for (uint32_t token = first; token < last; ++token) {
      if (!sum_words<Element, Coop>(open, op, out, token, TokenPartials(open, op, token))) return false;
    }
  }
  return true;
}

// Verb of the scope: of a dispatch that may be under way, that what this rank keeps of it is whole, and whether ranks
// agreed in it.
template <class Coop>
UCCLEP_FN HeaderResult dispatched(const OpenCombine& open, const MayMeet& may) {
  if (!open.beside || !open.ok) return HeaderResult::good;
  const Op now = open.dispatch.op();
  const Op op{now.group, now.kind, now.name, now.seq, now.slot, WarpUniform{0}, may};
  const bool sent = Coop::rank() != 0 || all_sent(open.dispatch, op);
  Coop::sync();
  return Coop::any(!sent) ? HeaderResult::lost : what_comes<Coop>(open.dispatch, op);
}

// Verb of the scope, after combine_end: the results of tokens [first, last) to `out`; waits until they are there, at
// most the group's timeout. Every token is asked for exactly once, by any scope, in any order and block; tokens past
// the last that was dispatched have no result. lanes<N>: all groups of a warp call it together, with first = last where
// there is nothing to do. False: the operation has failed, or ranks disagree and there are no results.
// Registers: 128 and 752 bytes of stack (sm_90a), 123 and 684 bytes of stack (gfx942).
template <class Coop>
UCCLEP_FN bool combine_recv(Coop, const OpenCombine& open, const CombineRows& out, uint32_t first, uint32_t last) {
  return in_group_of(open.op(), [=](const Op& op) {
    const HeaderResult come = dispatched<Coop>(open, op.may);
    if (come == HeaderResult::lost) return false;
    return receive_tokens<Coop>(open, op, first, last, come == HeaderResult::good, [&](uint32_t begin, uint32_t end) {
      return with_element(open.shape.dtype,
                          [&](auto element) { return sum_tokens<decltype(element), Coop>(open, op, out, begin, end); });
    });
  });
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

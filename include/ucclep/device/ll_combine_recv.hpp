// SPDX-License-Identifier: Apache-2.0
// LL combine received by a user's kernel, the one that sent it: who goes on with a token waits for its rows alone.
//
//   ll::combine_recv(warp{}, op, out, first_token, last_token);   each token of the dispatch once
// after combine_end in the same block, instead of ucclEpCompleteCombine (open_receive.hpp says when the operation
// ends). All ranks may do so, or some.
//
// | who writes                | who reads           | ordered by            |
// |---------------------------|---------------------|-----------------------|
// | the peers' partial rows   | combine_recv        | as in CompleteCombine |
// | combine_recv: the results | the scope, after it | the scope's sync      |
//
// Floor: as combine's (ll_combine.hpp).
#pragma once
#include "ucclep/device/ll_combine.hpp"
#include "ucclep/device/user/receive.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// The partial rows of one token, ranks ascending.
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

  // Lane verb: what has no epochs inside is there as far as the parts [begin, end). In a group of several domains rows
  // are whole (ll_network.hpp), and the first part's word says so.
  UCCLEP_FN bool wait_parts(const OpenCombine& open, const Op& op, uint32_t begin, uint32_t end) const {
    const uint32_t parts = combining::bulk_parts(open.shape.token_bytes());
    const bool whole = op.group.network != nullptr;
    for (uint32_t i = 0; i < count; ++i) {
      if ((lines >> i & 1) != 0) continue;
      if (network::is_away(op, ranks[i])) {
        if (!network::wait_row(op, ranks[i], places[i])) return false;
        continue;
      }
      const char* words = op.mine() + op.group.layout.back_epochs_of(op.slot, ranks[i]) + 8ull * places[i] * parts;
      for (uint32_t part = whole ? 0 : begin; part < (whole ? 1 : end); ++part) {
        if (!wait_word(op, Phase::rows, ranks[i], words + 8 * part)) return false;
      }
    }
    return true;
  }
};

// Verb of a warp: some batches of a token's result.
template <class Element>
UCCLEP_FN bool sum_part(const OpenCombine& open, const Op& op, const CombineRows& out, uint32_t token,
                        TokenPartials& from, const BatchRange& range) {
  constexpr uint32_t batches = ll_part_bytes / line_batch_bytes;  // of a BULK part
  const uint32_t bytes = open.shape.token_bytes();
  if (!every_lane(from.wait_parts(open, op, range.begin / batches, ceil_div(range.end, batches)))) return false;
  const combining::Partials partials{from.rows, from.ranks, from.lines, from.count};
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
  return combining::sum_batches<Element>(combining::PartialTerms<AnyForm>{op, partials, bytes}, range, write);
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
    const RowParts parts = RowParts::of_size(line_batches(open.shape.token_bytes()), combining::most_batches<AnyForm>);
    const uint32_t count = parts.count, items = (last - first) * count;
    for (uint32_t item = Near<Coop>::index(); item < items; item += Near<Coop>::count()) {
      const uint32_t token = first + item / count;
      TokenPartials from(open, op, token);
      if (!sum_part<Element>(open, op, out, token, from, parts.range(item % count))) return false;
    }
  } else {
    for (uint32_t token = first; token < last; ++token) {
      if (!sum_words<Element, Coop>(open, op, out, token, TokenPartials(open, op, token))) return false;
    }
  }
  return true;
}

// Verb of the scope, after combine_end: the results of tokens [first, last) to `out`; waits until they are there, at
// most the group's timeout. Every token is asked for exactly once, by any scope, in any order and block; tokens past
// the last that was dispatched have no result. lanes<N>: all groups of a warp call it together, with first = last where
// there is nothing to do. False: the operation has failed, or ranks disagree and there are no results.
template <class Coop>
UCCLEP_FN bool combine_recv(Coop, const OpenCombine& open, const CombineRows& out, uint32_t first, uint32_t last) {
  return receive_tokens<Coop>(open, first, last, [&](const Op& op, uint32_t begin, uint32_t end) {
    return with_element(open.shape.dtype,
                        [&](auto element) { return sum_tokens<decltype(element), Coop>(open, op, out, begin, end); });
  });
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// A routing as sets: for each rank and each expert the tokens that choose it, a bit a token. All that is asked of a
// routing is how many bits are set.
#pragma once
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/routing.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Tokens [first, end) of this rank. Args has a group and a routing. Columns as in the handle's table: ranks, then
// experts.
template <class Args>
struct TokenSets {
  const Args& args;
  uint32_t* words;       // [R + E][words of a set]
  WarpUniform capacity;  // tokens
  WarpUniform first = 0, end = 0;

  static constexpr uint32_t batch = 4;  // ids on their way to a thread
  static constexpr uint32_t max_tokens = 1u << 21;
  static_assert(uint64_t{max_tokens} * max_top_k * max_top_k < uint64_t{1} << 32);  // Divisor::quotient

  // In a handle's memory, which has room for the sets of that many tokens.
  static UCCLEP_FN TokenSets in_handle(const Args& args, uint32_t* words, uint32_t tokens) {
    const auto all = static_cast<uint32_t>(round_up(uint64_t{tokens}, 64));
    return {args, words, all < max_tokens ? all : max_tokens};
  }

  UCCLEP_FN uint32_t set_words() const { return (capacity + 31) / 32; }
  UCCLEP_FN uint32_t* set(uint32_t column) const { return words + uint64_t{column} * set_words(); }
  UCCLEP_FN uint32_t column_of(uint32_t expert) const { return args.group.shape.ranks + expert; }

  // Block verb: the sets of the tokens from `from` on, as many as fit, up to `to`. An id out of range is in no set, one
  // that is there twice counts once; *bad gets the first kind.
  UCCLEP_FN void require(uint32_t from, uint32_t to, int64_t* bad) {
    if (end != 0 && first == from) return;
    sync_block();  // nobody reads the old ones any more
    const Args& now = reload(args);
    const GroupShape& shape = now.group.shape;
    const RoutingInput& input = now.routing;
    first = from;
    end = to - from < capacity ? to : from + capacity;
    const uint32_t all = (shape.ranks + shape.experts) * set_words();
    for (uint32_t i = thread_id(); i < all; i += block_size()) words[i] = 0;
    sync_block();
    const ExpertIds meaning = ExpertIds::of(now.group, input);
    const uint32_t entries = (end - first) * input.top_k;
    for (uint32_t i = thread_id(); i < entries; i += batch * block_size()) {
      IndexAhead ids[batch];
      uint32_t tokens[batch];
      UCCLEP_UNROLL
      for (uint32_t j = 0; j < batch; ++j) {
        const uint32_t at = i + j * block_size();
        tokens[j] = input.top_k.quotient(at);
        if (at < entries) ids[j].read(input.topk_idx, first + tokens[j], at - tokens[j] * input.top_k);
      }
      UCCLEP_UNROLL
      for (uint32_t j = 0; j < batch; ++j) add(meaning, tokens[j], ids[j].value(input.topk_idx), bad);
    }
    sync_block();
  }

  // Lane verb. token: of the tile.
  UCCLEP_FN void add(const ExpertIds& ids, uint32_t token, int64_t id, int64_t* bad) {
    const GroupShape& shape = args.group.shape;
    const uint32_t expert = ids.expert(first + token, id, bad);
    if (expert == no_expert) return;
    const uint32_t rank = shape.rank_of(expert);
    if (is_masked(args.group, rank)) return;
    set_bits(set(shape.ranks + expert) + token / 32, 1u << token % 32);
    set_bits(set(rank) + token / 32, 1u << token % 32);
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
  // Lane verb: of the tokens with a row for `rank` those of which the lowest expert there is in a wave below `wave`,
  // and of those of `wave` itself the ones before `token`.
  UCCLEP_FN uint32_t count_in_waves(uint32_t rank, uint32_t wave, uint32_t waves, uint32_t token) const {
    const uint32_t local = args.group.shape.local_experts(), begin = first_of_wave(wave, waves, local),
                   stop = first_of_wave(wave + 1, waves, local), column = column_of(rank * local);
    const uint32_t in_tile = token < first ? 0 : (token < end ? token : uint32_t{end}) - first;
    uint32_t count = 0;
    for (uint32_t w = 0; 32 * w < end - first; ++w) {
      uint32_t below = 0, same = 0;
      for (uint32_t l = 0; l < begin; ++l) below |= set(column + l)[w];
      for (uint32_t l = begin; l < stop; ++l) same |= set(column + l)[w];
      const uint32_t bits = in_tile < 32 * w ? 0 : in_tile - 32 * w;
      if (bits < 32) same &= (1u << bits) - 1;
      count += count_lanes(below | same);
    }
    return count;
  }
  // Lane verb: tokens 64 * i .. 64 * i + 63 of the tile.
  UCCLEP_FN uint64_t bits(uint32_t column, uint32_t i) const {
    return set(column)[2 * i] | uint64_t{set(column)[2 * i + 1]} << 32;
  }

  // Lane verb: adds to a selection what lies before its token: place counts the tokens with a row to the same rank,
  // position those with the same expert. A masked rank gets no row.
  UCCLEP_FN void add_before(uint32_t token, Selection& selection) const {
    if (selection.expert < 0 || token < first) return;
    if (is_masked(args.group, selection.rank)) selection.place = no_place;
    if (selection.sends()) selection.place += count_before(selection.rank, token);
    selection.position += count_before(column_of(static_cast<uint32_t>(selection.expert)), token);
  }
  // The same where places are in the order of waves. wave: of the row (lowest_wave). Of every tile, whatever the token.
  UCCLEP_FN void add_in_waves(uint32_t token, uint32_t wave, uint32_t waves, Selection& selection) const {
    if (selection.sends()) selection.place += count_in_waves(selection.rank, wave, waves, token);
    if (selection.expert < 0 || token < first) return;
    selection.position += count_before(column_of(static_cast<uint32_t>(selection.expert)), token);
  }
};

}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// Partial rows of LL combine: in which form and in how many parts they travel (both ends know the counts, and so both
// know it), and how their home waits for them and adds them up.
#pragma once
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/ll/sums.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/stage.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace combining {

UCCLEP_FN uint64_t line_row_bytes(uint32_t row_bytes) {
  return uint64_t{(row_bytes + line_payload - 1) / line_payload} * line_bytes;
}
UCCLEP_FN Form form_of(const GroupShape& shape, uint32_t row_bytes, uint32_t rows) {
  return rows * line_row_bytes(row_bytes) <= shape.line_capacity ? Form::line : Form::bulk;
}

UCCLEP_FN uint32_t bulk_parts(uint32_t row_bytes) {
  return (row_bytes - 1) / ll_part_bytes + 1;
}

// A word for each rank, all read at once where every lane can have one.
struct RankWords {
  const uint32_t* words;
  uint32_t mine;
  bool spread;

  static UCCLEP_FN RankWords of(uint32_t ranks, const uint32_t* words) {
    return {words, lane_id() < ranks ? words[lane_id()] : 0, ranks <= wave_size};
  }
  // Warp verb: the sum over all ranks.
  UCCLEP_FN uint32_t total(uint32_t ranks) const {
    if (spread) return reduce_add(mine);
    uint32_t sum = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) sum += words[rank];
    return sum;
  }
  // Warp verb: the largest of all.
  UCCLEP_FN uint32_t most(uint32_t ranks) const {
    if (spread) return reduce_max(mine);
    uint32_t largest = 0;
    UCCLEP_KEEP_LOOP
    for (uint32_t rank = 0; rank < ranks; ++rank) largest = words[rank] < largest ? largest : words[rank];
    return largest;
  }
  // Warp verb: of a rank of the lane's own.
  UCCLEP_FN uint32_t at(uint32_t rank) const {
    const uint32_t word = shfl(mine, rank % wave_size);
    return spread ? word : words[rank];
  }
};

// Batches of a part of a row in LINE form, at most. A part of a row that may come in BULK form is no larger than its.
template <class Forms>
constexpr uint32_t max_batches = Forms::bulk ? 2 : 16;
static_assert(ll_part_bytes % (max_batches<ll::AnyForm> * line_batch_bytes) == 0);

// ---- At their home.

// The partial rows of one token, ranks ascending.
struct Partials {
  const char** rows;
  uint32_t* ranks;
  uint64_t line_mask;  // bit i: term i is in LINE form, and not waited for yet
  uint32_t count;

  UCCLEP_FN const char* row(uint32_t i) const { return rows[i]; }
  UCCLEP_FN uint32_t rank(uint32_t i) const { return ranks[i]; }
  UCCLEP_FN bool in_lines(uint32_t i) const { return (line_mask >> i & 1) != 0; }
  UCCLEP_FN const char* lines(uint32_t i, uint32_t batch) const {
    return rows[i] + batch * LineBatch::lines * line_bytes;
  }
};

// Warp verb: how many of those in the mask are from lower ranks.
UCCLEP_FN uint32_t order_of(const Selection& selection, uint64_t mask) {
  uint32_t order = 0;
  UCCLEP_KEEP_LOOP
  for (uint64_t left = mask; left != 0; left &= left - 1) {
    if (broadcast(selection.rank, first_lane(left)) < selection.rank) ++order;
  }
  return order;
}

// Warp verb: where they are; the BULK ones are waited for as far as `part`.
template <class Forms>
UCCLEP_FN bool gather_partials(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage,
                               uint32_t token, uint32_t part, Partials& partials) {
  const WindowLayout& window = op.group.layout;
  const RankWords rows_to = RankWords::of(op.ranks(), memory.rows_to());
  const Selection selection = selection_of(memory, token);
  const bool sends = selection.sends() && !is_masked<typename Forms::Wire>(op.group, selection.rank);
  const uint32_t rows = rows_to.at(selection.rank);
  const Terms terms = Terms::in(stage.scratch());
  partials = {terms.rows, reinterpret_cast<uint32_t*>(terms.weights), 0, 0};  // partials have no weights
  const uint64_t mask = ballot(sends);
  const uint32_t order = order_of(selection, mask);
  bool ok = true, line = false;
  if (sends) {
    const uint32_t rank = selection.rank;
    line = Forms::by_token && (!Forms::bulk || form_of(args.group.shape, args.row_bytes, rows) == Form::line);
    if (line) {
      partials.rows[order] =
          op.mine() + window.back_lines_of(op.slot, rank) + selection.place * line_row_bytes(args.row_bytes);
    } else if constexpr (Forms::bulk) {
      const uint64_t word = uint64_t{selection.place} * bulk_parts(args.row_bytes) + part;
      ok = Forms::Wire::wait_part(op, rank, selection.place,
                                  op.mine() + window.back_epochs_of(op.slot, rank) + 8 * word);
      partials.rows[order] = Forms::Wire::landed_back(op, rank) + uint64_t{selection.place} * args.row_bytes;
    }
    partials.ranks[order] = rank;
  }
  partials.count = count_lanes(mask);
  for (uint64_t left = ballot(line); left != 0; left &= left - 1) {
    partials.line_mask |= uint64_t{1} << broadcast(order, first_lane(left));
  }
  sync_warp();
  return every_lane(ok);
}

// They, as terms of the result.
template <class Forms, class TermsTogether = TermGroup<Forms>, class Rows = Partials>
struct PartialTerms {
  using Group = TermsTogether;
  static constexpr bool weighted = false;
  const Op& op;
  const Rows& partials;
  uint32_t row_bytes;

  UCCLEP_FN uint32_t count() const { return partials.count; }
  UCCLEP_FN float weight(uint32_t) const { return 1.0f; }
  UCCLEP_FN bool in_lines(uint32_t i) const { return Forms::by_token && (!Forms::bulk || partials.in_lines(i)); }
  UCCLEP_FN void look(Group& group, uint32_t index, uint32_t first) const {
    const uint32_t bytes = batch_length(row_bytes, index);
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < Group::most; ++i) {
      if (first + i >= partials.count) break;
      if (in_lines(first + i)) {
        group.term[i].peek(partials.lines(first + i, index), bytes);
      } else {
        group.term[i].read(partials.row(first + i) + index * line_batch_bytes, bytes);
      }
    }
  }
  // What is late is looked at again. Who is named when the time is up: the first that was late.
  UCCLEP_FN bool wait(Group& group, uint32_t index, uint32_t first) const {
    uint32_t late = first;
    const auto here = [&] { return all_here(group, index, first, late); };
    return here() || wait_peer_warp(op, Phase::rows, partials.rank(late), here);
  }
  // One look. late: the first that was.
  UCCLEP_FN bool all_here(Group& group, uint32_t index, uint32_t first, uint32_t& late) const {
    const uint32_t bytes = batch_length(row_bytes, index);
    bool all = true;
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < Group::most; ++i) {
      if (first + i >= partials.count) break;
      if (!in_lines(first + i) || group.term[i].arrived(bytes, op.seq)) continue;
      group.term[i].peek(partials.lines(first + i, index), bytes);
      if (all) late = first + i;
      all = false;
    }
    return all;
  }
};

template <class Element>
UCCLEP_FN void add_bias_batch(BatchSum<Element>& sum, const View& bias, uint32_t token, uint32_t index,
                              uint32_t bytes) {
  if (!bias.data) return;
  LineBatch batch;
  batch.read(bias.at(0, token) + index * line_batch_bytes, bytes);
  sum.begun = true;  // also where the token has no expert: the bias is added to zero
  sum.add(batch, 1.0f, false);
}

// Warp verb: one batch of the result of one token.
template <class Element>
UCCLEP_FN void write_sum(const CombineArgs& args, uint32_t token, uint32_t index, BatchSum<Element>& sum) {
  const uint32_t bytes = batch_length(args.row_bytes, index);
  add_bias_batch(sum, args.bias, token, index, bytes);
  add_bias_batch(sum, args.bias2, token, index, bytes);
  sum.rounded().write(args.output.at(0, token) + index * line_batch_bytes, bytes);
}

// Warp verb: one part of the result of one token.
template <class Element, class Forms>
UCCLEP_FN bool reduce_part(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage,
                           uint32_t token, const BatchRange& range) {
  Partials partials;
  const uint32_t bulk_part = range.begin * line_batch_bytes / ll_part_bytes;
  if (!gather_partials<Forms>(op, memory, args, stage, token, bulk_part, partials)) return false;
  const auto write = [&](uint32_t index, BatchSum<Element>& sum) { write_sum(args, token, index, sum); };
  if (!sum_batches<Element>(PartialTerms<Forms>{op, partials, args.row_bytes}, range, write)) return false;
  sync_warp();  // the scratch is free for the next part
  return true;
}

// Verb of the blocks that receive: tokens that get a result.
UCCLEP_FN uint32_t tokens_out(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job) {
  if (job.block() == 0 && thread_id() == 0) compare_tokens(op, memory, args.output_rows, args.settings.top_k);
  const uint32_t tokens = memory.state()->tokens;
  return tokens < args.output_rows ? tokens : args.output_rows;
}

// Verb of the blocks that receive.
template <class Element, class Forms>
UCCLEP_FN bool reduce_ll_tokens(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job,
                                Stage& stage) {
  const WarpUniform tokens = tokens_out(op, memory, args, job);
  const RowParts row_parts = RowParts::of<max_batches<Forms>>(line_batches(args.row_bytes), tokens, job.warps());
  const WarpUniform parts = row_parts.count, items = tokens * parts;
  for (WarpUniform item = job.warp(); item < items; item += job.warps()) {
    const CombineArgs& now = reload(args);
    if (!reduce_part<Element, Forms>(op.with(now.group), memory_of(now), now, stage, item / parts,
                                     row_parts.range(item % parts))) {
      return false;
    }
  }
  return true;
}

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// LL dispatch of a small batch (is_small_batch), whose rows travel as lines, in a group without masks. As in
// ll/dispatch.hpp, but headers carry the top-k ids of the tokens (ll/topk_header.hpp), and warps that send or count
// work on their own: a warp has one thing to do, as a rule, which follows from its index, and what it needs is on its
// way together with the sequence number. That the slots are free (P1) is looked at before a warp's lines leave.
//
//   rows, sequence number -> slots free -> rows out
//   ids, sequence number -> slots free -> ids, counts, metas out
//   sequence number -> ids in -> places, lines in -> write -> end
// Floor: the launch, two latencies of memory, a flight of a packet, two latencies.
#pragma once
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/dispatch.hpp"
#include "ucclep/device/ll/headers.hpp"
#include "ucclep/device/ll/inbox.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/ll/lines.hpp"
#include "ucclep/device/ll/row_lines.hpp"
#include "ucclep/device/ll/tables.hpp"
#include "ucclep/device/ll/topk_header.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/rows/stage.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Warp verb: the meta of a token, and what combine needs of it. ahead: has been read for it.
UCCLEP_FN void publish_token(const Op& op, const LlDispatchArgs& args, const TopkHeader& topk, Stage& stage,
                             uint32_t token, const MetaAhead& ahead, int64_t* bad) {
  Selection selection = select(args.group.shape, ahead.value(args.routing), bad);
  add_before(args, topk, token, selection);
  send_meta(op, args, stage, token, selection, ahead.weight);
  keep_selection(memory_of(args), args.routing, token, selection);
  sync_warp();  // all lanes have read the scratch
}

// Verb of the warps of the blocks that count, but of the last if there are others: it counts what comes. One sends a
// peer the top-k ids, one the counts, one the meta of a token.
UCCLEP_FN bool publish_small(const LlDispatchArgs& args, const Job& counting, Stage& stage, int64_t* bad) {
  const Job job{counting.first, counting.blocks > 1 ? counting.blocks - 1 : 1};
  const WarpUniform ranks = args.group.shape.ranks, things = 2 * ranks + args.routing.tokens;
  if (!job.mine() || job.warp() >= things) return true;
  MetaAhead ahead;
  ahead.read(args, job.warp() - 2 * ranks);  // of no token, if it is a peer's turn
  TopkHeader::Ahead chosen;
  chosen.read(args);
  const OpState op_state = load_op_state_and_slots(args.group, Kind::dispatch);
  const TopkHeader topk = TopkHeader::of(args, chosen);
  const Op op = dispatch_of(args, op_state);
  if (!slots_free_of_warp(op, op_state)) return false;
  UCCLEP_KEEP_LOOP
  for (WarpUniform i = job.warp(); i < things; i += job.warps()) {
    const LlDispatchArgs& now = reload(args);
    const Op same = op.with(now.group);
    if (i < ranks) {
      send_topk(same, now, topk, same.rotated(i));
    } else if (i < 2 * ranks) {
      send_counts(same, now, topk, same.rotated(i - ranks));
    } else {
      publish_token(same, now, topk, stage, i - 2 * ranks, ahead, bad);
    }
    ahead.read(now, i + job.warps() - 2 * ranks);
  }
  return true;
}

// Warp verb: lane k's selection of a row whose source has sent top-k ids, as its meta has it but for the weight.
// Positions are those of experts of this rank.
UCCLEP_FN ReceivedSelection chosen(const Op& op, const HeaderTable& table, uint32_t source, uint32_t token) {
  const uint32_t begin = token << table.at.topk_shift;
  const uint16_t* const words = table.topk_of(source);
  const TopkHeader topk = TopkHeader::in(words);
  const uint32_t expert = lane_id() >> table.at.topk_shift == 0 ? words[begin + lane_id()] : uint32_t{no_expert};
  const uint64_t earlier = (uint64_t{1} << begin) - 1;
  ReceivedSelection selection;
  if (expert != no_expert) selection.expert = static_cast<int32_t>(expert);
  for (uint64_t left = ballot(is_of(op.group.shape, op.me(), expert)); left != 0; left &= left - 1) {
    const uint32_t lane = first_lane(left), one = broadcast(expert, lane);
    const uint64_t same = topk.where([&](uint32_t other) { return other == one; });
    if (lane_id() == lane) selection.position = count_lanes(same & earlier);
  }
  return selection;
}

// A batch of a row, as a warp receives it: all that is known of it before the headers are in.
template <class Row>
struct BatchIn {
  RowPart which;
  LineSpan<Row::Lines::scaled, 1> span;
  const char* lines = nullptr;

  UCCLEP_FN BatchIn(const Op& op, const LlDispatchArgs& args, const PartsByToken& work, uint32_t item)
      : which(work.part_of(op, item)) {
    const WireShape& wire = args.output.wire;
    const RowLines row = RowLines::of(op.group.shape, wire);
    const uint32_t batch = which.part < wire.batches ? uint32_t{which.part} : 0;
    span.cover(wire, {batch, batch + 1});
    lines = op.mine() + op.group.layout.ll_lines_of(op.slot, which.source) +
            uint64_t{which.token} * row.all() * line_bytes + row.batch(batch);
  }
};

// Warp verb: that batch, from its lines to where it stays, of a source that has sent top-k ids.
template <class Row>
UCCLEP_FN bool receive_batch(const Op& op, const LlDispatchArgs& args, BatchIn<Row>& batch, ByHeaders& way) {
  const uint32_t source = batch.which.source, token = batch.which.token;
  batch.span.peek(args.output.wire, batch.lines);  // on its way while its place is found
  if (!way.find(op, source)) return true;
  const ReceivedSelection selection = chosen(op, way.table, source, token);
  const uint32_t base = base_of(op, way, args.output, source, selection);
  const Target target = place_row(op, args.output, {source, way.place, token}, selection, base);
  const LlDispatchArgs& now = reload(args);
  return deliver_span(op.with(now.group), source, now.output, batch.span, batch.lines, target);
}

// Verb of the warps that receive, when the headers are in. A part of a row is a batch, or what is to be noted of it.
template <class Row>
UCCLEP_FN bool expand_small(const Op& op, const LlDispatchArgs& args, const Job& job, Stage& stage,
                            const PartsByToken& work, BatchIn<Row>& first) {
  using Span = LineSpan<Row::Lines::scaled, 1>;
  const WarpUniform tokens = BlockTables::headers_of(stage, args).max_tokens(op.ranks());
  WarpUniform item = job.warp();
  BatchIn<Row> batch = first;
  while (batch.which.token < tokens) {
    const LlDispatchArgs& now = reload(args);
    const Op same = op.with(now.group);
    ByHeaders way{BlockTables::headers_of(stage, now), batch.which.token};
    const bool by_topk = !batch.which.notes && way.table.has_topk(batch.which.source) != 0;
    if (!(by_topk ? receive_batch(same, now, batch, way)
                  : receive_part<Span>(same, now, stage, work.cut, batch.which, way))) {
      return false;
    }
    item += job.warps();
    batch = BatchIn<Row>(same, now, work, item);
  }
  return true;
}

// Verb of the blocks that receive, and of the one that counts, if this is it. ok: so far, of every thread.
template <class Row>
UCCLEP_FN bool receive_small(const OpState& op_state, const LlDispatchArgs& args, const Job& job, Stage& stage,
                             bool counts, bool ok) {
  const Op op = dispatch_of(args, op_state);
  const PartsByToken work{RowParts::of_size(args.output.wire.batches, 1), args.output.wire.batches + 1, op.ranks(),
                          true};
  BatchIn<Row> first(op, args, work, job.warp());
  if (op_state.abort != 0) ok = false;  // what the operation before left behind may be half done
  if (every_lane(ok)) publish_read(op, op_state);
  if (counts) begin_counting(op, args);
  const HeaderResult ready =
      BlockTables::headers_of(stage, args).receive<true>(op, args.settings, {counts, true}, args.counters.wait_ns, ok);
  if (ready == HeaderResult::lost) return false;
  const LlDispatchArgs& now = reload(args);
  if (counts && warp_id() == 0) {
    place_small(op.with(now.group), memory_of(now), BlockTables::headers_of(stage, now), now.output.zones, now.counters,
                ready == HeaderResult::good);
  }
  if (ready == HeaderResult::differs || !job.mine()) return true;  // then every rank ends without a row
  return expand_small<Row>(op.with(now.group), now, job, stage, work, first);
}

// The whole operation.
template <class Row>
UCCLEP_FN void dispatch_small(const LlDispatchArgs& args) {
  const OpState op_state = load_op_state(args.group, Kind::dispatch);
  Stage stage(args.piece_bytes, false);
  const Jobs jobs = Jobs::of(sending_percent<Row>);
  if (jobs.counts_here()) {
    hide_total(args.counters);
    if (thread_id() == 0) note_dispatched(dispatch_of(args, op_state), args);
  }
  int64_t bad = no_bad_id;
  bool ok = (!jobs.count.mine() || publish_small(args, jobs.count, stage, &bad)) &&
            (!jobs.send.mine() || send_lines<Row>(args, jobs.send, stage, &bad));
  const Op op = dispatch_of(args, op_state);
  report_bad_id(op, bad);
  if (jobs.receive.mine() || jobs.counts_here()) {
    ok = receive_small<Row>(op_state, args, jobs.receive, stage, jobs.counts_here(), ok);
  }
  LinesOnly::Wire::end(op, ok);
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

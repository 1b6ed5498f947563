// SPDX-License-Identifier: Apache-2.0
// What follows each LL operation in a group with masks (masks.hpp), by one block. After an operation in which nobody
// was lost it does nothing. After one that was given up it waits until everything of every other rank has come, which
// needs nothing more of this rank, or masks who does not deliver in time; and says that the operation is to run again,
// which then finds all that it asks for.
//
// | what came of a masked rank (P12) | its rows in the second run                                                  |
// |----------------------------------|-----------------------------------------------------------------------------|
// | everything                       | as ever                                                                     |
// | its header                       | zero rows with weight 0 and topk_idx -1, written here; counters as announced |
// | nothing, or half a header        | none                                                                        |
#pragma once
#include "ucclep/device/ll_combine.hpp"
#include "ucclep/device/low_latency.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace mending {

// Lane verb: who looks up in the headers of a dispatch where rows begin (Inbox::slab_base) finds none of the rank.
UCCLEP_FN void count_nothing(const ucclEpDeviceGroup& group, uint32_t rank, uint64_t seq) {
  const uint64_t header = group.layout.header(group.shape, Kind::dispatch, group.shape.slot_of(seq), rank);
  auto* packets = reinterpret_cast<Packet*>(group.windows[group.rank] + header) + HeaderLayout::counts;
  for (uint32_t i = 0; 2 * i < group.shape.local_experts(); ++i) store_packet(packets + i, 0, 0);
}

// Lane verb. last: the last dispatch with rows of the rank. What it stores here from now on nobody reads.
UCCLEP_FN void mask_rank(const ucclEpDeviceGroup& group, uint32_t rank, uint64_t last) {
  RankMask& mask = group.masks->of(rank);
  for (uint32_t kind = 0; kind < num_kinds; ++kind) {
    store_relaxed<Scope::gpu>(&mask.last[kind], kind == static_cast<uint32_t>(Kind::dispatch) ? last : 0);
  }
  store_relaxed<Scope::system>(evicted_by(group, rank, group.rank), uint64_t{1});
  const uint64_t next = load_relaxed<Scope::gpu>(&group.state->seq[static_cast<uint32_t>(Kind::dispatch)]) + 1;
  if (next != last) count_nothing(group, rank, next);
  count_nothing(group, rank, next + 1);
  store_relaxed<Scope::system>(&group.masks->told[rank], uint32_t{1});
}

UCCLEP_FN uint32_t lost_in(const ucclEpDeviceGroup& group, uint32_t rank) {
  return load_relaxed<Scope::system>(&group.masks->of(rank).lost);
}

// Lane verb: the record of a peer that missed its deadline. Of one that died the host has made it.
UCCLEP_FN void report_lost(const Op& op, uint32_t rank, uint32_t lost) {
  const auto phase = static_cast<Phase>(lost & ~lost_bit);
  if (phase == Phase::none) return;
  ErrorRecord record = record_of(op, ucclEpTimeout, phase, static_cast<int32_t>(rank));
  record.waited_ns = op.group.timeout_ns;
  report_data(op.group.errors, record);
}

// Lane verb.
UCCLEP_FN bool has_come(const Op& op, const Packet* packet) {
  return load_packet(packet).epoch == op.seq;
}

// Warp verb: are all of these packets there.
UCCLEP_FN bool have_come(const Op& op, const Packet* packets, uint32_t count) {
  bool all = true;
  for (uint32_t i = lane_id(); i < count; i += wave_size) all = all && has_come(op, packets + i);
  return every_lane(all);
}

// Lane verb: are lines that carry so many bytes.
UCCLEP_FN bool lines_have_come(const Op& op, const char* lines, uint32_t bytes) {
  const auto* packets = reinterpret_cast<const Packet*>(lines);
  for (uint32_t line = 0; line * line_payload < bytes; ++line) {
    if (!has_come(op, packets + line * line_lanes + line_lanes - 1)) return false;
  }
  return true;
}

// Waits of the mend for one rank: until come() is true of all of it, or the rank is lost. Warp verb; come is one, too.
template <class Come>
UCCLEP_FN bool settle(const Op& op, uint32_t rank, Come&& come) {
  const Wait wait = begin_wait(op.group.timeout_ns, op.group.abort_word);
  for (;;) {
    uint32_t verdict = 0;
    if (lane_id() == 0) {
      const bool over = lost_in(op.group, rank) != 0 || load_relaxed<Scope::system>(wait.abort_word) == 1;
      verdict = over ? 1 : timed_out(wait) ? 2 : 0;
    }
    verdict = broadcast(verdict, 0);
    if (come()) return true;  // asked once more, after the verdict
    if (verdict == 2 && lane_id() == 0) {
      store_relaxed<Scope::system>(&op.group.masks->of(rank).lost, lost_bit | static_cast<uint32_t>(Phase::rows));
    }
    if (verdict != 0) return false;
    pause();
  }
}

// Block verb, after the word to leave was taken back. The host may have told of a death since this block looked whether
// the rank is lost, and then nobody would leave for it: the next operation has to.
UCCLEP_FN void remind_of_deaths(const ucclEpDeviceGroup& group) {
  sync_block();
  fence_acq_rel<Scope::system>();  // who tells of a death says first who has died, and then that all are to leave
  for (uint32_t p = thread_id(); p < group.shape.ranks; p += block_size()) {
    if (!is_masked(group, p) && is_lost(group.masks, p)) leave_all(group.masks);
  }
}

// Block verb of the only block: decide(rank), a warp verb, for every active rank, if the operation is to run again;
// ranks that were lost are masked then, and by it.
template <class Decide>
UCCLEP_FN bool mend(const Op& op, Decide&& decide) {
  const ucclEpDeviceGroup& group = op.group;
  GroupMasks& masks = *group.masks;
  const auto kind = static_cast<uint32_t>(op.kind);
  const bool evicted = !every_thread(!was_evicted(group));
  // op is the operation after the last that has ended.
  bool again = load_relaxed<Scope::gpu>(&masks.begun[kind]) == op.seq && load_relaxed<Scope::system>(&masks.leave) != 1;
  again = every_thread(again);
  const uint64_t dispatched = load_relaxed<Scope::gpu>(&group.state->seq[static_cast<uint32_t>(Kind::dispatch)]);
  const uint64_t next_dispatch = dispatched + (again && op.kind == Kind::dispatch ? 2 : 1);
  if (evicted) {
    for (uint32_t p = thread_id(); p < op.ranks(); p += block_size()) {
      if (is_masked(group, p) || load_relaxed<Scope::system>(evicted_by(group, op.me(), p)) == 0) continue;
      keep_first(masks.evicted, record_of(op, ucclEpRemoteError, Phase::mask, static_cast<int32_t>(p)));
    }
    again = false;
  }
  if (again && load_relaxed<Scope::gpu>(&masks.again[kind]) == op.seq) {  // it was to run again, and was given up
    for (uint32_t p = thread_id(); p < op.ranks(); p += block_size()) {
      if (is_masked(group, p) || !is_lost(group.masks, p)) continue;
      report_fatal(group.errors, group.abort_word, record_of(op, ucclEpTimeout, Phase::rows, static_cast<int32_t>(p)));
    }
    return false;
  }
  for (uint32_t rank = warp_id(); rank < op.ranks() && !evicted; rank += block::warps()) {
    if (is_masked(group, rank)) {
      if (lane_id() == 0) count_nothing(group, rank, next_dispatch);
      continue;
    }
    const uint64_t last = again ? decide(rank) : 0;
    const uint32_t lost = broadcast(lane_id() == 0 ? lost_in(group, rank) : 0, 0);
    if (lost == 0) continue;
    sync_warp();
    if (lane_id() == 0) {
      report_lost(op, rank, lost);
      mask_rank(group, rank, last);
    }
  }
  sync_block();
  if (thread_id() == 0) {
    if (again) store_relaxed<Scope::gpu>(&masks.again[kind], op.seq);
    uint32_t expected = leave_now;
    compare_exchange<Scope::system>(&masks.leave, expected, uint32_t{0});
  }
  if (!evicted) remind_of_deaths(group);
  return again;
}

// Warp verb: a whole header of a dispatch.
UCCLEP_FN bool header_has_come(const Op& op, uint32_t source) {
  const Packet* header = header_packets(op, op.me(), source);
  const uint32_t local = op.group.shape.local_experts();
  if (!have_come(op, header, HeaderLayout::packets(local))) return false;
  const auto form = static_cast<Form>(load_packet(header + HeaderLayout::rows).value >> 32);
  const auto tokens = static_cast<uint32_t>(load_packet(header + HeaderLayout::tokens).value);
  const uint32_t bits = by_token(form) ? HeaderLayout::present_packets(tokens) : 0;
  return have_come(op, header + HeaderLayout::present(local), bits);
}

// Lane verb: the lines of one row.
UCCLEP_FN bool row_has_come(const Op& op, const WireShape& wire, const char* row) {
  const GroupShape& shape = op.group.shape;
  const ll::RowLines lines = ll::RowLines::of(shape, wire);
  bool all = lines_have_come(op, row, MetaLayout::of(shape.top_k).body_bytes());
  for (uint32_t i = 0; i < wire.batches; ++i) {
    all = all && lines_have_come(op, row + lines.batch(i), ll::BatchShape::of(wire, i).bytes());
  }
  if (!ll::scales_apart(wire)) return all;
  return all && lines_have_come(op, row + (lines.meta + lines.tokens) * line_bytes, wire.scale_bytes());
}

// Warp verb, when its header has come: all rows of a dispatch.
UCCLEP_FN bool rows_have_come(const Op& op, const WireShape& wire, uint32_t source) {
  const GroupShape& shape = op.group.shape;
  const Packet* header = header_packets(op, op.me(), source);
  const uint64_t said = load_packet(header + HeaderLayout::rows).value;
  bool all = true;
  if (by_token(static_cast<Form>(said >> 32))) {
    const char* rows = op.mine() + op.group.layout.ll_lines_of(op.slot, source);
    const uint64_t row_bytes = uint64_t{ll::RowLines::of(shape, wire).all()} * line_bytes;
    const auto tokens = static_cast<uint32_t>(load_packet(header + HeaderLayout::tokens).value);
    for (uint32_t token = lane_id(); token < tokens; token += wave_size) {
      const uint64_t bits = load_packet(header + HeaderLayout::present(shape.local_experts()) + token / 64).value;
      if ((bits >> token % 64 & 1) != 0) all = all && row_has_come(op, wire, rows + token * row_bytes);
    }
  } else {
    const MetaLayout meta = MetaLayout::of(shape.top_k);
    const char* metas = op.mine() + op.group.layout.ll_meta_of(op.slot, source);
    for (uint32_t place = lane_id(); place < static_cast<uint32_t>(said); place += wave_size) {
      const char* epoch = metas + uint64_t{place} * meta.bytes + meta.epoch;
      all = all && load_acquire<Scope::system>(reinterpret_cast<const uint64_t*>(epoch)) == op.seq;
    }
  }
  return every_lane(all);
}

// Warp verb: a row of the output with nothing in it.
UCCLEP_FN void blank_row(const DispatchOutput& out, int64_t outer, int64_t inner) {
  char* const row = out.tokens.at(outer, inner);
  for (uint32_t at = 16 * lane_id(); at < out.wire.token_bytes; at += 16 * wave_size) store16(row + at, vec16{});
  const uint32_t size = out.wire.scale_element_bytes;
  for (uint32_t b = lane_id(); b < out.wire.scale_count * size; b += wave_size) {
    out.scales.at(outer, inner, b / size)[b % size] = 0;
  }
  if (lane_id() != 0 || out.zones == Zones::sources) return;  // RANK_MAJOR: ids and weights are those of unused rows
  if (out.topk_weights.data) *reinterpret_cast<float*>(out.topk_weights.at(outer, inner)) = 0.0f;
  if (!out.src_info.data) return;
  View info = out.src_info;
  info.data = info.at(outer, inner);
  store_index(info, 0, 0, -1);
}

// Lane verb: rows of a source for a local expert, as its header says.
UCCLEP_FN uint32_t count_from(const Op& op, uint32_t source, uint32_t expert) {
  if (is_absent(op.group, op.kind, op.seq, source)) return 0;
  const uint64_t pair = load_packet(header_packets(op, op.me(), source) + HeaderLayout::counts + expert / 2).value;
  return static_cast<uint32_t>(expert % 2 != 0 ? pair >> 32 : pair);
}

// Block verb: the rows of a source of which not all came.
UCCLEP_FN void blank_rows(const Op& op, const DispatchOutput& out, uint32_t source) {
  if (out.zones == Zones::sources) {
    const auto rows =
        static_cast<uint32_t>(load_packet(header_packets(op, op.me(), source) + HeaderLayout::rows).value);
    for (uint32_t row = warp_id(); row < rows; row += block::warps()) blank_row(out, source, row);
    return;
  }
  for (uint32_t expert = 0; expert < op.group.shape.local_experts(); ++expert) {
    uint32_t base = 0;
    for (uint32_t below = 0; below < source; ++below) base += count_from(op, below, expert);
    const uint32_t rows = count_from(op, source, expert);
    for (uint32_t row = warp_id(); row < rows; row += block::warps()) blank_row(out, expert, base + row);
  }
}

UCCLEP_FN void after_dispatch(const LlDispatchArgs& args) {
  const Op op =
      next_operation(args.group, Kind::dispatch, Operation::dispatch, Opening::of(args.group, Kind::dispatch));
  const auto decide = [&](uint32_t rank) {
    bool header = false;
    const bool whole = settle(op, rank, [&] {
      header = header_has_come(op, rank);
      return header && rows_have_come(op, args.output.wire, rank);
    });
    if (header && !whole && lane_id() == 0) store_relaxed<Scope::gpu>(&args.group.masks->of(rank).blank, op.seq);
    return header ? op.seq : 0;
  };
  if (!mend(op, decide)) return;
  for (uint32_t source = 0; source < op.ranks(); ++source) {
    if (is_blank(args.group, op.seq, source)) blank_rows(op, args.output, source);
  }
}

// Warp verb: all partial rows of a rank.
UCCLEP_FN bool partials_have_come(const Op& op, const CombineArgs& args, uint32_t rank) {
  const uint32_t rows = memory_of(args).rows_to()[rank], parts = combining::bulk_parts(args.row_bytes);
  const WindowLayout& window = op.group.layout;
  bool all = true;
  if (combining::form_of(op.group.shape, args.row_bytes, rows) == Form::line) {
    const char* lines = op.mine() + window.back_lines_of(op.slot, rank);
    for (uint32_t row = lane_id(); row < rows; row += wave_size) {
      all = all && lines_have_come(op, lines + row * combining::line_row_bytes(args.row_bytes), args.row_bytes);
    }
  } else {
    const auto* words = reinterpret_cast<const uint64_t*>(op.mine() + window.back_epochs_of(op.slot, rank));
    for (uint32_t i = lane_id(); i < rows * parts; i += wave_size) {
      all = all && load_acquire<Scope::system>(words + i) == op.seq;
    }
  }
  if (!every_lane(all) || !args.weights_back) return every_lane(all);
  const auto* weights = reinterpret_cast<const Packet*>(op.mine() + window.ll_weights_of(op.slot, rank));
  return have_come(op, weights, rows * combining::weight_packets(op.group.shape));
}

UCCLEP_FN void after_combine(const CombineArgs& args) {
  const Op op = next_operation(args.group, Kind::combine, Operation::combine, Opening::of(args.group, Kind::combine));
  const auto decide = [&](uint32_t rank) {
    // Rows with weights of this combine leave when everybody is known to take part: the second run sends them.
    settle(op, rank, [&] {
      return have_come(op, header_packets(op, op.me(), rank), HeaderLayout::counts) &&
             (args.late_weights || partials_have_come(op, args, rank));
    });
    return uint64_t{0};
  };
  mend(op, decide);
}

// MaskUpdate.
UCCLEP_FN void update_masks(const MaskArgs& args) {
  for (uint32_t p = thread_id(); p < args.group.shape.ranks; p += block_size()) {
    if ((args.active[p / 64] >> p % 64 & 1) == 0 && !is_masked(args.group, p)) mask_rank(args.group, p, 0);
  }
}

// MaskQuery.
UCCLEP_FN void query_masks(const MaskArgs& args) {
  for (uint32_t p = thread_id(); p < args.group.shape.ranks; p += block_size()) {
    args.out[p] = is_masked(args.group, p) || lost_in(args.group, p) != 0 ? 0 : 1;
  }
}

// MaskClear: all ranks that live begin anew, with numbers that no operation has had.
UCCLEP_FN void clear_masks(const MaskArgs& args) {
  const ucclEpDeviceGroup& group = args.group;
  GroupMasks& masks = *group.masks;
  for (uint32_t p = thread_id(); p < group.shape.ranks; p += block_size()) {
    const bool active = (args.active[p / 64] >> p % 64 & 1) != 0;
    RankMask& mask = masks.of(p);
    for (uint32_t kind = 0; kind < num_kinds; ++kind) {
      store_relaxed<Scope::gpu>(&mask.last[kind], active ? all_operations : 0);
      char* const word =
          group.windows[group.rank] + group.layout.consumed_word(group.shape, static_cast<Kind>(kind), p);
      const uint64_t consumed = kind == static_cast<uint32_t>(Kind::update) ? 0
                                : active                                    ? args.next[kind] - 1
                                                                            : all_operations;
      store_relaxed<Scope::system>(reinterpret_cast<uint64_t*>(word), consumed);
    }
    if (active) store_relaxed<Scope::system>(&mask.lost, uint32_t{0});
    store_relaxed<Scope::system>(&masks.told[p], active ? uint32_t{0} : uint32_t{1});
  }
  if (thread_id() != 0) return;
  for (uint32_t kind = 0; kind < num_kinds; ++kind) {
    store_relaxed<Scope::gpu>(&group.state->seq[kind], args.next[kind] - 1);
    store_relaxed<Scope::gpu>(&masks.again[kind], uint64_t{0});
  }
  uint32_t expected = leave_now;
  compare_exchange<Scope::system>(&masks.leave, expected, uint32_t{0});
  store_release<Scope::system>(&masks.evicted->state, uint32_t{0});
}

}  // namespace mending
}  // namespace UCCLEP_SIMT_NAMESPACE

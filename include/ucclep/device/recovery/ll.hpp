// SPDX-License-Identifier: Apache-2.0
// The repair of LL operations (recovery/repair.hpp).
//
// | what came of a masked rank (P12) | its rows in the second run                                                   |
// |----------------------------------|------------------------------------------------------------------------------|
// | everything                       | as ever                                                                      |
// | its header                       | zero rows with weight 0 and topk_idx -1, written here; counters as announced |
// | nothing, or half a header        | none                                                                         |
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/dispatch.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/ll/lines.hpp"
#include "ucclep/device/ll/partials.hpp"
#include "ucclep/device/ll/row_lines.hpp"
#include "ucclep/device/ll/weight_rows.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/recovery/repair.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/quantised_batch.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace recovery {

// Lane verb: are lines that carry so many bytes.
UCCLEP_FN bool lines_have_come(const Op& op, const char* lines, uint32_t bytes) {
  const auto* packets = reinterpret_cast<const Packet*>(lines);
  for (uint32_t line = 0; line * line_payload < bytes; ++line) {
    if (!has_come(op, packets + line * line_lanes + line_lanes - 1)) return false;
  }
  return true;
}

// Lane verb: a count of a header. Who receives rows refuses a header that counts more than a rank can have.
UCCLEP_FN uint32_t within(const Op& op, uint64_t count) {
  const uint32_t most = op.group.shape.ll_tokens;
  return static_cast<uint32_t>(count) < most ? static_cast<uint32_t>(count) : most;
}

// Warp verb: a whole header of a dispatch.
UCCLEP_FN bool header_has_come(const Op& op, uint32_t source) {
  const Packet* header = header_packets(op, op.me(), source);
  const uint32_t local = op.group.shape.local_experts();
  if (!have_come(op, header, HeaderLayout::packets(local))) return false;
  const auto form = static_cast<Form>(load_packet(header + HeaderLayout::rows).value >> 32);
  const uint32_t tokens = within(op, load_packet(header + HeaderLayout::tokens).value);
  const uint32_t bits = by_token(form) ? HeaderLayout::present_packets(tokens) : 0;
  return have_come(op, header + HeaderLayout::present(local), bits);
}

// Lane verb: the lines of one row.
UCCLEP_FN bool row_has_come(const Op& op, const WireShape& wire, const char* row) {
  const GroupShape& shape = op.group.shape;
  const ll::RowLines lines = ll::RowLines::of(shape, wire);
  bool all = lines_have_come(op, row, MetaLayout::of(shape.top_k).body_bytes());
  for (uint32_t i = 0; i < wire.batches; ++i) {
    const char* const batch = row + lines.batch(i);
    const uint32_t tokens = wire.batch_tokens(i);
    if (wire.batch_scale_bytes == 0) {
      all = all && lines_have_come(op, batch, tokens);
    } else {
      all = all && lines_have_come(op, batch, QuantisedBatch::group_payload(tokens)) &&
            lines_have_come(op, batch + QuantisedBatch::behind_groups, QuantisedBatch::behind_payload(tokens));
    }
  }
  if (!ll::scales_apart(wire)) return all;
  return all && lines_have_come(op, row + (lines.meta + lines.tokens) * line_bytes, wire.scale_bytes());
}

// Lane verb: does a token come, of a header that says it by token.
UCCLEP_FN bool comes(const Op& op, const Packet* header, uint32_t token) {
  const uint64_t bits = load_packet(header + HeaderLayout::present(op.group.shape.local_experts()) + token / 64).value;
  return (bits >> token % 64 & 1) != 0;
}

// Warp verb, when its header has come: all rows of a dispatch.
UCCLEP_FN bool rows_have_come(const Op& op, const WireShape& wire, uint32_t source) {
  const GroupShape& shape = op.group.shape;
  const Packet* header = header_packets(op, op.me(), source);
  const auto form = static_cast<Form>(load_packet(header + HeaderLayout::rows).value >> 32);
  const uint32_t tokens = within(op, load_packet(header + HeaderLayout::tokens).value);
  bool all = true;
  if (form == Form::line) {
    const char* rows = op.mine() + op.group.layout.ll_lines_of(op.slot, source);
    const uint64_t row_bytes = uint64_t{ll::RowLines::of(shape, wire).all()} * line_bytes;
    for (uint32_t token = lane_id(); token < tokens; token += wave_size) {
      if (comes(op, header, token)) all = all && row_has_come(op, wire, rows + token * row_bytes);
    }
  } else {
    const bool placed = form == Form::placed;
    const uint32_t end = placed ? tokens : within(op, load_packet(header + HeaderLayout::rows).value);
    const MetaLayout meta = MetaLayout::of(shape.top_k);
    const char* metas = op.mine() + op.group.layout.ll_meta_of(op.slot, source);
    for (uint32_t index = lane_id(); index < end; index += wave_size) {
      if (placed && !comes(op, header, index)) continue;
      const char* epoch = metas + uint64_t{index} * meta.bytes + meta.epoch;
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
  const uint64_t pair =
      SentBy(op, source).value(header_packets(op, op.me(), source) + HeaderLayout::counts + expert / 2);
  return within(op, expert % 2 != 0 ? pair >> 32 : pair);
}

// Block verb: the rows of a source of which not all came. In slabs they are noted as its own, for user kernels.
UCCLEP_FN void blank_rows(const Op& op, const HandleMemory& memory, const DispatchOutput& out, uint32_t source) {
  if (out.zones == Zones::sources) {
    const Packet* const header = header_packets(op, op.me(), source);
    const uint32_t rows = within(op, SentBy(op, source).value(header + HeaderLayout::rows));
    for (uint32_t row = warp_id(); row < rows; row += block::warps()) blank_row(out, source, row);
    return;
  }
  for (uint32_t expert = 0; expert < op.group.shape.local_experts(); ++expert) {
    uint32_t base = 0;
    for (uint32_t below = 0; below < source; ++below) base += count_from(op, below, expert);
    const uint32_t rows = count_from(op, source, expert);
    for (uint32_t row = warp_id(); row < rows; row += block::warps()) {
      blank_row(out, expert, base + row);
      if (lane_id() == 0) memory.row_homes(expert)[base + row] = source * memory.handle.tokens;
    }
  }
}

UCCLEP_FN void after_dispatch(const LlDispatchArgs& args) {
  const Op op =
      next_operation(args.group, Kind::dispatch, Operation::dispatch, OpState::load(args.group, Kind::dispatch));
  const auto decide = [&](uint32_t rank, const GraceTimer& timer) {
    FromNetwork from;
    const Received received = wait_or_mask(op, rank, timer, [&] {
      if (!op.has_window(rank)) return from.received(op, rank);
      if (!header_has_come(op, rank)) return Received::nothing;
      return rows_have_come(op, args.output.wire, rank) ? Received::all : Received::header;
    });
    if (received == Received::header && lane_id() == 0)
      store_relaxed<Scope::gpu>(&args.group.masks->of(rank).blank, op.seq);
    return received != Received::nothing ? op.seq : 0;
  };
  if (!repair(op, memory_of(args), decide)) return;
  for (uint32_t source = 0; source < op.ranks(); ++source) {
    if (is_blank(args.group, op.seq, source)) blank_rows(op, memory_of(args), args.output, source);
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

// Warp verb: READY of a combine.
UCCLEP_FN bool combine_header_has_come(const Op& op, uint32_t rank) {
  return have_come(op, header_packets(op, op.me(), rank), HeaderLayout::counts);
}

// Warp verb, when READY of a rank has come through its window: late weights. One that means another combine sends
// none.
UCCLEP_FN bool weights_have_come(const Op& op, const CombineArgs& args, uint32_t rank) {
  const HandleMemory memory = memory_of(args);
  const Packet* header = header_packets(op, op.me(), rank);
  const bool means_this = load_packet(header + HeaderLayout::settings_low).value == args.settings.low() &&
                          load_packet(header + HeaderLayout::settings_high).value == args.settings.high();
  if (!means_this || memory.state()->updated != memory.handle.stamp) return true;
  return have_come(op, combining::weights_from<ll::ByWindows>(op, rank),
                   memory.rows_from()[rank] * combining::weight_packets(op.group.shape));
}

// After READY and late weights have left alone.
UCCLEP_FN void after_weights(const CombineArgs& args) {
  const Op op = next_operation(args.group, Kind::combine, Operation::combine, OpState::load(args.group, Kind::combine));
  const auto decide = [&](uint32_t rank, const GraceTimer& timer) {
    FromNetwork from;
    const uint64_t start = clock_ns();
    wait_or_mask(op, rank, timer, [&] {
      if (!op.has_window(rank)) return from.received(op, rank) != Received::nothing ? Received::all : Received::nothing;
      if (!combine_header_has_come(op, rank)) return Received::nothing;
      return weights_have_come(op, args, rank) ? Received::all : Received::header;
    });
    if (args.wait_ns.data && lane_id() == 0) {
      *reinterpret_cast<int64_t*>(args.wait_ns.at(0, 0, rank)) += static_cast<int64_t>(clock_ns() - start);
    }
    return uint64_t{0};
  };
  repair(op, memory_of(args), decide, Unfinished::goes_on);
}

UCCLEP_FN void after_combine(const CombineArgs& args) {
  const Op op = next_operation(args.group, Kind::combine, Operation::combine, OpState::load(args.group, Kind::combine));
  const auto decide = [&](uint32_t rank, const GraceTimer& timer) {
    FromNetwork from;
    wait_or_mask(op, rank, timer, [&] {
      if (!op.has_window(rank)) return from.received(op, rank);
      if (!combine_header_has_come(op, rank)) return Received::nothing;
      return partials_have_come(op, args, rank) ? Received::all : Received::header;
    });
    return uint64_t{0};
  };
  repair(op, memory_of(args), decide);
}

}  // namespace recovery
}  // namespace UCCLEP_SIMT_NAMESPACE

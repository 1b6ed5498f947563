// SPDX-License-Identifier: Apache-2.0
// LL dispatch in LINE form: nothing waits for a count, a fence or a flag. A row of one token lies at the receiver by
// the token's number, so its bytes leave as soon as they are read; what counting finds out (positions in the experts'
// slabs, which tokens come) follows in the row's meta line and in the header, while the rows are on the wire. Blocks
// that send, that receive and that count are apart (ll/jobs.hpp).
//
//   lines of a row:  meta | batches of tokens (and scales of a row that is quantised) | scales of any other row
// Floor: rows to peers * row bytes * line_bytes / line_payload / link bandwidth, one flight of a line, and the launch.
#pragma once
#include <type_traits>

#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/inbox.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/ll/routing.hpp"
#include "ucclep/device/ll/row_lines.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/token_sets.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/rows/quantise.hpp"
#include "ucclep/device/rows/quantised_batch.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/wire.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Neighbouring batches of a row, all in the registers of a warp, or under way there, together. Loops end at `count`:
// what is not there costs no instruction. scaled: batches carry scales, too. wire: of the rows.
template <bool scaled, uint32_t most>
struct LineSpan {
  // Of quantised batches a lane looks at the last line, and the warp reads the batch when that is there; others are
  // looked at whole, again and again. Each is slower the other way (docs/tuning.md).
  static constexpr bool by_ends = scaled && most > 1;

  std::conditional_t<scaled, QuantisedBatch, LineBatch> batch[most];
  WarpUniform begin = 0, count = 0;
  uint32_t last_tokens = 0;  // all batches but the last of a row are whole

  UCCLEP_FN void cover(const WireShape& wire, const BatchRange& range) {
    begin = range.begin;
    count = range.count();
    last_tokens = wire.batch_tokens(range.begin + range.count() - 1);
  }

  UCCLEP_FN uint32_t tokens(const WireShape& wire, uint32_t i) const {
    return i + 1 == count ? last_tokens : wire.batch_bytes;
  }
  static UCCLEP_FN uint32_t lines_before(uint32_t i) { return i * LineBatch::lines * line_bytes; }

  // Warp verb: to a peer's lines; lines_there: of the first batch.
  UCCLEP_FN void send(const WireShape& wire, char* lines_there, uint64_t epoch) const {
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < most; ++i) {
      if (i >= count) continue;
      batch[i].send(lines_there + lines_before(i), tokens(wire, i), epoch);
    }
  }
  // Warp verb: begins to read lines that may not be there yet. lines_here: of the first batch.
  UCCLEP_FN void peek(const WireShape& wire, const char* lines_here) {
    if constexpr (!by_ends) read(wire, lines_here, all());
  }
  // Warp verb, after peek: waits until all are there, and gives ready, a warp verb, the number of each batch that is.
  template <class Ready>
  UCCLEP_FN bool receive(const Op& op, uint32_t peer, const WireShape& wire, const char* lines_here, Ready&& ready) {
    uint32_t missing = all();
    return wait_peer_warp(op, Phase::rows, peer, [&] {
      uint32_t come = missing;
      if constexpr (by_ends) {
        come = ended(op, wire, lines_here, missing);
        read(wire, lines_here, come);
      }
      UCCLEP_UNROLL
      for (uint32_t i = 0; i < most; ++i) {
        const uint32_t bit = 1u << i;
        if ((come & bit) == 0) continue;
        if (batch[i].arrived(tokens(wire, i), op.seq)) {
          batch[i].settle();
          ready(i);
          missing &= ~bit;
        } else if constexpr (!by_ends) {
          read(wire, lines_here, bit);  // again
        }
      }
      return missing == 0;
    });
  }
  // Warp verb: what batch i carries of tokens, to a row.
  UCCLEP_FN void write(const WireShape& wire, char* row, uint32_t i) const {
    batch[i].write(row + (begin + i) * wire.batch_bytes, tokens(wire, i));
  }

 private:
  // Sets of batches are a bit for each.
  UCCLEP_FN uint32_t all() const { return (1u << count) - 1; }
  UCCLEP_FN void read(const WireShape& wire, const char* lines_here, uint32_t which) {
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < most; ++i) {
      if ((which >> i & 1) != 0) batch[i].peek(lines_here + lines_before(i), tokens(wire, i));
    }
  }
  // Those whose last line is there. The others may be late all the same: arrived() looks at all.
  UCCLEP_FN uint32_t ended(const Op& op, const WireShape& wire, const char* lines_here, uint32_t which) const {
    const uint32_t i = lane_id();
    bool there = false;
    if (i < most && (which >> i & 1) != 0) {
      const char* const line = lines_here + lines_before(i) + QuantisedBatch::last_line(tokens(wire, i)) * line_bytes;
      there = load_relaxed<Scope::system>(reinterpret_cast<const uint64_t*>(line + line_payload)) == op.seq;
    }
    return static_cast<uint32_t>(ballot(there));
  }
};

// Batches of a row as they stand. read begins to read them, and may come long before send.
struct ForwardBatches {
  static constexpr bool scaled = false;
  template <uint32_t most>
  struct Raw {};

  template <uint32_t most>
  static UCCLEP_FN void read(const RowSource& source, uint32_t token, LineSpan<scaled, most>& span, Raw<most>&) {
    const char* from = source.tokens.at(0, token) + span.begin * source.wire.batch_bytes;
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < most; ++i) {
      if (i >= span.count) continue;
      span.batch[i].read(from, span.tokens(source.wire, i));
      from += source.wire.batch_bytes;
    }
  }
  template <uint32_t most>
  static UCCLEP_FN void send(const RowSource& source, LineSpan<scaled, most>& span, const Raw<most>&,
                             const RowLines& lines, const Addresses& rows, uint64_t epoch) {
    rows.each([&](char* row) { span.send(source.wire, row + lines.batch(span.begin), epoch); });
  }
};

// Batches of a row that is quantised on its way: each when it is sent, so that the links have the first while the
// others are quantised.
struct QuantiseBatches {
  static constexpr bool scaled = true;
  template <uint32_t most>
  struct Raw {
    QuantisedBatch::Raw batch[most];
  };

  template <uint32_t most>
  static UCCLEP_FN void read(const RowSource& source, uint32_t token, LineSpan<scaled, most>& span, Raw<most>& raw) {
    const char* from = source.tokens.at(0, token) + 2 * uint64_t{span.begin} * line_batch_quantised;
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < most; ++i) {
      if (i >= span.count) continue;
      raw.batch[i].read(from + 2 * line_batch_quantised * i, span.tokens(source.wire, i));
    }
  }
  template <uint32_t most>
  static UCCLEP_FN void send(const RowSource& source, LineSpan<scaled, most>& span, const Raw<most>& raw,
                             const RowLines& lines, const Addresses& rows, uint64_t epoch) {
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < most; ++i) {
      if (i >= span.count) continue;
      span.batch[i].quantise(source, raw.batch[i]);
      const uint32_t elements = span.tokens(source.wire, i);
      rows.each([&](char* row) { span.batch[i].send(row + lines.batch(span.begin + i), elements, epoch); });
    }
  }
};

// Warp verb: the scales of a row that travels as it stands, in lines of their own.
UCCLEP_FN void send_scales(Stage& stage, const RowSource& source, uint32_t token, const RowLines& lines,
                           const Addresses& rows, uint64_t epoch) {
  const uint32_t all = source.wire.row_bytes - source.wire.token_bytes, piece = stage.piece_bytes();
  for (uint32_t begin = 0; begin < all; begin += piece) {
    const uint32_t bytes = all - begin < piece ? all - begin : piece;
    gather_scales(source, token, begin, bytes, stage.slot(0));
    sync_warp();
    const uint64_t at = uint64_t{lines.meta + lines.tokens + begin / line_payload} * line_bytes;
    const uint32_t used = source.wire.scale_bytes() - begin < bytes ? source.wire.scale_bytes() - begin : bytes;
    rows.each([&](char* row) { line_store(row + at, stage.slot(0), round_up(used, 8), epoch); });
    sync_warp();  // all lanes have read the piece
  }
}

// Rows whose scales have lines of their own: these are one part more.
UCCLEP_FN bool scales_apart(const WireShape& wire) {
  return wire.scale_count > 0 && wire.batch_scale_bytes == 0;
}

// Verbs of the warps of the blocks that send: all parts of all tokens. Neighbouring warps have the same part of
// different tokens. The first part is read while the block waits for its slot.
template <class Batches, uint32_t most>
struct LineSender {
  const LlDispatchArgs& args;
  const Job& job;
  Stage& stage;
  int64_t* bad;
  WarpUniform token = 0, part = 0;  // this warp's next
  WarpUniform parts = 0;            // of a row's batches
  WarpUniform part_batches = 1;     // 1 where there is no more room, and the compiler knows it
  LineSpan<Batches::scaled, most> span;
  typename Batches::template Raw<most> raw;
  IdAhead id;  // looked at when the slot is free

  UCCLEP_FN LineSender(const LlDispatchArgs& args, const Job& job, Stage& stage, int64_t* bad)
      : args(args), job(job), stage(stage), bad(bad) {}

  UCCLEP_FN void begin() {
    const LlDispatchArgs& now = reload(args);
    const WireShape& wire = now.source.wire;
    const RowParts cut = RowParts::of<most>(wire.batches, now.routing.tokens, job.warps());
    if constexpr (most > 1) part_batches = cut.of_part;
    parts = cut.count;
    read(job.warp());
  }

  // The part that is so many further on, if there is one: of `tokens` tokens one part, then the next. A row has few
  // parts: a division would take longer.
  UCCLEP_FN void read(uint32_t further) {
    const LlDispatchArgs& now = reload(args);
    const WireShape& wire = now.source.wire;
    const uint32_t tokens = now.routing.tokens, end = all_parts(wire);
    uint32_t to_token = token + further, to_part = part;
    for (; to_token >= tokens && to_part < end; ++to_part) to_token -= tokens;
    token = to_token, part = to_part;
    if (part >= end) return;
    if (part < parts) {
      span.cover(wire, RowParts{wire.batches, part_batches, parts}.range(part));
      Batches::read(now.source, token, span, raw);
    }
    id.read(now, token);
  }

  UCCLEP_FN uint32_t all_parts(const WireShape& wire) const { return parts + (scales_apart(wire) ? 1 : 0); }

  // After begin, when the slot is free.
  UCCLEP_FN void send(const Op& op) {
    send(op, [](const GroupShape&, const Selection& selection) { return selection; });
  }
  // The same to those ranks of a selection that which(shape, selection) leaves.
  template <class Which>
  UCCLEP_FN void send(const Op& op, Which&& which) {
    for (;;) {
      const LlDispatchArgs& now = reload(args);
      const WireShape& wire = now.source.wire;
      if (part >= all_parts(wire)) return;
      const RowLines lines = RowLines::of(now.group.shape, wire);
      const Selection selection = which(now.group.shape, id.selection(now, token, bad));
      const Addresses rows = lines_of_token(op.with(now.group), lines, token, selection);
      if (part >= parts) {
        send_scales(stage, now.source, token, lines, rows, op.seq);
      } else {
        Batches::send(now.source, span, raw, lines, rows, op.seq);
      }
      read(job.warps());
    }
  }
};

// Lane k's id and weight.
struct MetaAhead : IdAhead {
  float weight = 0;

  UCCLEP_FN void read(const LlDispatchArgs& args, uint32_t token) {
    IdAhead::read(args, token);
    const bool given = token < args.routing.tokens && lane_id() < args.routing.top_k && args.topk_weights.data;
    weight = given ? *reinterpret_cast<const float*>(args.topk_weights.at(0, token, lane_id())) : 0.0f;
  }
};

// Warp verb: the meta line of a token's rows. weight: lane k's.
UCCLEP_FN void send_meta(const Op& op, const LlDispatchArgs& args, Stage& stage, uint32_t token,
                         const Selection& selection, float weight) {
  const GroupShape& shape = args.group.shape;
  build_meta(shape, token, selection, selection.expert >= 0 ? weight : 0.0f, stage.scratch());
  const RowLines lines = RowLines::of(shape, args.source.wire);
  const uint32_t bytes = MetaLayout::of(shape.top_k).body_bytes();
  lines_of_token(op, lines, token, selection).each([&](char* row) { line_store(row, stage.scratch(), bytes, op.seq); });
}

// Verb of those blocks: a meta line for every row.
UCCLEP_FN void send_metas(const Op& op, const LlDispatchArgs& args, const Job& job, Stage& stage, LlSets& sets,
                          MetaAhead& ahead, int64_t* bad) {
  const auto put = [&](const Op& same, const LlDispatchArgs& now, uint32_t token, const Selection& selection) {
    send_meta(same, now, stage, token, selection, ahead.weight);
  };
  place_tokens(op, args, job, sets, ahead, bad, put);
}

// Warp verb: the scales of a span, one a lane, to every target.
template <uint32_t most>
UCCLEP_FN void spread_quantised(const DispatchOutput& out, const LineSpan<true, most>& span, const Target& target) {
  constexpr uint32_t groups = QuantisedBatch::groups;  // of a batch
  static_assert(most * groups + sizeof(uint32_t) - 1 <= wave_size);
  const bool floats = out.wire.batch_scale_bytes == groups * sizeof(float);  // else a byte each
  const uint32_t first = span.begin * groups, come = (span.count - 1) * groups + span.last_tokens / quant_group;
  // A row's last word may have bytes of no group: they are zero.
  const uint32_t all = floats ? out.wire.scale_count : out.wire.scale_bytes();
  const bool mine = lane_id() < (span.begin + span.count == out.wire.batches ? all - first : come);
  const uint32_t at = first + lane_id(), size = out.wire.scale_element_bytes;
  uint32_t scale = 0;
  UCCLEP_UNROLL
  for (uint32_t i = 0; i < most; ++i) {
    const uint32_t of_batch = span.batch[i].scale(lane_id() % groups);
    if (lane_id() < come && lane_id() / groups == i) scale = of_batch;
  }
  for (uint64_t left = ballot(target.active); left != 0; left &= left - 1) {
    const uint32_t lane = first_lane(left);
    const int64_t outer = broadcast(target.outer, lane), inner = broadcast(target.inner, lane);
    if (!mine) continue;
    if (floats) {
      *reinterpret_cast<uint32_t*>(out.scales.at(outer, inner, at)) = scale;
    } else {
      out.scales.at(outer, inner, at / size)[at % size] = static_cast<char>(scale);
    }
  }
}

// Warp verb, after peek: a span from its lines to every target, each batch as soon as it is there.
template <bool scaled, uint32_t most>
UCCLEP_FN bool deliver_span(const Op& op, uint32_t source, const DispatchOutput& out, LineSpan<scaled, most>& span,
                            const char* lines, const Target& target) {
  const Addresses rows{target.active, target.active ? out.tokens.at(target.outer, target.inner) : nullptr};
  const auto write = [&](uint32_t i) { rows.each([&](char* row) { span.write(out.wire, row, i); }); };
  if (!span.receive(op, source, out.wire, lines, write)) return false;
  if constexpr (scaled) spread_quantised(out, span, target);
  return true;
}

// Warp verb: bytes [begin, begin + count) of a row's scales, from shared memory to every target. Elements have any
// stride.
UCCLEP_FN void spread_scales(const DispatchOutput& out, const char* smem, uint32_t begin, uint32_t count,
                             const Target& target) {
  const uint32_t size = out.wire.scale_element_bytes;
  for (uint64_t left = ballot(target.active); left != 0; left &= left - 1) {
    const uint32_t lane = first_lane(left);
    const int64_t outer = broadcast(target.outer, lane), inner = broadcast(target.inner, lane);
    UCCLEP_KEEP_LOOP
    for (uint32_t b = lane_id(); b < count; b += wave_size) {
      out.scales.at(outer, inner, (begin + b) / size)[(begin + b) % size] = smem[b];
    }
  }
}

// Warp verb: the scales that have lines of their own, to every target.
UCCLEP_FN bool receive_scales(const Op& op, const DispatchOutput& out, Stage& stage, uint32_t source, const char* lines,
                              const Target& target) {
  const uint32_t all = out.wire.scale_bytes();
  for (uint32_t begin = 0; begin < all; begin += line_batch_bytes) {
    const uint32_t bytes = batch_length(all, begin / line_batch_bytes);
    if (!line_load(op, Phase::rows, source, stage.slot(0), lines + begin / line_payload * line_bytes,
                   round_up(bytes, 8)))
      return false;
    spread_scales(out, stage.slot(0), begin, bytes, target);
    sync_warp();  // the slot is free for the next lines
  }
  return true;
}

// What a warp has of a row: a part of its batches or, behind those, its scales, or nothing. notes: and what is to be
// noted of the row.
struct RowPart {
  WarpUniform source, token, part;
  bool notes;
};

// Warp verb: that, from the row's lines to where it stays. Span: how it comes; Way: how it is found.
template <class Span, class Way>
UCCLEP_FN bool receive_part(const Op& op, const LlDispatchArgs& args, Stage& stage, const RowParts& parts,
                            const RowPart& which, Way& way) {
  const WarpUniform token = which.token, source = which.source, part = which.part;
  const GroupShape& shape = op.group.shape;
  const RowLines lines = RowLines::of(shape, args.output.wire);
  const auto row_of = [&](const Op& same) {
    return same.mine() + same.group.layout.ll_lines_of(same.slot, source) + uint64_t{token} * lines.all() * line_bytes;
  };
  const BatchRange range = part < parts.count ? parts.range(part) : BatchRange{0, 0};
  Span span;
  span.cover(args.output.wire, range);
  span.peek(args.output.wire, row_of(op) + lines.batch(range.begin));  // on its way while the rest is read
  if (!way.find(op, source)) return true;
  char* meta = stage.scratch();
  if (!line_load(op, Phase::rows, source, meta, row_of(op), MetaLayout::of(shape.top_k).body_bytes())) return false;
  const LlDispatchArgs& now = reload(args);
  const Op at_meta = op.with(now.group);
  const Arrival arrival{source, way.place, token};
  ReceivedSelection selection = read_meta(now.group.shape, meta);
  if constexpr (Way::by_arrival) way.arrange(at_meta, now, arrival, selection);
  if constexpr (Way::in_waves) {
    if (!is_of_waves(at_meta, now.waves, selection)) {
      sync_warp();  // all lanes have read the scratch
      return true;
    }
  }
  const uint32_t base = base_of(at_meta, way, now.output, source, selection);
  const Target target = place_row(at_meta, now.output, arrival, selection, base);
  if (which.notes) note_row(at_meta, memory_of(now), now.output, arrival, selection, target);
  sync_warp();  // all lanes have read the scratch
  const LlDispatchArgs& here = reload(args);
  const Op same = op.with(here.group);
  const char* row = row_of(same);
  if (part < parts.count) {
    if (!deliver_span(same, source, here.output, span, row + lines.batch(range.begin), target)) return false;
  } else if (part == parts.count && scales_apart(here.output.wire)) {
    const char* const scales = row + (lines.meta + lines.tokens) * line_bytes;
    if (!receive_scales(same, here.output, stage, source, scales, target)) return false;
  }
  return true;
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

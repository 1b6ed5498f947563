// SPDX-License-Identifier: Apache-2.0
// The sending side of an HT dispatch. A row is read once. Ranks that lent their output, and this rank itself in FLAT,
// get it where it belongs; for the others it is staged once, and each of them pulls it. Its meta goes to every rank
// that gets the row, into that rank's landing, in order of place: to those who pull with an epoch that says that the
// row is staged, to the others as lines, which arrive by themselves.
//
// clang-format off
// | who releases                                   | who acquires                    | what is ordered              |
// |------------------------------------------------|---------------------------------|------------------------------|
// | publish_run: publish of a meta line's epoch,   | wait_word, then                 | meta body and, if it is      |
// |   after bulk_wait_written                      |   acquire_then_bulk             |   staged, the row            |
// clang-format on
#pragma once
#include "ucclep/device/protocol/halves.hpp"
#include "ucclep/device/ht/args.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// Tokens whose metas are announced together: waiting for their arrival costs as much as a row.
constexpr uint32_t run_tokens = 4;

// Does a rank get its rows by pulling them.
UCCLEP_FN bool pulls(const Lease& lease) {
  return !lease.given;
}

// Lane verb: one element of scales, 1 to 8 bytes; most have 4, and over a link a store of 4 is one store.
UCCLEP_FN void copy_element(char* to, const char* from, uint32_t bytes) {
  if (bytes == 4) {
    *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<const uint32_t*>(from);
  } else {
    for (uint32_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

// Where one row goes, piece by piece: a RowSink that knows two kinds of destinations.
struct RowTargets {
  const WireShape& wire;
  char* staging;  // of the row, or NULL
  bool direct;    // this lane has a destination of its own:
  char* tokens;
  char* scales;
  int64_t scale_step;

  // Scales that lie in a row and fill 16 bytes each time are copied like tokens.
  UCCLEP_FN bool bulk_scales() const {
    const uint64_t unaligned = reinterpret_cast<uint64_t>(scales) | wire.scale_bytes();
    return scale_step == int64_t{wire.scale_element_bytes} && unaligned % 16 == 0;
  }

  // at: in the row on the wire, tokens first.
  UCCLEP_FN void put(const char* smem, uint64_t at, uint32_t bytes) const {
    if (staging) bulk_store(lane_id() == 0, staging + at, smem, bytes);
    if (at < wire.token_bytes) {
      bulk_store(direct, tokens + at, smem, bytes);
      return;
    }
    const uint64_t offset = at - wire.token_bytes;
    const bool whole = direct && bulk_scales();
    bulk_store(whole, scales + offset, smem, bytes);
    for (uint64_t left = ballot(direct && !whole); left != 0; left &= left - 1) {
      const uint32_t lane = first_lane(left);
      char* to = reinterpret_cast<char*>(broadcast(reinterpret_cast<uint64_t>(scales), lane));
      const int64_t step = broadcast(scale_step, lane);
      const uint32_t size = wire.scale_element_bytes, first = static_cast<uint32_t>(offset) / size;
      const uint32_t end = first + bytes / size < wire.scale_count ? first + bytes / size : wire.scale_count;
      for (uint32_t e = first + lane_id(); e < end; e += wave_size)
        copy_element(to + e * step, smem + (e - first) * size, size);
    }
    sync_warp();  // all lanes have read the piece
  }
};

UCCLEP_FN char* meta_at(const Op& op, uint32_t receiver, uint32_t source, uint32_t place) {
  return op.window(receiver) + op.group.layout.ht_meta_of(op.slot, source) +
         uint64_t{place} * MetaLayout::of(op.group.shape.top_k).bytes;
}

// Warp verb: the meta line of a token to the ranks of the lanes with `to`, but for the epoch.
UCCLEP_FN void send_meta(const Op& op, const View& topk_weights, Stage& stage, uint32_t token,
                         const Selection& selection, bool to) {
  const GroupShape& shape = op.group.shape;
  build_meta(shape, token, selection, weight_of(shape, topk_weights, token, selection), stage.scratch());
  char* meta = to ? meta_at(op, selection.rank, op.me(), selection.place) : stage.scratch();
  bulk_store(to, meta, stage.scratch(), MetaLayout::of(shape.top_k).body_bytes());
}

// Warp verb: says of the metas of tokens [begin, end) that they have arrived, at the ranks that pull.
template <class Wire>
UCCLEP_FN void publish_run(const Op& op, const HandleMemory& memory, const Lease* leases, uint32_t begin,
                           uint32_t end) {
  bulk_wait_written();
  const uint32_t top_k = op.group.shape.top_k;
  for (uint32_t i = begin * top_k + lane_id(); i < end * top_k; i += wave_size) {
    const uint32_t place = memory.at<uint32_t>(memory.handle.offsets.places)[i];
    if (place == no_place) continue;
    const auto expert = static_cast<uint32_t>(memory.at<int32_t>(memory.handle.offsets.topk)[i]);
    const uint32_t rank = op.group.shape.rank_of(expert);
    if (!Wire::reaches(op, rank) || !pulls(leases[rank])) continue;
    char* meta = meta_at(op, rank, op.me(), place);
    publish(reinterpret_cast<uint64_t*>(meta + MetaLayout::of(top_k).epoch), op.seq);
  }
  sync_warp();
}

// Warp verb: ids, weights and source of an own row that stays here (FLAT).
UCCLEP_FN void keep_own(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, uint32_t token,
                        const Selection& selection, uint64_t mine) {
  ReceivedSelection s{selection.expert, 0.0f, selection.position};
  if (s.expert >= 0 && args.topk_weights.data) {
    s.weight = *reinterpret_cast<const float*>(args.topk_weights.at(0, token, lane_id()));
  }
  const uint32_t place = broadcast(selection.place, first_lane(mine));
  const Arrival arrival{op.me(), place, token};
  const Target target = place_row(op, args.output, arrival, s, memory.recv_base()[op.me()]);
  note_placed(op, memory, args.output, arrival, s, target);
}

// Warp verb: one own row to all that want it. A first half writes nothing of the output: the own rows are staged, too.
template <class Row, class Wire, Part part>
UCCLEP_FN void send_row(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                        const Lease* leases, uint32_t token) {
  const Selection selection = selection_of(memory, token);
  const Lease& lease = leases[selection.rank];
  const bool sends = selection.sends() && Wire::reaches(op, selection.rank);
  const bool staged = ballot(sends && pulls(lease)) != 0;
  const bool direct = sends && !pulls(lease) && lease.holds(selection.place);
  typename Wire::Away away(op, memory, args, token, selection);
  if (!staged && ballot(direct) == 0 && !away.any()) return;  // nobody wants it
  Row::fetch(stage, args.source, token);
  if (staged || away.any()) {
    away.write_places(op.group.shape, stage.scratch(), selection);
    send_meta(op, args.topk_weights, stage, token, selection, sends && pulls(lease));
    away.send_head(op.group.shape, stage.scratch());
  }
  if (part == Part::whole && args.output.zones == Zones::sources) {
    const uint64_t mine = ballot(sends && selection.rank == op.me());
    if (mine != 0) keep_own(op, memory, args, token, selection, mine);
  }
  char* staging = op.mine() + op.group.layout.ht_rows_of(op.slot) + uint64_t{token} * args.source.wire.row_bytes;
  RowTargets targets{args.source.wire, staged ? staging : nullptr, direct, stage.scratch(), stage.scratch(), 0};
  if (direct) {
    targets.tokens = lease.token(selection.place);
    targets.scales = lease.scale(selection.place);
    targets.scale_step = lease.scales.step;
  }
  Row::send(stage, args.source, token, away.and_to(targets, stage.scratch()));
}

// Verb of the sending warps of the grid.
template <class Row, class Wire, Part part>
UCCLEP_FN bool send_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Lease* leases, bool pulled,
                         const Worker& worker) {
  const Parked tokens = memory_of(args).state()->tokens;
  for (Parked run = worker.index; run * run_tokens < tokens; run += worker.workers) {
    const uint32_t begin = run * run_tokens, all = tokens, end = all - begin < run_tokens ? all : begin + run_tokens;
    for (uint32_t token = begin; token < end; ++token) {
      const HtDispatchArgs& now = read_again(args);
      send_row<Row, Wire, part>(op.with(now.group), memory_of(now), now, stage, leases, token);
    }
    if (!pulled) continue;
    const HtDispatchArgs& now = read_again(args);
    publish_run<Wire>(op.with(now.group), memory_of(now), leases, begin, end);
    if (!Wire::push_run(op, read_again(args), begin, end)) return false;
  }
  bulk_wait_written();
  return true;
}

// Where the lines of a meta land.
UCCLEP_FN char* meta_lines_at(const Op& op, uint32_t receiver, uint32_t source, uint32_t place) {
  return op.window(receiver) + op.group.layout.ht_lines_of(op.slot, source) + place * meta_line_bytes(op.group.shape);
}

// Warp verb: the metas of up to run_tokens tokens to ranks that do not pull. What they are made of is read at once.
UCCLEP_FN void send_meta_lines(const Op& op, const HtDispatchArgs& args, const Stage& stage, const Lease* leases,
                               uint32_t begin, uint32_t tokens) {
  const GroupShape& shape = op.group.shape;
  Selection selections[run_tokens];
  float weights[run_tokens];
  UCCLEP_UNROLL
  for (uint32_t i = 0; i < run_tokens; ++i) {
    const uint32_t token = begin + i < tokens ? begin + i : begin;
    selections[i] = selection_of(memory_of(args), token);
    weights[i] = weight_of(shape, args.topk_weights, token, selections[i]);
  }
  UCCLEP_UNROLL
  for (uint32_t i = 0; i < run_tokens; ++i) {
    const Selection& selection = selections[i];
    const bool to =
        begin + i < tokens && selection.sends() && selection.rank != op.me() && !pulls(leases[selection.rank]);
    if (ballot(to) == 0) continue;
    build_meta(shape, begin + i, selection, weights[i], stage.scratch());
    char* lines = to ? meta_lines_at(op, selection.rank, op.me(), selection.place) : nullptr;
    for (uint64_t left = ballot(to); left != 0; left &= left - 1) {
      auto* there = reinterpret_cast<char*>(broadcast(reinterpret_cast<uint64_t>(lines), first_lane(left)));
      line_store(there, stage.scratch(), MetaLayout::of(shape.top_k).body_bytes(), op.seq);
    }
    sync_warp();  // all lanes have read the scratch
  }
}

// Verb of the clerks of the grid. They need not wait for rows.
UCCLEP_FN void send_metas(const HtDispatchArgs& args, const Op& op, const Stage& stage, const Lease* leases,
                          const Worker& worker) {
  const Parked tokens = memory_of(args).state()->tokens;
  for (Parked run = worker.index; run * run_tokens < tokens; run += worker.workers) {
    const HtDispatchArgs& now = read_again(args);
    send_meta_lines(op.with(now.group), now, stage, leases, run * run_tokens, tokens);
  }
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

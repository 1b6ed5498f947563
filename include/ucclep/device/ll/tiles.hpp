// SPDX-License-Identifier: Apache-2.0
// The receive phase of an LL dispatch of tiles (rows/tiles.hpp).
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/bulk.hpp"
#include "ucclep/device/ll/dispatch.hpp"
#include "ucclep/device/ll/inbox.hpp"
#include "ucclep/device/ll/lines.hpp"
#include "ucclep/device/ll/tile_rows.hpp"
#include "ucclep/device/protocol/exchange.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/phases.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/rows/quantised_batch.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/tiles.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// A way to find a row (as ByTables) whose places its arrival decides. In a backward pass they are those of the forward
// dispatch before.
struct ByArrival {
  static constexpr bool in_waves = false, by_arrival = true;
  uint32_t token, place;
  uint32_t expert = 0, slot = nowhere;  // of lane k's copy
  float weight = 0;
  bool given = false;

  UCCLEP_FN ByArrival(uint32_t token, uint32_t place) : token(token), place(place) {}
  UCCLEP_FN bool find(const Op&, uint32_t) const { return true; }
  UCCLEP_FN uint32_t slab_base(const Op&, uint32_t, uint32_t) const { return 0; }

  // Warp verb, of each part of a row: the place of lane k's copy becomes its position.
  UCCLEP_FN void arrange(const Op& op, const LlDispatchArgs& args, const Arrival& arrival,
                         ReceivedSelection& selection) {
    token = arrival.token;
    if (!given && is_mine(op, selection, expert)) {
      const HandleMemory memory = memory_of(args);
      const bool backward = args.settings.pass == UCCLEP_PASS_BACKWARD;
      slot = take_place(Tiles{memory}, backward, arrival.source, place, expert);
      weight = selection.weight;
    }
    if (!given) sync_warp();  // all lanes have read the entries, before they are written again
    given = true;
    selection.position = slot;
  }

  // Warp verb, when the copies are written.
  UCCLEP_FN void note(const Op& op, const LlDispatchArgs& args, uint32_t source) const {
    const HandleMemory memory = memory_of(args);
    if (lane_id() == 0) note_arrived(memory, source, place, op.seq);
    if (slot == nowhere) return;
    note_copy(Tiles{memory}, args.output, args.settings.weights_at_dispatch != 0,
              {source, token, expert, slot, weight});
  }
};

// What a lane looks for, in the form of the source. `next` counts as rows lie, by token or by place.
struct LaneRowsOfForm : LaneRows {
  Form form = Form::bulk;
  uint32_t seen = 0;   // of the next row in LINE form, parts that are here
  bool known = false;  // the header has been read

  // Lane verb: is there something for the warp to do, the header to be read or a row to be taken?
  UCCLEP_FN bool look(const Op& op, const LlDispatchArgs& args) {
    if (ended) return false;
    const Packet* const header = header_packets(op, op.me(), source);
    if (!known) {
      for (uint32_t i = 0; i < HeaderLayout::counts; ++i) {
        if (load_packet(header + i).epoch != op.seq) return false;
      }
      return true;
    }
    while (next < end && by_token(form)) {
      const Packet bits = load_packet(present_packet(op, source, next / 64));
      if (bits.epoch != op.seq) return false;
      if ((bits.value >> next % 64 & 1) != 0) break;
      next += step;
    }
    ended = next >= end;
    return !ended && arrived(op, args);
  }
  UCCLEP_FN void take_header(const HeaderFacts& facts) {
    known = true;
    form = facts.form;
    end = by_token(form) ? facts.tokens : facts.rows;
  }
  UCCLEP_FN void go_on() {
    next += step;
    seen = 0;
  }

 private:
  // Lane verb: is all of the row here?
  UCCLEP_FN bool arrived(const Op& op, const LlDispatchArgs& args) {
    return row_arrived(op, args.output.wire, source, form, next, seen);
  }
};

// Warp verb: the place of a row that lies by token. False: its header did not come whole.
UCCLEP_FN bool place_of_token(const Op& op, uint32_t source, uint32_t token, uint32_t& place) {
  bool ok = true;
  uint32_t below = 0;
  for (uint32_t i = lane_id(); i <= token / 64; i += wave_size) {
    uint64_t bits = 0;
    ok = ok && wait_packet(op, Phase::header, source, present_packet(op, source, i), bits);
    below += static_cast<uint32_t>(count_lanes(i < token / 64 ? bits : bits & ((uint64_t{1} << token % 64) - 1)));
  }
  place = reduce_add(below);
  return every_lane(ok);
}

// Warp verb: a row that is here, to the places that it gets. index: as it lies.
template <class Row, class Forms>
UCCLEP_FN bool take_row(const Op& op, const LlDispatchArgs& args, Stage& stage, Form form, const WarpUniform& source,
                        const WarpUniform& index) {
  uint32_t at = index;
  if (by_token(form) && !place_of_token(op, source, index, at)) return false;
  const WarpUniform place = at;
  ByArrival way(index, place);
  if (form == Form::line) {
    using Span = LineSpan<Row::Lines::scaled, max_batches<Row, Forms>>;
    const RowParts cut = RowParts::of_size(args.output.wire.batches, max_batches<Row, Forms>);
    const WarpUniform parts = cut.count + (scales_apart(args.output.wire) ? 1 : 0);
    for (WarpUniform part = 0; part < parts; part += 1) {
      const LlDispatchArgs& now = reload(args);
      if (!receive_part<Span>(op.with(now.group), now, stage, cut, {source, index, part, part == 0}, way)) return false;
    }
    sync_warp();
  } else {
    if (!expand_bulk<typename Forms::Wire>(op, args, stage, source, place, index, way)) return false;
    bulk_wait_written();
  }
  way.note(op, reload(args), source);
  return true;
}

// Verb of the warps of the grid: all rows, as they arrive. Lanes share out the sources, and those of a source its rows.
template <class Row, class Forms>
class TileReceiver {
 public:
  UCCLEP_FN TileReceiver(const LlDispatchArgs& args, Stage& stage) : args_(args), stage_(stage), start_(clock_ns()) {}

  UCCLEP_FN bool receive(const Op& op) {
    const WarpShare warps{grid_warp(), grid_warps()};
    const WarpUniform sets = LaneRows::sets(op);
    for (WarpUniform set = grid_warp() % sets; set < sets; set += grid_warps()) {
      mine_ = {LaneRows::of(op, warps, set)};
      const auto look = [&](const Op& same, const LlDispatchArgs& now) { return mine_.look(same, now); };
      const auto take_some = [&](uint64_t& here) { return take(op, first_lane(here), here); };
      if (!take_as_they_come(args_, op, Phase::rows, mine_, look, take_some)) return false;
    }
    return true;
  }

 private:
  // Warp verb: what a lane has found; of a header for all lanes of its source.
  UCCLEP_FN bool take(const Op& op, uint32_t lane, uint64_t& here) {
    const LlDispatchArgs& now = reload(args_);
    const Op same = op.with(now.group);
    const WarpUniform source = broadcast(mine_.source, lane);
    if (broadcast(mine_.known ? 1u : 0u, lane) == 0) {
      here &= ~ballot(mine_.source == source);
      return take_header(same, now, source);
    }
    here &= here - 1;
    const WarpUniform index = broadcast(mine_.next, lane);
    const auto form = static_cast<Form>(broadcast(static_cast<uint32_t>(mine_.form), lane));
    if (!take_row<Row, Forms>(same, now, stage_, form, source, index)) return false;
    if (lane_id() == lane) mine_.go_on();
    return true;
  }

  UCCLEP_FN bool take_header(const Op& op, const LlDispatchArgs& args, uint32_t source) {
    HeaderFacts facts{};
    const HeaderResult result = receive_header(op, source, args.settings, facts, nullptr);
    if (result == HeaderResult::lost) return false;
    if (mine_.source == source && !mine_.ended) {
      if (result == HeaderResult::good) mine_.take_header(facts);
      mine_.ended = result != HeaderResult::good;  // of other settings: none of its rows, and tiles stay open
    }
    const bool counts = mine_.leads && mine_.source == source;  // its warp adds up the counts of the source
    if (result != HeaderResult::good || ballot(counts) == 0) return true;
    const View& wait_ns = args.counters.wait_ns;
    if (counts && wait_ns.data) {
      *reinterpret_cast<int64_t*>(wait_ns.at(0, 0, source)) += static_cast<int64_t>(clock_ns() - start_);
    }
    return expect_rows(op, memory_of(args), source, facts.rows);
  }

  const LlDispatchArgs& args_;
  Stage& stage_;
  const uint64_t start_;
  LaneRowsOfForm mine_{};
};

// Verb of one block, after its rows: the counters of the caller, and what combine needs. How long headers were waited
// for has been counted as they came.
template <class Wire>
UCCLEP_FN bool count_tiles(const Op& op, const LlDispatchArgs& args, const Stage& stage) {
  if (thread_id() == 0) mark(op, Mark::headers_in);
  return count_by_tables<Wire>(op, args, stage, View{});
}

// The receive phase, or a part of it (tile_launch).
template <class Row, class Forms>
UCCLEP_FN void complete_tiles(const LlDispatchArgs& args) {
  using Wire = typename Forms::Wire;
  Stage stage(args.piece_bytes);
  const ReceivePhase phase = ReceivePhase::of(args, Kind::dispatch, Operation::dispatch);
  if (!phase.any) return;
  bool ok = phase.may_read();
  if (args.waves.begins()) {
    const HandleMemory memory = memory_of(args);
    if (thread_id() == 0) fetch_add_relaxed<Scope::gpu>(&Tiles{memory}.state()->resident, 1u);
    ok = ok && every_thread(TileReceiver<Row, Forms>(args, stage).receive(phase.op));
    ok = ok && check_totals(phase.op, Tiles{memory});
    if (ok && block_id() == 0) ok = count_tiles<Wire>(phase.op, args, stage);
    if (!ok) give_up_tiles(Tiles{memory});
  }
  const LlDispatchArgs& now = reload(args);
  const ReceivePhase later = ReceivePhase::of(now, Kind::dispatch, Operation::dispatch);
  if (now.waves.ends()) {
    later.template end<Wire>(ok);
  } else if (!ok) {
    bulk_wait_written();
  }
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

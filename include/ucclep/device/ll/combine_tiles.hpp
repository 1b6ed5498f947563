// SPDX-License-Identifier: Apache-2.0
// The send phase of an LL combine beside a dispatch of tiles that is pending (rows/tiles.hpp). A partial row leaves
// when the tiles of all its copies are done, and holds up no other: each lane has some parts of partial rows for one
// home to look after, and its warp sends those that may leave.
//
// It runs beside other operations of its group, as the receive phase of that dispatch does, so it touches no word of
// the group. A launch before it takes the number of the operation, in the order of the calls.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/combine.hpp"
#include "ucclep/device/ll/partials.hpp"
#include "ucclep/device/ll/weight_rows.hpp"
#include "ucclep/device/protocol/exchange.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/phases.hpp"
#include "ucclep/device/protocol/record.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/tiles.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace combining {

// Into which parts the partial rows for a home are cut.
struct PartialCut {
  Form form;
  uint32_t batches, parts;  // of a part, in LINE form; of a row

  // Warps of the grid share out what there is for all ranks, as far as one rank's rows say how much that is.
  template <class Forms>
  static UCCLEP_FN PartialCut of(const CombineArgs& args, uint32_t rows) {
    const GroupShape& shape = args.group.shape;
    if (form_of(shape, args.row_bytes, rows) == Form::bulk) return {Form::bulk, 0, bulk_parts(args.row_bytes)};
    const RowParts cut =
        RowParts::of<max_batches<Forms>>(line_batches(args.row_bytes), rows * shape.ranks, grid_warps());
    return {Form::line, cut.of_part, cut.count};
  }
};

// What a lane looks after: parts of the partial rows for one home, each so many behind the other. It looks at `window`
// of them in turn, and at later ones when these have left.
struct LaneParts {
  static constexpr uint32_t window = 64;
  uint32_t home = 0, next = 0, step = 1, rows = 0, parts = 0, end = 0;
  uint64_t left = 0;                 // of next, next + step, ..: those that have not left
  uint32_t at = 0;                   // the one of these that is looked at
  bool ended = true, known = false;  // known: the header of the home has been read

  static UCCLEP_FN LaneParts of(const LaneRows& rows) {
    LaneParts mine;
    mine.home = rows.source;
    mine.next = rows.next;
    mine.step = rows.step;
    mine.ended = rows.ended;
    return mine;
  }
  // Lane verb: may the next of them leave?
  template <class Forms>
  UCCLEP_FN bool look(const CombineArgs& args, const Tiles& tiles) {
    if (ended) return false;
    if (known) {
      at = following();
    } else {
      rows = load_acquire<Scope::gpu>(tiles.from() + home);
      if (rows == not_closed) return false;
      known = true;
      parts = PartialCut::of<Forms>(args, rows).parts;
      end = rows * parts;
      open_window();
    }
    return !ended && !awaited(args, tiles).any();
  }
  UCCLEP_FN uint32_t item() const { return next + at * step; }
  // Lane verb: what that one waits for.
  UCCLEP_FN AwaitedTile awaited(const CombineArgs& args, const Tiles& tiles) const {
    if (!known) return {AwaitedTile::not_arrived, 0};
    return awaited_tile(tiles, args.done_target, home, item() / parts);
  }
  UCCLEP_FN void sent() {
    left &= ~(uint64_t{1} << at);
    if (left != 0) return;
    next += window * step;
    open_window();
  }

 private:
  UCCLEP_FN void open_window() {
    ended = next >= end;
    const uint32_t more = ended ? 0 : (end - next - 1) / step + 1;
    left = more < window ? (uint64_t{1} << more) - 1 : ~uint64_t{0};
    at = 0;
  }
  // Of those that have not left the one behind, or the first.
  UCCLEP_FN uint32_t following() const {
    const uint64_t behind = left & ~((uint64_t{2} << at) - 1);
    return first_lane(behind != 0 ? behind : left);
  }
};

// Lane verb: consumers have not done a tile in time, or its rows have not come.
UCCLEP_COLD_FN void report_tile(DeviceErrors* errors, uint32_t* abort_word, Waiter waiter, AwaitedTile tile,
                                uint32_t target) {
  ErrorRecord record{};
  record.code = ucclEpTimeout;
  record.operation = waiter.name;
  record.phase = waiter.phase;
  record.peer = -1;
  record.epoch = number_of(waiter.state, Kind::combine, waiter.slot);
  record.waited_ns = clock_ns() - waiter.start_ns;
  record.expected = tile.tile < AwaitedTile::not_arrived ? target : 0;
  record.got = uint64_t{tile.tile} << 32 | tile.done;
  report_fatal(errors, abort_word, record);
}

// Verb of the warps of the grid: all partial rows, as they may leave.
template <class Element, class Forms>
class TileSender {
 public:
  UCCLEP_FN TileSender(const CombineArgs& args, Stage& stage) : args_(args), stage_(stage) {}

  UCCLEP_FN bool send(const Op& op) {
    const WarpShare warps{grid_warp(), grid_warps()};
    const WarpUniform sets = LaneRows::sets(op);
    for (WarpUniform set = grid_warp() % sets; set < sets; set += grid_warps()) {
      mine_ = LaneParts::of(LaneRows::of(op, warps, set));
      if (!send_set(op)) return false;
    }
    return true;
  }

 private:
  // Warp verb: those for the lanes' homes. Of a dispatch that has failed nothing is sent: its own record says why.
  UCCLEP_FN bool send_set(const Op& op) {
    for (;;) {
      uint64_t found = 0;
      bool goes_on = true;
      if (!find(op, found, goes_on)) return false;
      if (!goes_on) return true;
      sync_warp();  // what these lanes have acquired is ordered before what their warp reads
      for (; found != 0; found &= found - 1) {
        if (!send_part(op, first_lane(found))) return false;
      }
    }
  }

  // Warp verb: waits until lanes have found what may leave, or the dispatch has gone on. While its rows come, their own
  // wait ends it all: so this one is longer then, and begins again when all are here.
  UCCLEP_FN bool find(const Op& op, uint64_t& found, bool& goes_on) {
    const CombineArgs& now = reload(args_);
    const Op same = op.with(now.group);
    const HandleMemory memory = memory_of(now);
    const Tiles tiles{memory};
    const uint32_t* const received = &tiles.state()->received;
    const uint32_t before = broadcast(load_relaxed<Scope::gpu>(received), 0);  // it may change between lanes
    const auto begin = [&] {
      return before == 0 ? begin_wait_for_blocks(same, now.group.abort_word)
                         : begin_wait(now.group.timeout_ns, now.group.abort_word);
    };
    const auto here = [&] {
      found = ballot(mine_.look<Forms>(now, tiles));
      goes_on = before != tiles_failed && ballot(!mine_.ended) != 0;
      return found != 0 || !goes_on || ballot(load_relaxed<Scope::gpu>(received) != before) != 0;
    };
    return wait_warp(begin, here, [&](const Wait& wait) {
      if (lane_id() != first_lane(ballot(!mine_.ended))) return;
      report_tile(now.group.errors, now.group.abort_word, Waiter::of(same, Phase::tiles, 0, wait.start_ns),
                  mine_.awaited(now, tiles), now.done_target);
    });
  }

  // Warp verb: what a lane has found.
  UCCLEP_FN bool send_part(const Op& op, uint32_t lane) {
    const CombineArgs& now = reload(args_);
    const Op same = op.with(now.group);
    const HandleMemory memory = memory_of(now);
    const WarpUniform home = broadcast(mine_.home, lane), item = broadcast(mine_.item(), lane);
    const PartialCut cut = PartialCut::of<Forms>(now, broadcast(mine_.rows, lane));
    const WarpUniform place = item / cut.parts, part = item % cut.parts;
    if (lane_id() == lane) mine_.sent();
    if (now.weights_back && part == 0) {
      auto* to = reinterpret_cast<Packet*>(same.window(home) + now.group.layout.ll_weights_of(same.slot, same.me()));
      store_weight_row(same, memory, now, home, place, to);
    }
    if (cut.form == Form::bulk) return send_bulk_part<Element>(same, memory, now, stage_, home, place, part);
    const RowParts row = RowParts::of_size(line_batches(now.row_bytes), cut.batches);
    return send_line_part<Element, Forms>(same, memory, now, stage_, {home, place}, row.range(part));
  }

  const CombineArgs& args_;
  Stage& stage_;
  LaneParts mine_{};
};

// The send phase, or the launch before it that takes its number (tile_launch).
template <class Element, class Forms>
UCCLEP_FN void send_tiles(const CombineArgs& args) {
  if (args.waves.end == 0) return take_number(args, Kind::combine, Operation::combine);
  Stage stage(args.piece_bytes, Forms::bulk);
  const HandleMemory memory = memory_of(args);
  if (thread_id() == 0) fetch_add_relaxed<Scope::gpu>(&Tiles{memory}.state()->sending, 1u);
  const Op op = ReceivePhase::of(args, Kind::combine, Operation::combine).op;
  const OpState op_state = OpState::load(args.group, Kind::combine);
  bool ok = slots_free<Forms::bulk>(op, op_state, typename Forms::Wire::Consumed{}, false);
  if (ok) {
    ready_out(op, args.settings, grid_warp(), grid_warps());
    ok = TileSender<Element, Forms>(args, stage).send(op);
  }
  if (!ok) bulk_wait_written();  // a warp that gave up may have stores under way
}

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE

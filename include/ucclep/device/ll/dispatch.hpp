// SPDX-License-Identifier: Apache-2.0
// LL dispatch: for decode, where latency counts. A row leaves as soon as it is read, once per destination rank, into
// the landing slot of its source, so nothing is negotiated; the receiver expands it to its experts.
//
// Steps of one rank, without a barrier between its blocks (who does what: ll/jobs.hpp):
//   slots free -> headers, metas and rows out -> headers in (-> relay) -> expand what has arrived -> end
//
// | a row travels as         | its data              | made visible by                                          |
// |--------------------------|-----------------------|----------------------------------------------------------|
// | LINE (ll/lines.hpp)      | lines, epochs inside  | each line by itself                                      |
// | BULK (ll/bulk.hpp)       | bulk stores, then meta| bulk_wait_written, publish of the meta's epoch (system   |
// |                          |                       |   release) -> load_acquire, acquire_then_bulk            |
#pragma once
#include <type_traits>

#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/masks.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/bulk.hpp"
#include "ucclep/device/ll/headers.hpp"
#include "ucclep/device/ll/inbox.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/ll/lines.hpp"
#include "ucclep/device/ll/routing.hpp"
#include "ucclep/device/ll/tables.hpp"
#include "ucclep/device/protocol/exchange.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/masks.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/phases.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/protocol/turns.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/quantise.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/tiles.hpp"
#include "ucclep/device/rows/wire.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// How rows become what travels.
struct Forward {
  using Lines = ForwardBatches;
  using Bulk = ForwardRow;
};
struct Quantise {
  using Lines = QuantiseBatches;
  using Bulk = QuantiseRow;
};

// Verb of the blocks that receive: entries of unused RANK_MAJOR rows.
UCCLEP_FN void mark_unused_rows(const Op& op, const LlDispatchArgs& args, const Job& job, const Stage& stage) {
  if (!args.output.ranked) return;
  for (uint32_t source = 0; source < op.ranks(); ++source) {
    mark_unused(args.output, source, BlockTables::of(stage, args).inbox.facts[source].rows, args.output.top_k,
                {job.block(), job.blocks});
  }
}

// With masks the first of two runs may have counted.
template <class Wire>
UCCLEP_FN bool is_counted(const Op& op) {
  GroupMasks* const masks = Wire::masks ? reload(op.group).masks : nullptr;
  return masks != nullptr && load_relaxed<Scope::gpu>(&masks->counted) == op.seq;
}
template <class Wire>
UCCLEP_FN void note_counted(const Op& op) {
  GroupMasks* const masks = Wire::masks ? reload(op.group).masks : nullptr;
  if (masks != nullptr && thread_id() == 0) store_relaxed<Scope::gpu>(&masks->counted, op.seq);
}

// Verb of the block that counts, before it waits for headers.
UCCLEP_FN void begin_counting(const Op& op, const LlDispatchArgs& args) {
  if (thread_id() != 0) return;
  const HandleMemory memory = memory_of(args);
  memory.state()->weighted = args.settings.weights_at_dispatch;
  if (args.routing.kept) check_stamp(op, memory, memory.state()->updated);
}

// Verb of that block: from the headers to the counters of the caller, and the counts that combine needs. wait_ns: gets
// the time that it waits, if that is not counted elsewhere.
template <class Wire>
UCCLEP_FN bool count_by_tables(const Op& op, const LlDispatchArgs& args, const Stage& stage, const View& wait_ns) {
  begin_counting(op, args);
  const HandleMemory memory = memory_of(args);
  const bool complete = receive_headers(op, BlockTables::of(stage, args).header_words(memory), args.settings, wait_ns,
                                        {warp_id(), block::warps()});
  if (!every_thread(complete)) return false;
  const LlDispatchArgs& now = reload(args);
  const HeaderWords words = BlockTables::of(stage, now).header_words(memory_of(now));
  if (words.rows != memory_of(now).rows_from()) words.keep(memory_of(now));
  const LlDispatchArgs& here = reload(args);
  const BlockTables tables = BlockTables::of(stage, here);
  const HandleMemory kept = memory_of(here);
  place_rows<false>(op.with(here.group), kept, tables.header_words(kept), here.output.zones, here.counters,
                    tables.scratch);
  note_counted<Wire>(op);
  return true;
}

// Batches of a row that a warp sends at once, and receives, at most: as many as its registers hold.
template <class Row, class Forms>
constexpr uint32_t max_sent = !Forms::bulk && Row::Lines::scaled ? 2 : 1;
template <class Row, class Forms>
constexpr uint32_t max_batches = Forms::bulk          ? 2
                                 : Row::Lines::scaled ? 4
                                                      : 5;

// What is known before the headers are: as many rows as if all of all peers came here, which have about as many tokens
// as this rank; and into how many parts each is cut.
UCCLEP_FN uint32_t rows_expected(const LlDispatchArgs& args) {
  return args.group.shape.ranks * (args.routing.tokens != 0 ? args.routing.tokens : args.group.shape.ll_tokens);
}
template <class Row, class Forms>
UCCLEP_FN RowParts parts_here(const LlDispatchArgs& args, const Job& job) {
  return RowParts::of<max_batches<Row, Forms>>(args.output.wire.batches, rows_expected(args), job.warps());
}

// Warp verb: places [begin, end) of the rows from a source that a launch takes. Of rows in BULK form places are in the
// order of waves, and the header says how many each has; of rows that were sent before they were counted the first
// launch takes all. (LINE: is_of_waves.) False: the header did not come whole.
UCCLEP_FN bool places_of_waves(const Op& op, const WaveRange& waves, uint32_t source, const HeaderFacts& facts,
                               WarpUniform& begin, WarpUniform& end) {
  begin = 0, end = waves.begins() ? facts.rows : 0;
  if (waves.of == 1 || facts.form != Form::bulk) return true;
  const Packet* const said =
      header_packets(op, op.me(), source) + HeaderLayout::present(op.group.shape.local_experts());
  const uint32_t wave = lane_id() == 0 ? waves.first : waves.end;  // of which all below are counted
  uint64_t value = 0;
  bool ok = true;
  if (lane_id() < 2 && wave != 0) ok = wait_packet(op, Phase::header, source, said + (wave - 1) / 2, value);
  const auto rows = static_cast<uint32_t>(value >> 32 * ((wave + 1) % 2));
  if (!every_lane(ok)) return false;
  begin = broadcast(rows, 0), end = broadcast(rows, 1);
  if (begin <= end && end <= facts.rows) return true;
  if (lane_id() == 0) report_count(op, source, end, facts.rows);
  return false;
}

// Verb of the blocks that receive: rows of all sources, the own ones first, as they arrive. An item is a row in BULK
// form, or a part of a row in LINE form.
template <class Row, class Forms>
UCCLEP_FN bool expand_rows(const Op& op, const LlDispatchArgs& args, const Job& job, Stage& stage) {
  using Span = LineSpan<Row::Lines::scaled, max_batches<Row, Forms>>;
  const RowParts row_parts = parts_here<Row, Forms>(args, job);
  WarpUniform item = job.warp();
  for (WarpUniform i = 0; i < op.ranks(); i += 1) {
    const WarpUniform source = op.rotated(i);
    const LlDispatchArgs& here = reload(args);
    const HeaderFacts facts = BlockTables::of(stage, here).inbox.facts[source];
    const WarpUniform form = static_cast<uint32_t>(facts.form);
    WarpUniform rows = facts.rows;
    if constexpr (Forms::in_waves) {
      if (facts.form != Form::line) {
        WarpUniform begin = 0;
        if (!places_of_waves(op.with(here.group), here.waves, source, facts, begin, rows)) return false;
        item += begin;
      }
    }
    if (Forms::by_token && form == static_cast<uint32_t>(Form::line)) {
      const WarpUniform parts = row_parts.count + (scales_apart(here.output.wire) ? 1 : 0), items = rows * parts;
      for (; item < items; item += job.warps()) {
        const LlDispatchArgs& now = reload(args);
        const Op same = op.with(now.group);
        const uint32_t index = item / parts, part = item - index * parts;
        ByTables<Forms::in_waves> way(same, BlockTables::of(stage, now).inbox, source, index);
        const RowPart which{source, way.token, part, part == 0};
        if (!receive_part<Span>(same, now, stage, row_parts, which, way)) return false;
      }
      item -= items;
    } else {
      for (; item < rows; item += job.warps()) {
        const LlDispatchArgs& now = reload(args);
        const Op same = op.with(now.group);
        WarpUniform index = item;
        if (form == static_cast<uint32_t>(Form::placed) &&
            !BulkPath<typename Forms::Wire>::find(same, BlockTables::of(stage, now).inbox, source, item, index)) {
          return false;
        }
        const Inbox inbox = BlockTables::of(stage, now).inbox;
        if (!expand_bulk<typename Forms::Wire>(same, now, stage, source, item, index, inbox)) return false;
      }
      item -= rows;
    }
  }
  bulk_wait_written();
  return true;
}

template <class Row, class Forms>
UCCLEP_FN bool receive_by_tables(const Op& op, const LlDispatchArgs& args, const Job& job, Stage& stage) {
  const Inbox inbox = BlockTables::of(stage, args).inbox;
  const HeaderResult ready = ready_in(op, args.settings, View{}, inbox.facts);
  if (ready != HeaderResult::good) return ready == HeaderResult::differs;  // every rank ends without a row
  const LlDispatchArgs& here = reload(args);
  if (!inbox.fill(op.with(here.group), here.output.zones == Zones::slabs)) return false;
  mark_unused_rows(op.with(here.group), here, job, stage);
  return expand_rows<Row, Forms>(op, args, job, stage);
}

// The parts of all rows that may come, token by token, so that a warp knows its first before any header is there. Where
// there are warps enough, what is to be noted of a row is a part of its own.
struct PartsByToken {
  RowParts cut;
  WarpUniform parts, ranks;  // of a row; of the group
  bool notes_apart;

  static UCCLEP_FN PartsByToken of(const RowParts& cut, const LlDispatchArgs& args, uint32_t warps) {
    const uint32_t parts = cut.count + (scales_apart(args.output.wire) ? 1 : 0);
    const bool apart = 2 * (parts + 1) * rows_expected(args) <= warps;
    return {cut, parts + (apart ? 1 : 0), args.group.shape.ranks, apart};
  }
  UCCLEP_FN RowPart part_of(const Op& op, uint32_t item) const {
    const uint32_t row = item / parts, part = item - row * parts, token = row / ranks;
    return {op.rotated(row - token * ranks), token, part, part == (notes_apart ? parts - 1 : 0)};
  }
};

// The parts that are this warp's, of rows that are found by headers.
template <class Row, class Forms>
UCCLEP_FN bool expand_by_headers(const Op& op, const LlDispatchArgs& args, const Job& job, Stage& stage,
                                 const PartsByToken& work) {
  using Span = LineSpan<Row::Lines::scaled, max_batches<Row, Forms>>;
  const WarpUniform tokens = BlockTables::headers_of(stage, args).max_tokens(op.ranks());
  for (WarpUniform item = job.warp();; item += job.warps()) {
    const LlDispatchArgs& now = reload(args);
    const Op same = op.with(now.group);
    const RowPart which = work.part_of(same, item);
    if (which.token >= tokens) return true;
    ByHeaders way{BlockTables::headers_of(stage, now), which.token};
    if (!receive_part<Span>(same, now, stage, work.cut, which, way)) return false;
  }
}

// Counting, then receiving, where rows are found by headers: each if it is for this block to do.
template <class Row, class Forms>
UCCLEP_FN bool receive_by_headers(const Op& op, const LlDispatchArgs& args, const Job& job, bool counts_here,
                                  Stage& stage) {
  const bool counts = counts_here && !is_counted<typename Forms::Wire>(op);
  if (!counts && !job.mine()) return true;
  if (counts) begin_counting(op, args);
  const PartsByToken work = PartsByToken::of(parts_here<Row, Forms>(args, job), args, job.warps());
  const HeaderTable::Reading reading{counts, counts || args.output.zones == Zones::slabs};
  const HeaderResult ready =
      BlockTables::headers_of(stage, args).receive(op, args.settings, reading, args.counters.wait_ns);
  if (ready == HeaderResult::lost) return false;
  const LlDispatchArgs& now = reload(args);
  const Op same = op.with(now.group);
  if (counts) {
    const HeaderTable table = BlockTables::headers_of(stage, now);
    if (warp_id() == 0) {
      place_small(same, memory_of(now), table, now.output.zones, now.counters, ready == HeaderResult::good);
    }
    note_counted<typename Forms::Wire>(same);
    if (!job.mine()) return true;
    table.leave_out_blank(same);
  }
  if (ready == HeaderResult::differs) return true;  // every rank ends without a row
  mark_unused_rows(same, now, job, stage);
  return expand_by_headers<Row, Forms>(same, now, job, stage, work);
}

// Verb of the blocks that receive, and of the block that counts what arrives, after headers_in: from everybody's
// headers to the rows in the output.
template <class Row, class Forms>
UCCLEP_FN bool receive_rows(const Op& op, const LlDispatchArgs& args, const Job& job, bool counts_here, Stage& stage) {
  if constexpr (!Forms::bulk) {
    return receive_by_headers<Row, Forms>(op, args, job, counts_here, stage);
  } else {
    using Wire = typename Forms::Wire;
    const bool counts = counts_here && !is_counted<Wire>(op);
    if (counts && !count_by_tables<Wire>(op, args, stage, args.counters.wait_ns)) return false;
    if (!job.mine()) return true;
    const LlDispatchArgs& now = reload(args);
    return receive_by_tables<Row, Forms>(op.with(now.group), now, job, stage);
  }
}

// Percent of the blocks that send: the links are full from few SMs, and quantising takes more.
template <class Row>
constexpr uint32_t sending_percent = 22;
template <>
inline constexpr uint32_t sending_percent<Quantise> = 40;

// Verb of the blocks that count: the header for every peer. The last blocks begin: they get metas last.
template <class Forms>
UCCLEP_FN bool send_headers(const Op& op, const LlDispatchArgs& args, const Job& job, LlSets& sets, Form form,
                            int64_t* bad) {
  using Wire = typename Forms::Wire;
  for (WarpUniform i = job.blocks - 1 - job.block(); i < op.ranks(); i += job.blocks) {
    const LlDispatchArgs& now = reload(args);
    const Op same = op.with(now.group);
    const uint32_t peer = op.rotated(i);
    if (is_masked<Wire>(now.group, peer)) continue;
    const auto relayed = [&](const LlSets& counted) {
      return now.settings.node_copies != 0 ? Wire::count_relayed(same, memory_of(now), counted, peer) : 0;
    };
    send_routed_header<Forms::in_waves>(same, now, sets, peer, Wire::header_for(same, peer), form, bad, relayed);
  }
  const LlDispatchArgs& now = reload(args);
  uint32_t more = 0;
  if constexpr (Forms::in_waves) more = now.waves.of > 1 ? HeaderLayout::wave_packets(now.waves.of) : 0;
  return Wire::counts_stored(op.with(now.group), memory_of(now), now.settings.node_copies != 0,
                             job.blocks - 1 - job.block(), job.blocks, more);
}

// The blocks that send metas: few are left to those that send no header.
UCCLEP_FN Job meta_job(const Job& count, uint32_t ranks, uint32_t tokens) {
  if (count.blocks <= ranks) return count;
  const Job apart{count.first, count.blocks - ranks};
  return tokens <= apart.warps() ? apart : count;
}

UCCLEP_FN Op dispatch_of(const LlDispatchArgs& args, const OpState& op_state) {
  return next_operation(args.group, Kind::dispatch, Operation::dispatch, op_state);
}

// Verb of warps that send, each for itself (P1), in a group without masks.
template <class Row>
UCCLEP_FN bool send_lines(const LlDispatchArgs& args, const Job& job, Stage& stage, int64_t* bad) {
  LineSender<typename Row::Lines, max_sent<Row, LinesOnly>> sender(args, job, stage, bad);
  sender.begin();
  const OpState op_state = load_op_state_and_slots(args.group, Kind::dispatch);
  const Op op = dispatch_of(args, op_state);
  const bool marks = block_id() == 0 && thread_id() == 0;
  if (marks) mark(op, Mark::begin);
  if (!slots_free_of_warp(op, op_state)) return false;
  if (marks) mark(op, Mark::slots_free);
  sender.send(op);
  return true;
}

// Who does what in a whole dispatch, or in its send phase. In BULK form, and in phases, all blocks do all.
template <class Row>
UCCLEP_FN Jobs jobs_of(const LlDispatchArgs& args, Form form, Phases phases, bool network) {
  const bool apart = phases == Phases::whole && form == Form::line;
  Jobs jobs = apart ? Jobs::of(sending_percent<Row>) : Jobs::of_one();
  if (network) jobs.send = jobs.send.head(network_blocks);
  if (TokenSetShape::of(args.group.shape).tokens == 0) {  // the sets lie in the handle: one block has them
    jobs.count = jobs.count.head(1);
    if (form == Form::bulk) jobs.send = jobs.count;
  }
  return jobs;
}
template <class Forms>
UCCLEP_FN Form form_here(const LlDispatchArgs& args) {
  if constexpr (!Forms::by_token) return Form::bulk;
  if constexpr (!Forms::bulk) return Form::line;
  return form_of(args.group.shape, args.source.wire, args.routing.tokens);
}

// Do blocks take by turns what they send? They do where each of them waits for other ranks after it has sent: in BULK
// form, and in a send phase where it relays.
template <class Forms>
UCCLEP_FN bool sends_by_turns(Form form, Phases phases) {
  return Forms::bulk && form == Form::bulk && (phases == Phases::whole || Forms::Wire::network);
}

// Verb of the blocks that send, in waves: the rows of one wave after those of the other. (Metas have left before.)
template <class Row, class Forms>
UCCLEP_FN bool send_lines_in_waves(const Op& op, const LlDispatchArgs& args, const Job& job, Stage& stage,
                                   int64_t* bad) {
  const WarpUniform waves = args.waves.of;
  for (WarpUniform wave = 0; wave < waves; wave += 1) {
    LineSender<typename Row::Lines, max_sent<Row, Forms>> sender(args, job, stage, bad);
    sender.begin();
    sender.send(op, [&](const GroupShape& shape, const Selection& selection) {
      return of_wave(shape, selection, wave, waves);
    });
  }
  return true;
}

// What one of the blocks sends, when the slots are free. sender: has begun, if its batches are read ahead.
template <class Row, class Forms, class Sender>
UCCLEP_FN bool send_share(const Op& op, const LlDispatchArgs& args, Stage& stage, const Jobs& jobs, Form form,
                          LlSets& sets, Sender& sender, MetaAhead& ahead, int64_t* bad) {
  using Wire = typename Forms::Wire;
  if (jobs.count.mine() && !send_headers<Forms>(op, args, jobs.count, sets, form, bad)) return false;
  if (Forms::by_token && (!Forms::bulk || form == Form::line)) {
    const Job metas = meta_job(jobs.count, op.ranks(), args.routing.tokens);
    if (metas.mine()) send_metas(op, args, metas, stage, sets, ahead, bad);
    if (warps_alone<Forms> || !jobs.send.mine()) return true;
    if constexpr (Forms::in_waves) {
      if (args.waves.of > 1) return send_lines_in_waves<Row, Forms>(op, args, jobs.send, stage, bad);
    }
    if (Forms::bulk) sender.begin();
    sender.send(op);
  } else if constexpr (Forms::bulk) {
    using Out = typename BulkPath<Wire>::Out;
    if (!jobs.send.mine()) return true;
    if constexpr (Forms::in_waves) {
      if (args.waves.of > 1) {
        send_tokens_in_waves<typename Row::Bulk, Out>(op, args, jobs.send, stage, sets, bad);
        return true;
      }
    }
    send_tokens<typename Row::Bulk, Out>(op, args, jobs.send, stage, sets, bad);
  }
  return true;
}

// All that this block sends.
template <class Row, class Forms, Phases phases>
UCCLEP_FN bool send_rows(const Op& op, const OpState& op_state, const LlDispatchArgs& args, Stage& stage,
                         const Jobs& jobs, Form form) {
  using Wire = typename Forms::Wire;
  const BlockTables tables = BlockTables::of(stage, args);
  LlSets sets = sets_in(tables.sets, args);
  int64_t bad = no_bad_id;
  const bool by_turns = sends_by_turns<Forms>(form, phases);
  WarpUniform turn = by_turns ? take_turn_of_block(op, Turn::rows, tables.scratch) : block_id();
  LineSender<typename Row::Lines, max_sent<Row, Forms>> sender(args, jobs.send, stage, &bad);
  if (!Forms::bulk && !warps_alone<Forms> && jobs.send.mine()) sender.begin();
  MetaAhead ahead;
  if (jobs.count.as(turn).mine()) {  // needs no peer
    const Job metas = meta_job(jobs.count, op.ranks(), args.routing.tokens);
    if (Forms::by_token && metas.mine()) ahead.read(args, metas.warp());
    sets.require(0, args.routing.tokens, &bad);
  }
  if (!slots_free<Forms::bulk>(op, op_state, typename Wire::Consumed{})) return false;
  while (turn < grid_size()) {
    if (!send_share<Row, Forms>(op, args, stage, jobs.as(turn), form, sets, sender, ahead, &bad)) return false;
    if (!by_turns) break;
    turn = take_turn_of_block(op, Turn::rows, BlockTables::of(stage, reload(args)).scratch);
  }
  report_bad_id(op, bad);
  return true;
}

// Where a block adds the time for which it waits for headers: the one that counts does so.
UCCLEP_FN View waits_of(const Jobs& jobs, const LlDispatchArgs& args) {
  return jobs.counts_here() ? args.counters.wait_ns : View{};
}

// Rows of others that this block passes on, by turns.
template <class Wire>
UCCLEP_FN bool relay_rows(const Op& op, const LlDispatchArgs& args, const Job& job, Stage& stage) {
  for (;;) {
    const LlDispatchArgs& now = reload(args);
    const WarpUniform turn = take_turn_of_block(op, Turn::relays, BlockTables::of(stage, now).scratch);
    if (turn >= grid_size()) return true;
    if (!BulkPath<Wire>::relay_rows(op.with(now.group), now, job.as(turn), stage)) return false;
  }
}

// The whole exchange; the second run only receives: all rows have left in the first.
template <class Row, class Forms, Phases phases>
UCCLEP_FN bool exchange_rows(const Op& op, const OpState& op_state, const LlDispatchArgs& args, Stage& stage,
                             const Jobs& jobs, Form form) {
  using Wire = typename Forms::Wire;
  if (args.group.again == 0 && !send_rows<Row, Forms, phases>(op, op_state, args, stage, jobs, form)) return false;
  bool relays = false;
  if constexpr (Wire::network) relays = reload(args).settings.node_copies != 0;
  if (phases == Phases::send && !relays) return true;
  if (!jobs.receive.mine() && !jobs.counts_here()) return true;
  const LlDispatchArgs& sent = reload(args);
  if constexpr (Wire::network) {
    if (!Wire::headers_in(op.with(sent.group), comes_first(op, Turn::headers), waits_of(jobs, sent))) return false;
    if (relays && !relay_rows<Wire>(op, reload(args), jobs.receive, stage)) return false;
  }
  if constexpr (phases == Phases::send) return true;
  const LlDispatchArgs& now = reload(args);
  return receive_rows<Row, Forms>(op.with(now.group), now, jobs.receive, jobs.counts_here(), stage);
}

// Block verb, in a group without masks: what its warps send. False: the block has ended, as most have nothing else to
// do, or has given up.
template <class Row>
UCCLEP_FN bool send_ahead(const LlDispatchArgs& args, Stage& stage) {
  const Job job = Jobs::of(sending_percent<Row>).send;
  if (!job.mine()) return true;
  int64_t bad = no_bad_id;
  const bool ok = send_lines<Row>(args, job, stage, &bad);
  // Asked for again: the operation cannot end without this block's share.
  const Op op = dispatch_of(args, load_op_state(args.group, Kind::dispatch));
  report_bad_id(op, bad);
  if (!jobs_are_apart()) return every_thread(ok);
  LinesOnly::Wire::end(op, ok);
  return false;
}

// Verb of one thread.
UCCLEP_FN void note_dispatched(const Op& op, const LlDispatchArgs& args) {
  const HandleMemory memory = memory_of(args);
  if (args.routing.kept) compare_tokens(op, memory, args.routing.tokens, args.routing.top_k);
  note_routing(memory, args.routing.tokens, args.routing.top_k);
}

// The whole operation, or its send phase. Block verb of every block of the grid.
template <class Row, class Forms, Phases phases = Phases::whole>
UCCLEP_FN void dispatch(const LlDispatchArgs& args) {
  Stage stage(args.piece_bytes, Forms::bulk);
  if constexpr (warps_alone<Forms>) {
    if (!send_ahead<Row>(args, stage)) return;
  }
  const OpState op_state = OpState::load(args.group, Kind::dispatch);
  const Op op = dispatch_of(args, op_state);
  if (has_masks<typename Forms::Wire>(reload(args).group) && !begins_to_send(op)) return;
  const Form form = form_here<Forms>(args);
  const Jobs jobs = jobs_of<Row>(args, form, phases, Forms::Wire::network);
  if (jobs.counts_here() && args.group.again == 0) {
    hide_total(args.counters);
    if (thread_id() == 0) note_dispatched(op, args);
  }
  if constexpr (Forms::in_waves) {
    if (args.waves.of > 1) forget_received(memory_of(args));
    if (args.handle.tile_rows != 0) open_tiles(memory_of(args));
  }
  const bool ok = exchange_rows<Row, Forms, phases>(op, op_state, args, stage, jobs, form);
  if constexpr (phases == Phases::send) {
    end_send_phase_of<typename Forms::Wire>(op, memory_of(args), ok);
  } else {
    Forms::Wire::end(op, ok);
  }
}

// The receive phase, or of one in waves the part of some of them; also of a device-initiated dispatch
// (ll_dispatch.hpp). Where none is pending: nothing.
template <class Row, class Forms>
UCCLEP_FN void complete_dispatch(const LlDispatchArgs& args) {
  using Wire = typename Forms::Wire;
  Stage stage(args.piece_bytes);
  const ReceivePhase phase = ReceivePhase::of<Wire::masks>(args, Kind::dispatch, Operation::dispatch);
  if (!phase.any) return;
  const Jobs jobs = Jobs::of_one();
  const bool first = args.waves.begins(), counts_here = first && jobs.counts_here();
  if (counts_here && args.group.again == 0) hide_total(args.counters);
  const bool ok = phase.may_read() && (!first || Wire::headers_in(phase.op, block_id() == 0, waits_of(jobs, args))) &&
                  receive_rows<Row, Forms>(phase.op, args, jobs.receive, counts_here, stage);
  const LlDispatchArgs& now = reload(args);
  const ReceivePhase later = ReceivePhase::of<Wire::masks>(now, Kind::dispatch, Operation::dispatch);
  if (now.waves.ends()) {
    later.template end<Wire>(ok);
  } else {
    end_part(later.op, ok);
  }
}

// HandleUpdate: local, takes no sequence number. Keeps the checked ids; what follows from them the dispatch counts. A
// dispatch of more tokens finds that they have none.
UCCLEP_FN void update(const LlUpdateArgs& args) {
  const Op op{args.group, Kind::update, Operation::update, 0, 0};
  const HandleMemory memory{args.handle, args.group.shape};
  int64_t bad = no_bad_id;
  for (uint32_t token = grid_warp(); token < args.handle.tokens; token += grid_warps()) {
    keep_selection(memory, args.routing, token, begin_selection(args, token, &bad));
  }
  report_bad_id(op, bad);
  if (block_id() != 0 || thread_id() != 0) return;
  note_routing(memory, args.routing.tokens, args.routing.top_k);
  memory.state()->updated = args.handle.stamp;
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// LL combine of a small batch (is_small_batch), whose rows travel as lines, in a group without masks. As in
// ll/combine.hpp, but each warp is for itself until the end, and its index says what it has to do: one batch of a row,
// as a rule. So what it needs of the handle is on its way together with the sequence number, and rows are while nobody
// knows yet whether the slots are free. What must hold is looked at where it counts: that they are (P1) before a warp's
// lines leave, that all ranks mean the same operation (P14) before it writes a result.
//
//   sequence number, kept entries -> copies -> slots free -> partial rows out
//   sequence number, kept places -> READY headers and lines in -> add, write -> end
// Floor: the launch, three latencies of memory, a flight of a line, a latency.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/combine.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/ll/partials.hpp"
#include "ucclep/device/ll/sums.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/simt/element.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace combining {

// The number is needed later than what is asked for beside it.
UCCLEP_FN Op combine_of(const CombineArgs& args, const OpState& op_state) {
  return next_operation(args.group, Kind::combine, Operation::combine, op_state);
}

// May this warp write to its peers' slots: asked once.
struct SlotsOfWarp {
  const OpState& op_state;
  bool free = false;

  UCCLEP_FN bool wait(const Op& op) {
    if (!free) free = slots_free_of_warp(op, op_state);
    return free;
  }
};

// READY of all ranks, as a warp sees it: which settings they have. A lane looks at a packet of theirs.
struct ReadyOfAll {
  static_assert(HeaderLayout::settings_low == 0 && HeaderLayout::settings_high == 1);
  const Settings& settings;
  Packet packet{};
  HeaderResult result = HeaderResult::lost;  // as far as is known

  static UCCLEP_FN uint32_t packets(uint32_t ranks) { return 2 * ranks; }
  UCCLEP_FN const Packet* at(const Op& op, uint32_t i) const {
    const ucclEpDeviceGroup& group = op.group;
    return reinterpret_cast<const Packet*>(group.mine + group.layout.header(group.shape, op.kind, op.slot, i / 2)) +
           i % 2;
  }
  UCCLEP_FN bool expected(uint64_t value, uint32_t i) const {
    return value == (i % 2 == 0 ? settings.low() : settings.high());
  }

  // Warp verb: are all there? If not, they are looked at again, and late is the rank of one.
  UCCLEP_FN bool here(const Op& op, uint32_t& late) {
    if (result != HeaderResult::lost) return true;
    const bool looks = lane_id() < packets(op.ranks());
    const uint64_t missing = ballot(looks && packet.epoch != op.seq);
    if (missing != 0) {
      late = first_lane(missing) / 2;
      if (looks) packet = load_packet(at(op, lane_id()));
      return false;
    }
    result = every_lane(!looks || expected(packet.value, lane_id())) ? HeaderResult::good : HeaderResult::differs;
    return true;
  }
  // Warp verb: waits for it.
  UCCLEP_FN bool wait(const Op& op) {
    uint32_t peer = 0;
    return wait_peer_warp(op, Phase::header, peer, [&] { return here(op, peer); }) && result == HeaderResult::good;
  }
  // Somebody's are others: who is for receive_header to find out, and to say.
  UCCLEP_FN void report(const Op& op) const {
    UCCLEP_KEEP_LOOP
    for (uint32_t source = 0; source < op.ranks(); ++source) {
      HeaderFacts facts;
      receive_header(op, source, settings, facts, nullptr);
    }
  }
};

// Terms of a batch that are on their way to a warp together, as many as its registers hold: few rows have more copies
// on a rank. fp16 takes more, as its conversions come early.
template <class Element>
constexpr uint32_t batch_copies = 6;
template <class Element>
constexpr uint32_t batch_partials = 4;
template <>
inline constexpr uint32_t batch_copies<Fp16> = 4;
template <>
inline constexpr uint32_t batch_partials<Fp16> = 3;

// Partial rows of one batch, and READY: all are looked at together, so that who waits for them does so once. Rows of
// other settings may never come.
template <class Element>
struct PartialsAndReady : PartialTerms<ll::LinesOnly, GroupOf<batch_partials<Element>>> {
  using Partial = PartialTerms<ll::LinesOnly, GroupOf<batch_partials<Element>>>;
  using Group = typename Partial::Group;
  using Partial::op, Partial::partials;
  ReadyOfAll& ready;

  UCCLEP_FN void look(Group& group, uint32_t, uint32_t) const {
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < Group::most; ++i) group.term[i] = {};  // of no operation: wait looks
  }
  UCCLEP_FN bool wait(Group& group, uint32_t index, uint32_t first) const {
    uint32_t peer = 0;
    const auto known = [&] {
      uint32_t late = first;
      const bool ready_here = ready.here(op, peer), rows_here = this->all_here(group, index, first, late);
      if (!rows_here) peer = partials.ranks[late];
      return ready_here && (rows_here || ready.result == HeaderResult::differs);
    };
    return wait_peer_warp(op, Phase::rows, peer, known) && ready.result == HeaderResult::good;
  }
};

// A batch of a partial row, as an item of a warp that sends: all of a row, then the rows of that place of all homes,
// peers first, then the next place. So a warp knows its first before it knows how many rows there are. (A rank's rows
// fit its LINE landing, 4 MiB: there are no more than 2^12 batches of a home, which is far within Divisor's range.)
struct SentBatch {
  WarpUniform home, place, batch;

  static UCCLEP_FN SentBatch of(const CombineArgs& args, uint32_t item) {
    const uint32_t row = args.batches.quotient(item), place = args.ranks.quotient(row);
    return {rotated(args.group, row - place * args.ranks.value + 1), place, item - row * args.batches.value};
  }
};

// What is kept of the row, and where its home is: on their way to a warp. Lane i has copy i.
struct CopiesAhead {
  RecvEntry entry{};
  uint32_t count = 0;
  char* window = nullptr;

  UCCLEP_FN void read(const CombineArgs& args, const SentBatch& which) {
    const HandleMemory memory = memory_of(args);
    count = 0;
    if (lane_id() < memory.shape.top_k && which.place < memory.handle.tokens) {
      count = memory.recv_count(which.home)[which.place];
      entry = memory.recv_entries(which.home, which.place)[lane_id()];
    }
    window = args.group.windows[which.home];
  }
};

// Warp verb: a batch of a partial row to its lines at home.
template <class Element>
UCCLEP_FN bool send_batch(const Op& op, const CombineArgs& args, Stage& stage, const SentBatch& which,
                          const CopiesAhead& ahead, SlotsOfWarp& slots) {
  Terms terms = Terms::in(stage.scratch());
  keep_terms(args, ahead.entry, lane_id() < ahead.count, terms);
  const bool ok = sum_batch<Element>(
      CopyTerms<GroupOf<batch_copies<Element>>>{terms, args.row_bytes}, which.batch, [&] { return slots.wait(op); },
      [&](uint32_t index, const BatchSum<Element>& sum) {
        char* const lines = ahead.window + op.group.layout.back_lines_of(op.slot, op.me()) +
                            which.place * line_row_bytes(args.row_bytes) + index * LineBatch::lines * line_bytes;
        sum.rounded().send(lines, batch_length(args.row_bytes, index), op.seq);
      });
  sync_warp();  // the scratch is free for the next
  return ok;
}

// What a warp that sends reads before it knows the operation's number.
struct SendAhead {
  SentBatch which{0, 0, 0};
  CopiesAhead copies;
  RankWords rows_from{};
  uint32_t updated = 0;

  UCCLEP_FN void read(const CombineArgs& args, const ll::Job& job) {
    const HandleMemory memory = memory_of(args);
    find(args, job.warp());
    rows_from = RankWords::of(args.group.shape.ranks, memory.rows_from());
    updated = memory.state()->updated;
  }
  UCCLEP_FN void find(const CombineArgs& args, uint32_t item) {
    which = SentBatch::of(args, item);
    copies.read(args, which);
  }
};

// Verb of the warps that send: all batches of all rows.
template <class Element>
UCCLEP_FN bool send_small(const OpState& op_state, const CombineArgs& args, const ll::Job& job, Stage& stage) {
  SendAhead ahead;
  ahead.read(args, job);
  const Op op = combine_of(args, op_state);
  if (block_id() == 0 && thread_id() == 0) mark(op, Mark::begin);
  if (!is_routed(op, memory_of(args), uniform(ahead.updated))) return true;
  const WarpUniform items = ahead.rows_from.most(op.ranks()) * op.ranks() * line_batches(args.row_bytes);
  SlotsOfWarp slots{op_state};
  WarpUniform item = job.warp();
  while (item < items) {
    const CombineArgs& now = reload(args);
    if (ahead.which.place < ahead.rows_from.at(ahead.which.home) &&
        !send_batch<Element>(op.with(now.group), now, stage, ahead.which, ahead.copies, slots)) {
      return false;
    }
    item += job.warps();
    if (item < items) ahead.find(now, item);
  }
  return true;
}

// Verb of the warps that receive: READY to everybody, by those of the first block, as all others wait for it.
UCCLEP_FN bool send_ready(const Op& op, const CombineArgs& args, const ll::Job& job, SlotsOfWarp slots) {
  if (job.block() != 0) return true;
  UCCLEP_KEEP_LOOP
  for (WarpUniform i = block::warps() - 1 - warp_id(); i < op.ranks(); i += block::warps()) {
    const CombineArgs& now = reload(args);
    const Op same = op.with(now.group);
    if (!slots.wait(same)) return false;
    if (i == 0 && lane_id() == 0) mark(same, Mark::slots_free);
    send_header(same, same.rotated(i), now.settings, 0, Form::bulk, 0, nullptr);
  }
  return true;
}

// Warp verb, where the caller wants to know: how long READY takes, of a rank for each lane.
UCCLEP_FN bool note_waits(const Op& op, const View& wait_ns) {
  const bool waits = lane_id() < op.ranks();
  const uint64_t start = clock_ns();
  uint64_t end = 0;
  uint32_t peer = 0;
  const auto all_here = [&] {
    if (waits && end == 0 && load_packet(header_packets(op, op.me(), lane_id())).epoch == op.seq) end = clock_ns();
    const uint64_t late = ballot(waits && end == 0);
    if (late != 0) peer = first_lane(late);
    return late == 0;
  };
  if (!wait_peer_warp(op, Phase::header, peer, all_here)) return false;
  if (waits) *reinterpret_cast<int64_t*>(wait_ns.at(0, 0, lane_id())) += static_cast<int64_t>(end - start);
  return true;
}

// Warp verb: where the lines of a token's partial rows are. Lane k has selection k.
UCCLEP_FN Partials line_partials(const Op& op, const CombineArgs& args, const Selection& selection, Stage& stage) {
  const Terms terms = Terms::in(stage.scratch());
  const uint64_t mask = ballot(selection.sends());
  const Partials partials{terms.rows, reinterpret_cast<uint32_t*>(terms.weights), 0, count_lanes(mask)};
  const uint32_t order = order_of(selection, mask);
  if (selection.sends()) {
    partials.rows[order] = op.mine() + op.group.layout.back_lines_of(op.slot, selection.rank) +
                           selection.place * line_row_bytes(args.row_bytes);
    partials.ranks[order] = selection.rank;
  }
  sync_warp();
  return partials;
}

// What a warp that receives reads before: its first token is known by the caller's count.
struct ReceiveAhead {
  WarpUniform token, batch;
  Selection selection{};
  uint32_t updated = 0;

  UCCLEP_FN ReceiveAhead(const CombineArgs& args, const ll::Job& job) : token(0), batch(0) {
    const HandleMemory memory = memory_of(args);
    updated = memory.state()->updated;
    find(args, job.warp());  // last: an expert's rank is waited for
  }
  UCCLEP_FN void find(const CombineArgs& args, uint32_t item) {
    const HandleMemory memory = memory_of(args);
    token = args.batches.quotient(item);
    batch = item - token * args.batches.value;
    selection = selection_of(memory, token < memory.handle.tokens ? uint32_t{token} : 0);
  }
};

// Warp verb: a batch of the result of one token.
template <class Element>
UCCLEP_FN bool receive_batch(const Op& op, const CombineArgs& args, Stage& stage, const ReceiveAhead& which,
                             ReadyOfAll& ready) {
  const Partials partials = line_partials(op, args, which.selection, stage);
  const bool ok = sum_batch<Element>(
      PartialsAndReady<Element>{{op, partials, args.row_bytes}, ready}, which.batch, [] { return true; },
      [&](uint32_t index, BatchSum<Element>& sum) { write_sum(args, which.token, index, sum); });
  sync_warp();  // the scratch is free for the next
  return ok;
}

// Verb of the warps that receive: all batches of all results. The last makes sure that all ranks take part, also where
// there is nothing to receive.
template <class Element>
UCCLEP_FN bool receive_small(const OpState& op_state, const CombineArgs& args, const ll::Job& job, Stage& stage) {
  ReceiveAhead ahead(args, job);
  const Op op = combine_of(args, op_state);
  if (!every_lane(op_state.abort == 0)) return false;  // what the operation before left behind may be half done
  publish_read(op, op_state);
  if (!send_ready(op, args, job, {op_state})) return false;
  const HandleMemory memory = memory_of(args);
  if (!is_routed(op, memory, uniform(ahead.updated))) return true;
  const WarpUniform items = tokens_out(op, memory, args, job) * line_batches(args.row_bytes);
  const bool last = job.warp() == job.warps() - 1;
  if (last && args.wait_ns.data && !note_waits(op, args.wait_ns)) return false;
  ReadyOfAll ready{args.settings};
  bool ok = true;
  WarpUniform item = job.warp();
  while (item < items && ok) {
    const CombineArgs& now = reload(args);
    ok = receive_batch<Element>(op.with(now.group), now, stage, ahead, ready);
    item += job.warps();
    if (item < items) ahead.find(now, item);
  }
  if (ok && last) {
    ok = ready.wait(op);
    if (lane_id() == 0) mark(op, Mark::headers_in);
  }
  if (ready.result != HeaderResult::differs) return ok;
  ready.report(op);
  return true;  // every rank ends without a row
}

// The whole operation.
template <class Element>
UCCLEP_FN void combine_small(const CombineArgs& args) {
  const ll::Jobs jobs = ll::Jobs::of(ll_combine_sends, false);
  const OpState op_state = load_op_state(args.group, Kind::combine);
  Stage stage(args.piece_bytes, false);
  const bool ok = (!jobs.send.mine() || send_small<Element>(op_state, args, jobs.send, stage)) &&
                  (!jobs.receive.mine() || receive_small<Element>(op_state, args, jobs.receive, stage));
  ll::LinesOnly::Wire::end(combine_of(args, op_state), ok);
}

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE

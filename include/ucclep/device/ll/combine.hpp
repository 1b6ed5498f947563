// SPDX-License-Identifier: Apache-2.0
// Combine in LL: few rows, so a row is cut into parts, and every warp sums, sends and receives parts of its own. In
// LINE form nothing but the data itself is waited for; in BULK form a part is announced by an epoch word.
//
//   slots free -> READY headers out -> [weights out, if given here] -> partial rows out -> READY headers in
//   -> per token: wait for its rows, add, write -> end
// Floor: partial rows to peers * row bytes * line_bytes / line_payload / link bandwidth, one flight of a line, and the
// launch.
#pragma once
#include "ucclep/device/arch/numeric.hpp"
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/jobs.hpp"
#include "ucclep/device/ll/partials.hpp"
#include "ucclep/device/ll/sums.hpp"
#include "ucclep/device/ll/weight_rows.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/masks.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/phases.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/protocol/slots.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/stage.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace combining {

// Lane k's weights of two selections of a token, as a packet carries them.
UCCLEP_FN uint64_t weight_pair(const CombineArgs& args, uint32_t token) {
  const uint32_t k = lane_id();
  float weight = 0;
  if (k < args.settings.top_k && token < args.output_rows) {
    weight = *reinterpret_cast<const float*>(args.topk_weights.at(0, token, k));
  }
  return pair_of(weight);
}

// Verb of the job's blocks (P7): weights that come with combine go to the far sides as packets of the same seq, two to
// a packet.
template <class Wire>
UCCLEP_FN void send_weights(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job) {
  const uint32_t packets = weight_packets(op.group.shape), tokens = routed_tokens(memory);
  for (uint32_t token = job.warp(); token < tokens; token += job.warps()) {
    const Selection selection = selection_of(memory, token);
    const uint64_t pair = weight_pair(args, token);
    for (uint64_t left = ballot(selection.sends() && !is_masked<Wire>(op.group, selection.rank)); left != 0;
         left &= left - 1) {
      const uint32_t lane = first_lane(left);
      const uint32_t rank = broadcast(selection.rank, lane), place = broadcast(selection.place, lane);
      if (Wire::network && !op.has_window(rank)) continue;  // they went with READY
      auto* to = reinterpret_cast<Packet*>(op.window(rank) + op.group.layout.ll_weights_of(op.slot, op.me()));
      if (lane_id() < packets) store_packet(to + uint64_t{place} * packets + lane_id(), pair, op.seq);
    }
    sync_warp();  // no lane goes on to wait for a peer that may wait for these
  }
}

// Warp verb: copies of a row become terms. Lane i has copy i, if it is one.
UCCLEP_FN void keep_terms(const CombineArgs& args, const RecvEntry& entry, bool is_one, Terms& terms) {
  const bool present = is_one && entry.row < args.capacity && entry.expert < args.group.shape.local_experts();
  const uint64_t mask = ballot(present);
  if (present) {
    const uint32_t at = count_lanes(mask & ((uint64_t{1} << lane_id()) - 1));
    terms.rows[at] = args.tokens.at(args.zones == Zones::slabs ? entry.expert : 0, entry.row);
    terms.weights[at] = args.weighted ? entry.weight : 1.0f;
  }
  terms.count = count_lanes(mask);
  sync_warp();
}

// Warp verb: the copies of one received row, experts ascending. False: the home's weights did not come.
template <class Wire>
UCCLEP_FN bool gather_copies(const Op& op, const HandleMemory& memory, const CombineArgs& args, uint32_t home,
                             uint32_t place, Terms& terms) {
  const GroupShape& shape = op.group.shape;
  const uint32_t count = memory.recv_count(home)[place], i = lane_id();
  uint64_t late = 0;
  if (args.late_weights) {
    const uint32_t packets = weight_packets(shape);
    const Packet* from = weights_from<Wire>(op, home);
    bool ok = true;
    if (i < packets) ok = wait_packet(op, Phase::weights, home, from + uint64_t{place} * packets + i, late);
    if (!every_lane(ok)) return false;
  }
  RecvEntry entry{};
  if (i < shape.top_k) entry = memory.recv_entries(home, place)[i];  // does not wait for the count
  if (i >= count) entry = RecvEntry{};
  const uint64_t pair = shfl(late, entry.k / 2);
  if (args.late_weights) entry.weight = float_of(static_cast<uint32_t>(entry.k % 2 ? pair >> 32 : pair));
  keep_terms(args, entry, i < count && i < shape.top_k, terms);
  return true;
}

// Where a partial row goes: a place among the rows that this rank sends back to `rank`.
struct Home {
  uint32_t rank, place;
};

// Warp verb: one part of the partial row of a home to its lines there.
template <class Element, class Forms>
UCCLEP_FN bool send_line_part(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage,
                              const Home& home, const BatchRange& range) {
  char* lines = op.window(home.rank) + op.group.layout.back_lines_of(op.slot, op.me()) +
                home.place * line_row_bytes(args.row_bytes);
  const auto send = [&](uint32_t index, const LineBatch& batch) {
    batch.send(lines + index * LineBatch::lines * line_bytes, batch_length(args.row_bytes, index), op.seq);
  };
  if (args.zones == Zones::sources) {  // the caller's row is the partial row
    copy_batches<Forms>(args.tokens.at(args.ranked ? home.rank : 0, home.place), args.row_bytes, range, send);
    return true;
  }
  Terms terms = Terms::in(stage.scratch());
  if (!gather_copies<ll::ByWindows>(op, memory, args, home.rank, home.place, terms)) return false;
  sum_batches<Element>(CopyTerms<TermGroup<Forms>>{terms, args.row_bytes}, range,
                       [&](uint32_t index, const BatchSum<Element>& sum) { send(index, sum.rounded()); });
  sync_warp();  // the scratch is free for the next part
  return true;
}

// Warp verb: one part (of ll_part_bytes) of the partial row of (home, place) in BULK form, and the word that says so.
template <class Element>
UCCLEP_FN bool send_bulk_part(const Op& op, const HandleMemory& memory, const CombineArgs& args, Stage& stage,
                              uint32_t home, uint32_t place, uint32_t part) {
  const WindowLayout& window = op.group.layout;
  const uint32_t first = part * ll_part_bytes, left = uniform(args.row_bytes) - first;
  const uint32_t bytes = left < ll_part_bytes ? left : ll_part_bytes;
  char* landing = op.window(home);
  char* to = landing + window.back_rows_of(op.slot, op.me()) + uint64_t{place} * args.row_bytes + first;
  const auto send = [&](const char* piece, uint64_t offset, uint32_t length) {
    bulk_store(lane_id() == 0, to + offset, piece, length);
  };
  if (args.zones == Zones::sources) {  // the caller's row is the partial row
    const char* row = args.tokens.at(args.ranked ? home : 0, place) + first;
    stage.fetch(row, bytes);
    stage.drain(row, bytes, send);
  } else {
    Terms terms = Terms::in(stage.scratch());
    if (!gather_copies<ll::ByWindows>(op, memory, args, home, place, terms)) return false;
    bulk_wait_read();
    const uint32_t from = first / line_batch_bytes;
    const BatchRange range{from, from + line_batches(bytes)};
    sum_batches<Element>(CopyTerms<TermGroup<ll::AnyForm>>{terms, args.row_bytes}, range,
                         [&](uint32_t index, const BatchSum<Element>& sum) {
                           sum.rounded().write(stage.slot(0) + (index - from) * line_batch_bytes,
                                               batch_length(args.row_bytes, index));
                         });
    smem_to_bulk();
    send(stage.slot(0), 0, bytes);
  }
  bulk_wait_written();
  auto* words = reinterpret_cast<uint64_t*>(landing + window.back_epochs_of(op.slot, op.me()));
  if (lane_id() == 0) publish(words + place * bulk_parts(uniform(args.row_bytes)) + part, op.seq);
  return true;
}
static_assert(ll_part_bytes <= StageShape::piece_unit);

// Verb of the blocks that send: the partial rows of every home, peers first: the own rows need no link.
template <class Element, class Forms>
UCCLEP_FN bool send_ll_rows(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job,
                            Stage& stage) {
  WarpUniform item = job.warp();
  const RankWords rows_from = RankWords::of(op.ranks(), memory.rows_from());
  const RowParts row_parts =
      RowParts::of<max_batches<Forms>>(line_batches(args.row_bytes), uniform(rows_from.total(op.ranks())), job.warps());
  for (WarpUniform i = 1; i <= op.ranks(); i += 1) {
    const CombineArgs& now = reload(args);
    const WarpUniform home = op.rotated(i),
                      rows = is_masked<typename Forms::Wire>(now.group, home) ? 0 : rows_from.at(home);
    if (!Forms::bulk || form_of(now.group.shape, now.row_bytes, rows) == Form::line) {
      const WarpUniform parts = row_parts.count, items = rows * parts;
      for (; item < items; item += job.warps()) {
        const CombineArgs& here = reload(args);
        const Op same = op.with(here.group);
        if constexpr (Forms::in_waves) {
          if (!leaves_in(memory_of(here), here.waves, home, item / parts)) continue;
        }
        if (!send_line_part<Element, Forms>(same, memory_of(here), here, stage, {home, item / parts},
                                            row_parts.range(item % parts))) {
          return false;
        }
      }
      item -= items;
    } else if constexpr (Forms::bulk) {
      const WarpUniform parts = bulk_parts(now.row_bytes), items = rows * parts;
      for (; item < items; item += job.warps()) {
        const CombineArgs& here = reload(args);
        const Op same = op.with(here.group);
        if constexpr (Forms::in_waves) {
          if (!leaves_in(memory_of(here), here.waves, home, item / parts)) continue;
        }
        if (!send_bulk_part<Element>(same, memory_of(here), here, stage, home, item / parts, item % parts))
          return false;
      }
      item -= items;
    }
  }
  return true;
}

// How a combine begins, how partial rows leave, and how they are added up: by a warp, with its stage. The other way is
// ll/network.hpp.
template <class Wire>
class CombinePath;

template <>
class CombinePath<ll::ByWindows> {
 public:
  explicit UCCLEP_FN CombinePath(Stage& stage) : stage_(stage) {}

  // Verb of the job's blocks: READY to everybody. updated: the dispatch before delivered rows.
  static UCCLEP_FN bool begin(const Op& op, const HandleMemory&, const CombineArgs& args, const ll::Job& job, bool) {
    ready_out(op, args.settings, job.warp(), job.warps());
    return true;
  }
  // Verb of the blocks that send.
  template <class Element, class Forms>
  UCCLEP_FN bool send(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job) {
    return send_ll_rows<Element, Forms>(op, memory, args, job, stage_);
  }
  // Verb of the blocks that receive.
  template <class Element, class Forms>
  UCCLEP_FN bool reduce(const Op& op, const HandleMemory& memory, const CombineArgs& args, const ll::Job& job) {
    return reduce_ll_tokens<Element, Forms>(op, memory, args, job, stage_);
  }
  // Verb of the blocks that send: ranks differ, and none of the rows that were announced will be sent.
  static UCCLEP_FN void give_up(const Op&, const HandleMemory&, const CombineArgs&, const ll::Job&) {}

 private:
  Stage& stage_;
};

template <>
class CombinePath<ll::ByWindowsOfAll> : public CombinePath<ll::ByWindows> {
  using CombinePath<ll::ByWindows>::CombinePath;
};

// Who does what in a combine. Blocks wait for what blocks before them send: READY, then rows. With late weights READY
// first, then weights, when everybody is known to mean to send them, then rows, which need them: in a small grid by one
// block, one after the other.
struct CombineJobs {
  ll::Job ready, weights, send, receive;

  static UCCLEP_FN CombineJobs of(const CombineArgs& args, Phases phases) {
    const bool late = args.late_weights && !args.announced, apart = ll::jobs_are_apart();
    const uint32_t few = late && apart ? ll::few_blocks() : 0, movers = grid_size() - 2 * few;
    uint32_t send = phases == Phases::send ? movers : movers * ll_combine_sends / 100;
    if (send == 0 || (!apart && (late || phases != Phases::send))) send = 1;
    const uint32_t before = few != 0 ? few : send, alone = grid_size() == 1 ? 1 : 0;
    return {{0, before}, {few, late ? before : 0}, {2 * few, send}, {2 * few + send - alone, movers - send + alone}};
  }
  // The first of the blocks that wait for READY before rows leave.
  UCCLEP_FN uint32_t first_waiting() const { return weights.blocks != 0 ? weights.first : send.first; }
};

// Block verb: READY of everybody; `by` says how long it waits, and in BULK form between domains fetches it.
template <class Wire>
UCCLEP_FN HeaderResult all_ready(const Op& op, const CombineArgs& args, uint32_t by) {
  const View wait_ns = block_id() == by ? args.wait_ns : View{};
  if (!Wire::headers_in(op, block_id() == by, wait_ns)) return HeaderResult::lost;
  return ready_in(op, args.settings, wait_ns);
}

// Grid verb: the whole exchange. send(): this block's partial rows out; reduce(): its results.
template <class Forms, Phases phases, class Send, class Reduce>
UCCLEP_FN bool exchange_rows(const Op& op, const OpState& op_state, const HandleMemory& memory, const CombineArgs& args,
                             const CombineJobs& jobs, Send&& send, Reduce&& reduce) {
  using Wire = typename Forms::Wire;
  using Path = CombinePath<Wire>;
  const uint32_t updated = memory.state()->updated;  // it comes while the peers' words do
  bool begins = true, ends = true;
  if constexpr (Forms::in_waves) begins = args.waves.begins(), ends = args.waves.ends();
  if (begins && !slots_free<Forms::bulk>(op, op_state, typename Wire::Consumed{})) return false;
  if (!begins && !every_thread(op_state.abort == 0)) return false;
  const bool routed = is_routed(op, memory, uniform(updated));
  if (begins && !args.announced && jobs.ready.mine() && !Path::begin(op, memory, args, jobs.ready, routed))
    return false;
  if (!routed) return true;
  // Normally rows fly while the headers do. Where this rank is going to wait for weights it first makes sure that
  // everybody means to send them.
  if (args.late_weights) {
    if (!jobs.weights.mine() && !jobs.send.mine() && !jobs.receive.mine()) return true;
    const HeaderResult ready = all_ready<Wire>(op, args, jobs.first_waiting());
    if (begins && ready == HeaderResult::differs && jobs.send.mine()) Path::give_up(op, memory, args, jobs.send);
    if (ready != HeaderResult::good) return ready == HeaderResult::differs;  // every rank ends without a row
    if (begins && jobs.weights.mine()) send_weights<Wire>(op, memory, args, jobs.weights);
  }
  if (ends && args.weights_back && jobs.send.mine()) send_weight_rows<Wire>(op, memory, args, jobs.send);
  if (!every_thread(send())) return false;
  if (phases == Phases::send || !jobs.receive.mine()) return true;
  const CombineArgs& now = reload(args);
  const Op here = op.with(now.group);
  if (!now.late_weights) {
    const HeaderResult ready = all_ready<Wire>(here, now, jobs.receive.first);
    if (ready != HeaderResult::good) return ready == HeaderResult::differs;
  }
  return reduce() && (!args.weights_back || sum_weight_rows<Wire>(op, memory, args, jobs.receive));
}

// In a group with masks, before all else of a combine with late weights (CombineArgs::announced): READY and they leave,
// and nobody is waited for. Its repair follows, and then the operation, which has the same number.
template <class Wire>
UCCLEP_FN void announce_weights(const CombineArgs& args) {
  const OpState op_state = OpState::load(args.group, Kind::combine);
  const Op op = next_operation(args.group, Kind::combine, Operation::combine, op_state);
  if (!begins_to_send(op)) return;
  const HandleMemory memory{args.handle, args.group.shape};
  if (!slots_free(op, op_state, typename Wire::Consumed{})) return;
  const bool routed = memory.state()->updated == memory.handle.stamp;
  const ll::Job all = ll::Jobs::of_one().send;
  if (CombinePath<Wire>::begin(op, memory, args, all, routed) && routed) send_weights<Wire>(op, memory, args, all);
}

// The whole operation, or its send phase; in waves a launch of that for each.
template <class Element, class Forms, Phases phases = Phases::whole>
UCCLEP_FN void combine_ll(const CombineArgs& args) {
  bool in_waves = false;
  if constexpr (Forms::in_waves) {
    in_waves = args.waves.of > 1;
    if (in_waves && args.waves.end == 0) return take_number(args, Kind::combine, Operation::combine);
  }
  const OpState op_state = OpState::load(args.group, Kind::combine);
  Stage stage(args.piece_bytes, Forms::bulk);
  const Op op = in_waves ? ReceivePhase::of(args, Kind::combine, Operation::combine).op
                         : next_operation(args.group, Kind::combine, Operation::combine, op_state);
  if (has_masks<typename Forms::Wire>(args.group) && !begins_to_send(op)) return;
  const HandleMemory memory{args.handle, args.group.shape};
  const CombineJobs jobs = CombineJobs::of(args, phases);
  CombinePath<typename Forms::Wire> path(stage);
  const bool sends = jobs.send.mine() && args.group.again == 0;  // the second run sends no rows again
  const auto send = [&] { return !sends || path.template send<Element, Forms>(op, memory, args, jobs.send); };
  const auto reduce = [&] { return path.template reduce<Element, Forms>(op, memory, args, jobs.receive); };
  const bool ok = exchange_rows<Forms, phases>(op, op_state, memory, args, jobs, send, reduce);
  if constexpr (Forms::in_waves) {
    if (in_waves) return end_part(op, ok);
  }
  if constexpr (phases == Phases::send) {
    end_send_phase_of<typename Forms::Wire>(op, memory, ok);
  } else {
    Forms::Wire::end(op, ok);
  }
}

// The receive phase, also of a device-initiated combine (ll_combine.hpp). Where none is pending: nothing.
template <class Element, class Forms>
UCCLEP_FN void complete_combine(const CombineArgs& args) {
  using Wire = typename Forms::Wire;
  Stage stage(args.piece_bytes);
  const ReceivePhase phase = ReceivePhase::of<Wire::masks>(args, Kind::combine, Operation::combine);
  if (!phase.any) return;
  const Op& op = phase.op;
  const HandleMemory memory{args.handle, args.group.shape};
  CombinePath<Wire> path(stage);
  const auto receive = [&] {
    if (memory.state()->updated != memory.handle.stamp) return true;  // nothing was sent
    const HeaderResult ready = all_ready<Wire>(op, args, 0);
    if (ready != HeaderResult::good) return ready == HeaderResult::differs;
    const ll::Job all = ll::Jobs::of_one().receive;
    return path.template reduce<Element, Forms>(op, memory, args, all) &&
           (!args.weights_back || sum_weight_rows<Wire>(op, memory, args, all));
  };
  phase.end<Wire>(phase.may_read() && receive());
}

}  // namespace combining
}  // namespace UCCLEP_SIMT_NAMESPACE

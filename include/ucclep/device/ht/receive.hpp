// SPDX-License-Identifier: Apache-2.0
// The receiving side of an HT dispatch. Where this rank has exposed its output, rows come by themselves, and only ids,
// weights and sources are filled in from the metas. Otherwise it pulls its rows from the senders' staging as their
// metas come in; those of tiles in whatever order they come (rows/tiles.hpp). The rest, pads and unused rows, is filled
// in by everybody first.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/ht/rounds.hpp"
#include "ucclep/device/ht/zero_copy.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/masks.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/phases.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/deliver.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/rows/tiles.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ht {

// at: place among those of the round.
UCCLEP_FN const char* landed_meta(const Op& op, uint32_t source, uint32_t at) {
  return op.mine() + op.group.layout.ht_meta_of(op.slot, source) +
         uint64_t{at} * MetaLayout::of(op.group.shape.top_k).bytes;
}

// Warp verb: is a row of the waves of a launch. Waits for its meta, which may be known before the row is staged. False:
// it did not come.
UCCLEP_FN bool is_taken(const Op& op, const WaveRange& waves, uint32_t source, const char* meta, bool& taken) {
  if (waves.of == 1) return true;
  const MetaLayout layout = MetaLayout::of(op.group.shape.top_k);
  const auto is_here = [&](uint32_t word) {
    return load_acquire<Scope::system>(reinterpret_cast<const uint64_t*>(meta + word)) == op.seq;
  };
  const bool ok = lane_id() != 0 || wait_peer(op, Phase::staging, source,
                                              [&] { return is_here(layout.known()) || is_here(layout.epoch); });
  if (!every_lane(ok)) return false;
  sync_warp();  // what lane 0 has acquired comes before what all lanes read
  taken = is_of_waves(op, waves, read_meta(op.group.shape, meta));
  return true;
}

// Warp verb: one row that is staged, to its places. meta: its own, which every lane has acquired.
template <class Wire>
UCCLEP_FN void take_row(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                        const Arrival& arrival, const char* meta) {
  const char* row = Wire::staged_row(op, args.output.wire, arrival.source, meta);
  stage.fetch(row, args.output.wire.token_bytes);
  ReceivedSelection selection = read_meta(op.group.shape, meta);
  uint32_t base = 0, expert = 0;
  if (args.output.zones == Zones::sources) {
    base = memory.recv_base()[arrival.source];
  } else if (is_mine(op, selection, expert)) {
    base = memory.expert_base(Wire::tiles ? 0 : arrival.source)[expert];
    if constexpr (Wire::tiles) {
      const bool backward = args.settings.pass == UCCLEP_PASS_BACKWARD;
      selection.position = take_place(Tiles{memory}, backward, arrival.source, arrival.place, expert);
    }
  }
  if constexpr (Wire::tiles) sync_warp();  // all lanes have read the entries, before they are written again
  const Target target = place_row(op, args.output, arrival, selection, base);
  note_placed(op, memory, args.output, arrival, selection, target);
  deliver_row(stage, args.output, row, target);
}

// Warp verb: one row, once it is staged; of a receive phase in waves those of its waves. at: as above.
template <class Wire, Phases phases>
UCCLEP_FN bool pull_row(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args, Stage& stage,
                        uint32_t source, uint32_t place, uint32_t at) {
  const char* meta = landed_meta(op, source, at);
  bool ok = true;
  if constexpr (phases == Phases::receive) {
    bool taken = true;
    if (!is_taken(op, args.waves, source, meta, taken)) return false;
    if (!taken) return true;
  }
  if (lane_id() == 0) ok = wait_word(op, Phase::staging, source, meta + MetaLayout::of(op.group.shape.top_k).epoch);
  if (!every_lane(ok)) return false;
  acquire_then_bulk();
  take_row<Wire>(op, memory, args, stage, {source, place, meta_token(meta)}, meta);
  return true;
}

// Sources whose rows this rank takes in, and how many rows the largest has in the round. In FLAT its own stay where
// they are, but for those of a send phase.
struct Sources {
  uint32_t first, count, most;

  static UCCLEP_FN Sources of(const Op& op, const HandleMemory& memory, uint32_t rounds, bool own_stay) {
    Sources s{own_stay ? 1u : 0u, 0, 0};
    s.count = op.ranks() - s.first;
    for (uint32_t i = s.first; i < op.ranks(); ++i) {
      const PlaceRange places = places_in_round(op, memory, rounds, op.rotated(i));
      const uint32_t rows = uniform(places.end - places.begin);
      s.most = rows > s.most ? rows : s.most;
    }
    return s;
  }
};

// Verb of the pulling warps of the grid, of a round: low places first, since those are staged first, of all sources in
// turn.
template <class Wire, Phases phases>
UCCLEP_FN bool pull_rows(const HtDispatchArgs& args, const Op& op, Stage& stage, const Worker& worker) {
  const bool own_stay = phases == Phases::whole && args.output.zones == Zones::sources;
  const WarpUniform rounds = Wire::rounds(memory_of(args));
  if (!Wire::places_come(op, memory_of(args), rounds, worker.index == 0)) return false;
  const Sources sources = Sources::of(op, memory_of(args), rounds, own_stay);
  const WarpUniform first = sources.first, count = sources.count, items = sources.most * sources.count;
  for (WarpUniform item = worker.index; item < items; item += worker.workers) {
    const HtDispatchArgs& now = reload(args);
    const Op here = op.with(now.group);
    const uint32_t source = here.rotated(item % count + first), at = item / count;
    if (Wire::masks && is_absent(now.group, here.kind, here.seq, source)) continue;
    const PlaceRange places = places_in_round(here, memory_of(now), rounds, source);
    if (at >= uniform(places.end - places.begin)) continue;
    if (!pull_row<Wire, phases>(here, memory_of(now), now, stage, source, uniform(places.begin) + at, at)) return false;
  }
  bulk_wait_written();
  return true;
}

// Verb of the pulling warps of the grid, of a round of tiles: the rows of all sources as they arrive. A few are under
// way at a time, and count when all of them are written.
template <class Wire>
class TilePuller {
 public:
  UCCLEP_FN TilePuller(const HtDispatchArgs& args, Stage& stage) : args_(args), stage_(stage) {}

  UCCLEP_FN bool pull(const Op& op, const Worker& worker) {
    const WarpUniform rounds = Wire::rounds(memory_of(args_)), sets = LaneRows::sets(op);
    if (!Wire::places_come(op, memory_of(args_), rounds, worker.index == 0)) return false;
    for (WarpUniform set = worker.index % sets; set < sets; set += worker.workers) {
      begin(op, LaneRows::of(op, {worker.index, worker.workers}, set), rounds);
      const auto look = [&](const Op& same, const HtDispatchArgs&) { return !mine_.ended && is_staged(same); };
      const auto take_some = [&](uint64_t& here) {
        const HtDispatchArgs& now = reload(args_);
        take(op.with(now.group), now, here);
        return true;
      };
      if (!take_as_they_come(args_, op, Phase::staging, mine_, look, take_some)) return false;
    }
    return true;
  }

 private:
  static constexpr uint32_t rows_at_once = StageShape::slots;

  UCCLEP_FN void begin(const Op& op, const LaneRows& rows, uint32_t rounds) {
    const PlaceRange places = places_in_round(op, memory_of(args_), rounds, rows.source);
    mine_ = rows;
    first_ = places.begin;
    mine_.end = places.end - places.begin;
    mine_.ended = mine_.ended || mine_.next >= mine_.end;
  }
  // Lane verb.
  UCCLEP_FN bool is_staged(const Op& op) const {
    const char* const meta = landed_meta(op, mine_.source, mine_.next);
    const auto* epoch = reinterpret_cast<const uint64_t*>(meta + MetaLayout::of(op.group.shape.top_k).epoch);
    return load_acquire<Scope::system>(epoch) == op.seq;
  }
  // Warp verb: what a lane has found.
  struct Found {
    WarpUniform source, at, place;
  };
  UCCLEP_FN Found found_by(uint32_t lane) const {
    const uint32_t at = broadcast(mine_.next, lane);
    return {broadcast(mine_.source, lane), at, broadcast(first_, lane) + at};
  }
  // Warp verb: a few of the rows that lanes have found.
  UCCLEP_FN void take(const Op& op, const HtDispatchArgs& args, uint64_t& here) {
    const HandleMemory memory = memory_of(args);
    acquire_then_bulk();
    uint64_t taken = 0;
    for (uint32_t i = 0; i < rows_at_once && here != 0; ++i) {
      const Found found = found_by(first_lane(here));
      const char* const meta = landed_meta(op, found.source, found.at);
      take_row<Wire>(op, memory, args, stage_, {found.source, found.place, meta_token(meta)}, meta);
      taken |= here & -here;
      here &= here - 1;
    }
    bulk_wait_written();
    sync_warp();  // a lane counts what others have written
    for (uint64_t left = taken; left != 0; left &= left - 1) note_row(op, args, found_by(first_lane(left)));
    if ((taken >> lane_id() & 1) == 0) return;
    mine_.next += mine_.step;
    mine_.ended = mine_.next >= mine_.end;
  }
  // Warp verb: the copies of a row that is written, of each a lane.
  UCCLEP_FN void note_row(const Op& op, const HtDispatchArgs& args, const Found& found) const {
    const HandleMemory memory = memory_of(args);
    if (lane_id() >= memory.recv_count(found.source)[found.place]) return;
    const RecvEntry entry = memory.recv_entries(found.source, found.place)[lane_id()];
    const Tiles tiles{memory};
    const ArrivedCopy copy{found.source, meta_token(landed_meta(op, found.source, found.at)), entry.expert,
                           entry.row - first_entry(tiles, entry.expert), entry.weight};
    note_copy(tiles, args.output, args.settings.weights_at_dispatch != 0, copy);
  }

  const HtDispatchArgs& args_;
  Stage& stage_;
  LaneRows mine_{};
  uint32_t first_ = 0;  // of the places that the lane's source has in the round
};

constexpr uint32_t meta_rows = 8;  // whose metas a warp takes at a time

// Warp verb: ids, weights and sources of rows of one source that come by themselves (FLAT). first: of its places in the
// round; [begin, end) of these.
UCCLEP_FN bool take_metas(const Op& op, const HandleMemory& memory, const DispatchOutput& out, const Stage& stage,
                          uint32_t source, uint32_t first, uint32_t begin, uint32_t end) {
  const GroupShape& shape = op.group.shape;
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  const uint32_t base = memory.recv_base()[source] + first, lines = lines_of(shape, layout.body_bytes());
  const char* landed = op.mine() + op.group.layout.ht_lines_of(op.slot, source) + begin * meta_line_bytes(shape);
  const uint32_t bytes = lines * shape.line_payload();  // of a row
  bulk_wait_read();                                     // this warp may have sent from the slot
  const bool come = with_meta_lines(shape, [&]([[maybe_unused]] auto lines_of_group) {
    return line_load<decltype(lines_of_group)>(op, Phase::staging, source, stage.slot(0), landed,
                                               uint64_t{end - begin} * bytes);
  });
  if (!come) return false;
  for (uint32_t i = lane_id(); i < (end - begin) * out.top_k; i += wave_size) {
    const uint32_t at = i / out.top_k, k = i % out.top_k;
    const uint64_t row = uint64_t{base} + begin + at;
    if (row >= out.capacity) continue;
    const char* meta = stage.slot(0) + at * bytes;
    ReceivedSelection s;
    const uint16_t expert = reinterpret_cast<const uint16_t*>(meta + layout.experts)[k];
    if (expert != no_expert) s = {expert, reinterpret_cast<const float*>(meta + layout.weights)[k], 0};
    store_topk(op, out, 0, static_cast<int64_t>(row), k, s);
    if (k == 0) store_source(out, 0, static_cast<int64_t>(row), source, meta_token(meta));
  }
  sync_warp();  // all lanes have read the metas
  return true;
}
static_assert(meta_rows * (MetaLayout::of(max_top_k).bytes + line_payload) <=
              StageShape::piece_unit * StageShape::slots);

// Verb of the meta warps of the grid, of a round.
template <class Wire>
UCCLEP_FN bool receive_metas(const HtDispatchArgs& args, const Op& op, const Stage& stage, const Worker& worker) {
  const WarpUniform rounds = Wire::rounds(memory_of(args));
  if (!Wire::places_come(op, memory_of(args), rounds, worker.index == 0)) return false;
  const Sources sources = Sources::of(op, memory_of(args), rounds, true);
  const WarpUniform count = sources.count, items = (sources.most + meta_rows - 1) / meta_rows * sources.count;
  for (WarpUniform item = worker.index; item < items; item += worker.workers) {
    const HtDispatchArgs& now = reload(args);
    const Op here = op.with(now.group);
    const uint32_t source = here.rotated(item % count + 1), begin = item / count * meta_rows;
    const PlaceRange places = places_in_round(here, memory_of(now), rounds, source);
    const uint32_t first = uniform(places.begin), rows = uniform(places.end) - first;
    const uint32_t end = rows < begin + meta_rows ? rows : begin + meta_rows;
    if (begin >= rows) continue;
    if (!take_metas(here, memory_of(now), now.output, stage, source, first, begin, end)) return false;
  }
  return true;
}

// Warp verb: a row of zeros: a pad of a zone, or in the place of one that does not come.
UCCLEP_FN void zero_row(const DispatchOutput& out, int64_t row) {
  char* tokens = out.tokens.at(0, row);
  for (uint32_t b = lane_id() * 16; b < out.wire.token_bytes; b += wave_size * 16) store16(tokens + b, vec16{});
  for (uint32_t e = lane_id(); e < out.wire.scale_count; e += wave_size) {
    char* scale = out.scales.at(0, row, e);
    for (uint32_t i = 0; i < out.wire.scale_element_bytes; ++i) scale[i] = 0;
  }
  if (lane_id() != 0) return;
  if (out.topk_weights.data) *reinterpret_cast<float*>(out.topk_weights.at(0, row)) = 0.0f;
  View info = out.src_info;
  if (!info.data) return;
  info.data = info.at(0, row);
  store_index(info, 0, 0, -1);
}

// Grid verb: what lies between a zone's last row and its padded end.
UCCLEP_FN void zero_pads(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args) {
  const uint32_t local = op.group.shape.local_experts(), last = op.ranks() - 1;
  for (uint32_t l = grid_warp(); l < local; l += grid_warps()) {
    const uint64_t end = memory.expert_base(last)[l] + uint64_t{memory.counts_from(last)[l]};
    const uint64_t begin = memory.expert_base(0)[l];
    const uint64_t padded = begin + round_up(end - begin, memory.handle.expert_alignment);
    for (uint64_t row = end; row < padded && row < args.output.capacity; ++row)
      zero_row(args.output, static_cast<int64_t>(row));
  }
}

// Grid verb: rows [begin, end) that have been announced and do not come.
UCCLEP_FN void blank_rows(const Op& op, const DispatchOutput& out, uint32_t begin, uint64_t end) {
  for (uint64_t row = begin + uint64_t{grid_warp()}; row < end && row < out.capacity; row += grid_warps()) {
    zero_row(out, static_cast<int64_t>(row));
    if (out.zones == Zones::experts) continue;
    if (lane_id() < out.top_k) store_topk(op, out, 0, static_cast<int64_t>(row), lane_id(), ReceivedSelection{});
  }
}

// Grid verb: of ranks that have no part in this dispatch, or not all of theirs has come (P12), what the routing says.
UCCLEP_FN void blank_absent(const Op& op, const HandleMemory& memory, const DispatchOutput& out) {
  for (uint32_t source = 0; source < op.ranks(); ++source) {
    if (!is_absent(op.group, op.kind, op.seq, source)) continue;
    if (out.zones == Zones::sources) {
      const uint32_t begin = memory.recv_base()[source];
      blank_rows(op, out, begin, begin + uint64_t{memory.rows_from()[source]});
      continue;
    }
    for (uint32_t l = 0; l < op.group.shape.local_experts(); ++l) {
      const uint32_t begin = memory.expert_base(source)[l];
      blank_rows(op, out, begin, begin + uint64_t{memory.counts_from(source)[l]});
    }
  }
}

// Block verb of the block that counts: has this dispatch been counted, in its first run. From now on it has.
UCCLEP_FN bool was_counted(const Op& op) {
  uint64_t* const counted = &op.group.masks->counted;
  const bool was = load_relaxed<Scope::gpu>(counted) == op.seq;
  sync_block();
  if (thread_id() == 0) store_relaxed<Scope::gpu>(counted, op.seq);
  return was;
}

// Grid verb: adds the rows of this dispatch to the caller's statistics.
template <class Wire>
UCCLEP_FN void count_rows(const Op& op, const HandleMemory& memory, const View& cumulative) {
  if (!cumulative.data || block_id() != 0) return;
  if (has_masks<Wire>(op.group) && was_counted(op)) return;
  for (uint32_t l = thread_id(); l < op.group.shape.local_experts(); l += block_size()) {
    uint32_t count = 0;
    for (uint32_t s = 0; s < op.ranks(); ++s) count += memory.counts_from(s)[l];
    add_count(op, cumulative, l, count);
  }
}

// Grid verb: what combine needs to know of this dispatch, where it is device-initiated.
UCCLEP_FN void note_dispatch(const HandleMemory& memory, const HtDispatchArgs& args) {
  if (block_id() != 0 || thread_id() != 0) return;
  HandleState* const state = memory.state();
  state->weighted = args.settings.weights_at_dispatch;
  state->capacity = args.output.capacity < state->rows ? static_cast<uint32_t>(args.output.capacity) : state->rows;
}

// Grid verb: everything of the output that no row fills.
template <class Wire>
UCCLEP_FN void fill_rest(const Op& op, const HandleMemory& memory, const HtDispatchArgs& args) {
  note_dispatch(memory, args);
  if (op.group.reports_dropped != 0 && block_id() == 0 && thread_id() == 0) {
    report_dropped(op, memory.state()->rows, args.output.capacity);
  }
  count_rows<Wire>(op, memory, args.cumulative);
  if (args.output.zones == Zones::experts && memory.handle.tile_rows == 0) zero_pads(op, memory, args);
  const uint64_t rows = memory.state()->rows, capacity = args.output.capacity;
  mark_unused(args.output, 0, rows < capacity ? rows : capacity, args.settings.top_k, {block_id(), grid_size()});
}

}  // namespace ht
}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// A received row goes to the caller's output: where, with which ids, weights and scales, in every layout. What combine
// needs later (which local experts, where their copies lie, weights) is kept in the handle (P3).
#pragma once
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/exchange.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/meta.hpp"
#include "ucclep/device/rows/stage.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Where this lane's copy of the row goes. Expert layouts have a copy per local expert, the others one (lane 0's).
struct Target {
  bool active;
  int64_t outer, inner;
};

// Warp verb: notes the copies of one row for combine, experts ascending.
UCCLEP_FN void keep_entries(const HandleMemory& memory, uint32_t source, uint32_t place, const ReceivedSelection& s,
                            const Target& target, uint32_t local_expert, uint32_t top_k) {
  uint32_t order = 0;
  UCCLEP_KEEP_LOOP
  for (uint32_t k = 0; k < top_k; ++k) {
    const uint32_t other = broadcast(target.active ? local_expert : 0xffffffffu, k);
    if (other < local_expert) ++order;
  }
  if (target.active) {
    const uint32_t row = row_number(static_cast<uint64_t>(target.inner));
    memory.recv_entries(source, place)[order] = {row, local_expert, s.weight, lane_id()};
  }
  const uint32_t count = count_lanes(ballot(target.active));
  if (lane_id() == 0) memory.recv_count(source)[place] = count;
}

// A row that has arrived.
struct Arrival {
  uint32_t source, place, token;
};

// Is lane k's selection of a row an expert of this rank, and which.
UCCLEP_FN bool is_mine(const Op& op, const ReceivedSelection& s, uint32_t& local_expert) {
  const uint32_t local = op.group.shape.local_experts();
  local_expert = static_cast<uint32_t>(s.expert) - op.me() * local;
  return s.expert >= 0 && local_expert < local;
}

// Warp verb: is a row, that of its lowest expert here, of one of the waves.
UCCLEP_FN bool is_of_waves(const Op& op, const WaveRange& waves, const ReceivedSelection& selection) {
  if (waves.of == 1) return true;
  uint32_t expert = 0;
  const bool mine = is_mine(op, selection, expert);
  const uint32_t above = mine ? op.group.shape.local_experts() - expert : 0, most = reduce_max(above);
  const uint32_t wave = wave_of(op.group.shape.local_experts() - most, waves.of, op.group.shape.local_experts());
  return wave >= waves.first && wave < waves.end;
}

// Grid verb, in a send phase of a dispatch in waves: none of its rows has been received. Else a combine that begins
// before all are here would go by those of the dispatch before.
UCCLEP_FN void forget_received(const HandleMemory& memory) {
  const uint64_t rows = uint64_t{memory.shape.ranks} * memory.handle.tokens;
  for (uint64_t i = uint64_t{block_id()} * block_size() + thread_id(); i < rows;
       i += uint64_t{grid_size()} * block_size()) {
    memory.recv_count(0)[i] = 0;
  }
}

// Lane verb: the wave of the highest of a row's experts here, with which its sum is made. Of a row that has not been
// received there is none, and it is `waves`.
UCCLEP_FN uint32_t highest_wave(const HandleMemory& memory, uint32_t waves, uint32_t source, uint32_t place) {
  const uint32_t count = memory.recv_count(source)[place];
  if (count == 0) return waves;
  return wave_of(memory.recv_entries(source, place)[count - 1].expert, waves, memory.shape.local_experts());
}
// Warp verb: does it leave with the waves of a launch.
UCCLEP_FN bool leaves_in(const HandleMemory& memory, const WaveRange& waves, uint32_t source, uint32_t place) {
  if (waves.of == 1) return true;
  const uint32_t wave = uniform(highest_wave(memory, waves.of, source, place));
  return wave >= waves.first && wave < waves.end;
}

// Lane verb: which row of which rank it is.
UCCLEP_FN void store_source(const DispatchOutput& out, int64_t outer, int64_t inner, uint32_t source, uint32_t token) {
  if (!out.src_info.data) return;
  char* at = out.src_info.at(outer, inner);
  if (out.src_info.element_bytes == 8) {
    *reinterpret_cast<int64_t*>(at) = int64_t{source} << 32 | token;
  } else {
    *reinterpret_cast<int32_t*>(at) = static_cast<int32_t>(token);
  }
}

// Lane verb: id and weight of selection k of a row, if it is an expert of this rank.
UCCLEP_FN void store_topk(const Op& op, const DispatchOutput& out, int64_t outer, int64_t inner, uint32_t k,
                          const ReceivedSelection& s) {
  uint32_t expert = 0;
  const bool mine = is_mine(op, s, expert);
  if (out.topk_idx.data) {
    View row = out.topk_idx;
    row.data = row.at(outer, inner);
    store_index(row, 0, k, mine ? (out.global_ids ? s.expert : static_cast<int32_t>(expert)) : -1);
  }
  if (out.topk_weights.data) {
    *reinterpret_cast<float*>(out.topk_weights.at(outer, inner, k)) = mine ? s.weight : 0.0f;
  }
}

// Warp verb: where a row goes. base: the first row of the source, in the zone or slab of lane k's expert, or among all
// sources. A row at or past the capacity is dropped: no target, but its place stays counted.
UCCLEP_FN Target place_row(const Op& op, const DispatchOutput& out, const Arrival& arrival, const ReceivedSelection& s,
                           uint32_t base) {
  uint32_t expert = 0;
  const bool mine = is_mine(op, s, expert);
  Target target{};
  if (out.zones == Zones::sources) {
    target.active = lane_id() == 0;
    target.outer = out.ranked ? arrival.source : 0;
    target.inner = int64_t{base} + arrival.place;
  } else {
    target.active = mine;
    target.outer = out.zones == Zones::slabs ? expert : 0;
    if (mine) target.inner = int64_t{base} + s.position;
  }
  if (target.inner >= static_cast<int64_t>(out.capacity)) target.active = false;
  return target;
}

// Warp verb, after it, once for each row: ids, weights and src_info, and what combine needs. Tokens and scales are the
// caller's.
UCCLEP_FN void note_placed(const Op& op, const HandleMemory& memory, const DispatchOutput& out, const Arrival& arrival,
                           const ReceivedSelection& s, const Target& target) {
  if (out.zones != Zones::sources) {
    uint32_t expert = 0;
    const Target counted{is_mine(op, s, expert), target.outer, target.inner};
    keep_entries(memory, arrival.source, arrival.place, s, counted, expert, out.top_k);
  }
  if (target.active) {
    store_source(out, target.outer, target.inner, arrival.source, arrival.token);
    if (out.zones != Zones::sources && out.topk_weights.data) {
      *reinterpret_cast<float*>(out.topk_weights.at(target.outer, target.inner)) = s.weight;
    }
  }
  if (out.zones == Zones::sources && target.inner < static_cast<int64_t>(out.capacity)) {
    if (lane_id() < out.top_k) store_topk(op, out, target.outer, target.inner, lane_id(), s);
  }
}

// Warp verb: the scales of a row, packed at `from` (window or shared memory), to every target.
UCCLEP_FN void store_scales(const DispatchOutput& out, const char* from, const Target& target) {
  const uint32_t size = out.wire.scale_element_bytes;
  for (uint64_t left = ballot(target.active); left != 0; left &= left - 1) {
    const uint32_t lane = first_lane(left);
    const int64_t outer = broadcast(target.outer, lane);
    const int64_t inner = broadcast(target.inner, lane);
    for (uint32_t e = lane_id(); e < out.wire.scale_count; e += wave_size) {
      char* at = out.scales.at(outer, inner, e);
      for (uint32_t i = 0; i < size; ++i) at[i] = from[e * size + i];
    }
  }
}

// Warp verb: a row that lies in a window, BULK form or staging, and has been fetched.
UCCLEP_FN void deliver_row(Stage& stage, const DispatchOutput& out, const char* row, const Target& target) {
  char* destination = target.active ? out.tokens.at(target.outer, target.inner) : stage.scratch();
  stage.drain(row, out.wire.token_bytes, [&](const char* piece, uint64_t offset, uint32_t bytes) {
    bulk_store(target.active, destination + offset, piece, bytes);
  });
  if (out.wire.scale_count > 0) store_scales(out, row + out.wire.token_bytes, target);
}

// Blocks that share out work.
struct BlockShare {
  uint32_t first, step;
};

// Verb of those blocks: rows that hold nothing, from `rows` on. Up to the tensor's end the ids say so (-1, weight 0).
UCCLEP_FN void mark_unused(const DispatchOutput& out, int64_t outer, uint64_t rows, uint32_t top_k,
                           const BlockShare& share) {
  const uint64_t per_row = out.zones == Zones::sources ? top_k : 1;
  const uint64_t begin = rows * per_row, end = out.rows * per_row;
  for (uint64_t i = begin + share.first * block_size() + thread_id(); i < end;
       i += uint64_t{share.step} * block_size()) {
    const auto row = static_cast<int64_t>(i / per_row), k = static_cast<int64_t>(i % per_row);
    if (out.topk_weights.data) *reinterpret_cast<float*>(out.topk_weights.at(outer, row, k)) = 0.0f;
    if (out.topk_idx.data) {
      View ids = out.topk_idx;
      ids.data = ids.at(outer, row);
      store_index(ids, 0, k, -1);
    }
    if (k == 0 && out.ranked && out.src_info.data) {
      View info = out.src_info;
      info.data = info.at(outer, row);
      store_index(info, 0, 0, -1);
    }
  }
}

}  // namespace UCCLEP_SIMT_NAMESPACE

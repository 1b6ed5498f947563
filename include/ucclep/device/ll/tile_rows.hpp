// SPDX-License-Identifier: Apache-2.0
// What all who receive a dispatch of tiles look at: is a row here, and how many will come (ll/tiles.hpp, and of kernels
// of users device/tiles.hpp).
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/ll/inbox.hpp"
#include "ucclep/device/ll/row_lines.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/rows/quantised_batch.hpp"
#include "ucclep/device/rows/tiles.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// Of a row in LINE form, the last line of its meta, of a batch or of its scales.
UCCLEP_FN uint32_t last_line_of(const RowLines& lines, const WireShape& wire, uint32_t part) {
  if (part == 0) return lines.meta - 1;
  if (part > wire.batches) return lines.all() - 1;
  const uint32_t tokens = wire.batch_tokens(part - 1), first = lines.meta + (part - 1) * LineBatch::lines;
  if (wire.batch_scale_bytes != 0) return first + QuantisedBatch::last_line(tokens);
  return first + (tokens + line_payload - 1) / line_payload - 1;
}

// Lane verb: is all of a row here? index: as it lies. Of lines it looks at the last of each part, and the warp at all
// of them. seen: parts that were here before.
UCCLEP_FN bool row_arrived(const Op& op, const WireShape& wire, uint32_t source, Form form, uint32_t index,
                           uint32_t& seen) {
  if (form != Form::line) {
    const char* const meta = op.mine() + op.group.layout.ll_meta_of(op.slot, source);
    const MetaLayout layout = MetaLayout::of(op.group.shape.top_k);
    const auto* const epoch = reinterpret_cast<const uint64_t*>(meta + uint64_t{index} * layout.bytes + layout.epoch);
    return load_acquire<Scope::system>(epoch) == op.seq;
  }
  const RowLines lines = RowLines::of(op.group.shape, wire);
  const char* const row =
      op.mine() + op.group.layout.ll_lines_of(op.slot, source) + uint64_t{index} * lines.all() * line_bytes;
  const bool apart = wire.scale_count > 0 && wire.batch_scale_bytes == 0;
  const uint32_t parts = wire.batches + (apart ? 2 : 1);
  for (; seen < parts; ++seen) {
    const char* const line = row + uint64_t{last_line_of(lines, wire, seen)} * line_bytes;
    if (load_relaxed<Scope::system>(reinterpret_cast<const uint64_t*>(line + line_payload)) != op.seq) return false;
  }
  return true;
}

// Warp verb: the counts of a source that sends so many rows, whose header has begun to arrive. False: they did not
// come, or no rank can have them.
UCCLEP_FN bool expect_rows(const Op& op, const HandleMemory& memory, uint32_t source, uint32_t rows) {
  const Tiles tiles{memory};
  const uint32_t local = op.group.shape.local_experts();
  bool ok = true;
  for (uint32_t l = 2 * lane_id(); l < local; l += 2 * wave_size) {
    uint64_t counts = 0;
    ok = ok && wait_packet(op, Phase::header, source, counts_packet(op, source, l), counts);
    if (larger_count(counts) > op.group.shape.ll_tokens) {
      report_count(op, source, larger_count(counts), op.group.shape.ll_tokens);
      ok = false;
    }
    fetch_add_relaxed<Scope::gpu>(tiles.expected() + l, static_cast<uint32_t>(counts));
    if (l + 1 < local) fetch_add_relaxed<Scope::gpu>(tiles.expected() + l + 1, static_cast<uint32_t>(counts >> 32));
  }
  if (!every_lane(ok)) return false;
  sync_warp();
  if (lane_id() == 0) store_release<Scope::gpu>(tiles.from() + source, rows);
  const bool all = lane_id() == 0 && source_closed(tiles);
  sync_warp();
  if (ballot(all) != 0) {
    close_tiles(tiles, tiles.at().slab, {lane_id(), wave_size});
    announce_tiles(tiles, tiles.at().slab);
  }
  return true;
}

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE

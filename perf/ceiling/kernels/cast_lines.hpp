// SPDX-License-Identifier: Apache-2.0
// LL dispatch of bf16 rows that become fp8 with a scale for each 128 elements on their way, at its simplest: a unit is
// a batch of the row (rows/quantised_batch.hpp), made once and stored to each rank that wants it.
#pragma once
#include "ceiling/kernels/lines.hpp"
#include "ucclep/device/rows/quantised_batch.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// A row as it arrives: its elements, then its scales.
struct CastShape {
  uint32_t elements, batches;
  uint32_t row_bytes;
  UCCLEP_FN CastShape(const CeilingCopyArgs& args)
      : elements(args.row_bytes / ceiling_group_bytes * quant_group),
        batches((elements + line_batch_quantised - 1) / line_batch_quantised),
        row_bytes(args.row_bytes) {}
};

struct CastUnit {
  size_t row;
  uint32_t batch;
  uint32_t first, count;  // of the row's elements

  UCCLEP_FN CastUnit(const CastShape& shape, uint32_t unit) : row(unit / shape.batches), batch(unit % shape.batches) {
    first = batch * line_batch_quantised;
    const uint32_t left = shape.elements - first;
    count = left < line_batch_quantised ? left : line_batch_quantised;
  }

  UCCLEP_FN char* lines_at(const LineRound& r, const CastShape& shape, uint32_t rank, size_t place) const {
    const size_t index = place * shape.batches + batch;
    return reinterpret_cast<char*>(r.args.windows[rank] + r.landing) + index * LinePackets::lines * line_bytes;
  }
};

// Each token to every rank that wants it.
UCCLEP_FN void send_cast(const LineRound& r) {
  const CastShape shape(r.args);
  const RowSource source{};  // its scales are floats that were not rounded
  const uint32_t ranks = r.args.ranks, units = r.args.tokens * shape.batches;
  for (uint32_t index = grid_warp(); index < units; index += grid_warps()) {
    const CastUnit unit(shape, index);
    const int32_t places = lane_id() < ranks ? r.args.places[unit.row * ranks + lane_id()] : -1;
    const auto* row = reinterpret_cast<const char*>(r.input) + unit.row * shape.elements * sizeof(uint16_t);
    QuantisedBatch::Raw raw;
    raw.read(row + unit.first * sizeof(uint16_t), unit.count);
    QuantisedBatch batch;
    batch.quantise(source, raw);
    for (uint32_t k = 0; k < ranks; ++k) {
      const uint32_t peer = (r.args.rank + 1 + k) % ranks;
      const int32_t place = broadcast(places, peer);
      if (place >= 0) batch.send(unit.lines_at(r, shape, peer, place), unit.count, r.epoch);
    }
  }
}

// Warp verb: a batch to a row of the output.
UCCLEP_FN void write_cast(const CastShape& shape, const CastUnit& unit, const QuantisedBatch& batch, char* row) {
  batch.write(row + unit.first, unit.count);
  const uint32_t scale = batch.scale(lane_id() % QuantisedBatch::groups);
  auto* scales = reinterpret_cast<uint32_t*>(row + shape.elements) + unit.first / quant_group;
  if (lane_id() < unit.count / quant_group) scales[lane_id()] = scale;
}

// What arrives to each of its copies.
UCCLEP_FN bool receive_cast(const LineRound& r) {
  const CastShape shape(r.args);
  const uint32_t units = r.args.received * shape.batches;
  for (uint32_t index = grid_warp(); index < units; index += grid_warps()) {
    const CastUnit unit(shape, index);
    const int32_t copies = copy_of(r.args, static_cast<uint32_t>(unit.row));
    const char* lines = unit.lines_at(r, shape, r.args.rank, unit.row);
    QuantisedBatch batch;
    const auto look = [&] {
      batch.peek(lines, unit.count);
      return batch.arrived(unit.count, r.epoch);
    };
    if (!wait_lines(look, r.wait)) return false;
    batch.settle();
    for (uint64_t left = ballot(copies >= 0); left != 0; left &= left - 1) {
      const size_t row = broadcast(copies, first_lane(left));
      write_cast(shape, unit, batch, reinterpret_cast<char*>(r.args.output) + row * shape.row_bytes);
    }
  }
  return true;
}

}  // namespace UCCLEP_SIMT_NAMESPACE

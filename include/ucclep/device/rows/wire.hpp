// SPDX-License-Identifier: Apache-2.0
// A row on the wire: its tokens, then its scales, padded to 16 bytes. Here it is made from the caller's tensors (as it
// stands, or quantised to fp8), and sent to several ranks at once.
#pragma once
#include "ucclep/device/arch/numeric.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/rows/stage.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Where one row goes. Every lane with `active` has a destination of its own.
struct RowSink {
  bool active;
  char* destination;  // of other lanes: any memory

  // Warp verb: starts to copy a piece to that offset of the row.
  UCCLEP_FN void put(const char* smem, uint64_t offset, uint32_t bytes) const {
    bulk_store(active, destination + offset, smem, bytes);
  }
};

// Warp verb: bytes [begin, begin + count) of a row's scales, which have any stride, one after the other into shared
// memory. What is past the last scale is zero.
UCCLEP_FN void gather_scales(const RowSource& source, uint32_t token, uint32_t begin, uint32_t count, char* smem) {
  const uint32_t size = source.wire.scale_element_bytes;
  for (uint32_t b = lane_id() * size; b < count; b += wave_size * size) {
    const uint32_t element = (begin + b) / size;
    const char* from = source.scales.at(0, token, element);
    for (uint32_t i = 0; i < size; ++i) smem[b + i] = element < source.wire.scale_count ? from[i] : char{0};
  }
}

// Sends a row as it stands, to a RowSink or what has its put, in BULK form. `fetch` may come long before `send`, which
// every fetched row needs. Scales of a usual number have a place of their own, and come while the tokens do.
struct ForwardRow {
  static UCCLEP_FN void fetch(Stage& stage, const RowSource& source, uint32_t token) {
    stage.fetch(source.tokens.at(0, token), source.wire.token_bytes);
    if (few_scales(source)) gather_scales(source, token, 0, padded(source), stage.scales());
  }
  template <class Sink>
  static UCCLEP_FN void send(Stage& stage, const RowSource& source, uint32_t token, const Sink& sink) {
    stage.drain(source.tokens.at(0, token), source.wire.token_bytes,
                [&](char* piece, uint64_t offset, uint32_t bytes) { sink.put(piece, offset, bytes); });
    if (few_scales(source)) {
      smem_to_bulk();
      sink.put(stage.scales(), source.wire.token_bytes, padded(source));
    } else {
      send_many_scales(stage, source, token, sink);
    }
  }

 private:
  static UCCLEP_FN uint32_t padded(const RowSource& source) { return source.wire.row_bytes - source.wire.token_bytes; }
  static UCCLEP_FN bool few_scales(const RowSource& source) {
    return padded(source) != 0 && padded(source) <= StageShape::scales_bytes;
  }
  template <class Sink>
  static UCCLEP_FN void send_many_scales(Stage& stage, const RowSource& source, uint32_t token, const Sink& sink) {
    const uint32_t padded = ForwardRow::padded(source);
    for (uint32_t offset = 0; offset < padded; offset += stage.piece_bytes()) {
      const uint32_t bytes = padded - offset < stage.piece_bytes() ? padded - offset : stage.piece_bytes();
      bulk_wait_read();
      gather_scales(source, token, offset, bytes, stage.slot(0));
      smem_to_bulk();
      sink.put(stage.slot(0), source.wire.token_bytes + offset, bytes);
    }
  }
};

}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// A row on the wire: its tokens, then its scales, padded to 16 bytes. Here it is made from the caller's tensors (as it
// stands, or quantised to fp8), and sent to several ranks at once.
#pragma once
#include "ucclep/device/arch/numeric.hpp"
#include "ucclep/device/rows/stage.hpp"

namespace ucclep {

struct WireShape {
  uint32_t token_bytes;          // of a row, a multiple of 16
  uint32_t scale_count;          // elements of scales per row
  uint32_t scale_element_bytes;  // 1, 2, 4 or 8
  uint32_t row_bytes;            // tokens and padded scales
  // In LINE form a batch carries batch_bytes of the tokens and the batch_scale_bytes of their scales, the last batch
  // what is left of both. batch_scale_bytes 0: scales have lines of their own.
  uint32_t batch_bytes, batch_scale_bytes;
  uint32_t batches;

  // Bytes of tokens in a batch.
  UCCLEP_HD constexpr uint32_t batch_tokens(uint32_t index) const {
    const uint32_t left = token_bytes - index * batch_bytes;
    return left < batch_bytes ? left : batch_bytes;
  }
  UCCLEP_HD constexpr uint32_t scale_bytes() const { return scale_count * scale_element_bytes; }
  static constexpr WireShape of(uint32_t token_bytes, uint32_t scale_count, uint32_t scale_element_bytes) {
    const auto scales = static_cast<uint32_t>(round_up(uint64_t{scale_count} * scale_element_bytes, 16));
    const uint32_t batches = (token_bytes + line_batch_bytes - 1) / line_batch_bytes;
    return {token_bytes, scale_count, scale_element_bytes, token_bytes + scales, line_batch_bytes, 0, batches};
  }
  // The same for rows that are quantised on their way; group_scale_bytes: of 128 elements.
  constexpr WireShape quantised(uint32_t group_scale_bytes) const {
    WireShape shape = *this;
    shape.batch_bytes = line_batch_quantised;
    shape.batch_scale_bytes = line_batch_quantised / 128 * group_scale_bytes;
    shape.batches = (token_bytes + line_batch_quantised - 1) / line_batch_quantised;
    return shape;
  }
};

}  // namespace ucclep

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

// The rows of one dispatch as the caller gives them.
struct RowSource {
  View tokens, scales;
  WireShape wire;
  bool round_scale;   // of fp8 quantisation
  bool scale_powers;  // scales are e8m0 exponents, one byte each
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
                [&](const char* piece, uint64_t offset, uint32_t bytes) { sink.put(piece, offset, bytes); });
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

// SPDX-License-Identifier: Apache-2.0
// A row on the wire: its tokens, then its scales, padded to 16 bytes. Here it is made from the caller's tensors (as it
// stands, or quantised to fp8), and sent to several ranks at once.
#pragma once
#include "ucclep/device/numeric.hpp"
#include "ucclep/device/stage.hpp"

namespace ucclep {

struct WireShape {
  uint32_t token_bytes;          // of a row, a multiple of 16
  uint32_t scale_count;          // elements of scales per row
  uint32_t scale_element_bytes;  // 1, 2, 4 or 8
  uint32_t row_bytes;            // tokens and padded scales

  UCCLEP_HD constexpr uint32_t scale_bytes() const { return scale_count * scale_element_bytes; }
  static constexpr WireShape of(uint32_t token_bytes, uint32_t scale_count, uint32_t scale_element_bytes) {
    const auto scales = static_cast<uint32_t>(round_up(uint64_t{scale_count} * scale_element_bytes, 16));
    return {token_bytes, scale_count, scale_element_bytes, token_bytes + scales};
  }
  // Lines of a row: tokens and scales each begin a line.
  UCCLEP_HD constexpr uint64_t row_lines(const GroupShape& s) const {
    return lines_of(s, token_bytes) + lines_of(s, row_bytes - token_bytes);
  }
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {

// Where the pieces of one row go. Every lane with `active` has a destination of its own.
struct RowSink {
  Form form;
  bool active;
  char* destination;  // BULK: the row; LINE: its first line. Of other lanes: any memory
  uint64_t epoch;

  // Warp verb. `offset` counts from the start of a segment (tokens, scales) that begins at byte `bulk` of the row and
  // at line `line`; it is a multiple of the line's payload.
  UCCLEP_FN void put(const char* smem, uint64_t offset, uint32_t bytes, uint64_t bulk, uint64_t line) const {
    if (form == Form::bulk) {
      bulk_store(active, destination + bulk + offset, smem, bytes);
      return;
    }
    const uint64_t at = (line + offset / line_payload) * line_bytes;
    for (uint64_t left = ballot(active); left != 0; left &= left - 1) {
      const uint64_t to = broadcast(reinterpret_cast<uint64_t>(destination), first_lane(left));
      line_store(reinterpret_cast<char*>(to) + at, smem, bytes, epoch);
    }
    sync_warp();  // all lanes have read the piece: it may be overwritten
  }
};

// The rows of one dispatch as the caller gives them.
struct RowSource {
  View tokens, scales;
  WireShape wire;
  bool round_scale;   // of fp8 quantisation
  bool scale_powers;  // scales are e8m0 exponents, one byte each
};

// Sends a row as it stands, to a RowSink or what has its put. `fetch` may come long before `send`, which every fetched
// row needs.
struct ForwardRow {
  static UCCLEP_FN void fetch(Stage& stage, const RowSource& source, uint32_t token) {
    stage.fetch(source.tokens.at(0, token), source.wire.token_bytes);
  }
  template <class Sink>
  static UCCLEP_FN void send(Stage& stage, const RowSource& source, uint32_t token, const Sink& sink) {
    stage.drain(source.tokens.at(0, token), source.wire.token_bytes,
                [&](const char* piece, uint64_t offset, uint32_t bytes) { sink.put(piece, offset, bytes, 0, 0); });
    if (source.wire.scale_count > 0) send_scales(stage, source, token, sink);
  }

 private:
  // Scales have any stride: gathered element by element.
  template <class Sink>
  static UCCLEP_FN void send_scales(Stage& stage, const RowSource& source, uint32_t token, const Sink& sink) {
    const uint32_t size = source.wire.scale_element_bytes;
    const uint32_t padded = source.wire.row_bytes - source.wire.token_bytes;
    const uint64_t first_line = ceil_div(source.wire.token_bytes, line_payload);
    for (uint32_t offset = 0; offset < padded; offset += stage.piece_bytes()) {
      const uint32_t bytes = padded - offset < stage.piece_bytes() ? padded - offset : stage.piece_bytes();
      bulk_wait_read();
      char* piece = stage.slot(0);
      for (uint32_t b = lane_id() * size; b < bytes; b += wave_size * size) {
        const uint32_t element = (offset + b) / size;
        const char* from = source.scales.at(0, token, element);
        for (uint32_t i = 0; i < size; ++i) piece[b + i] = element < source.wire.scale_count ? from[i] : char{0};
      }
      smem_to_bulk();
      sink.put(piece, offset, bytes, source.wire.token_bytes, first_line);
    }
  }
};

// bf16 in, e4m3 out with one scale per 128 elements (UCCLEP_QUANT_FP8_128). A group of 16 lanes has 8 elements each. A
// piece is quantised where it lies: element i is read from bytes 2i, 2i + 1 and written to byte i.
struct QuantiseRow {
  static constexpr uint32_t group = 128, per_lane = 8, group_lanes = group / per_lane;

  static UCCLEP_FN void fetch(Stage& stage, const RowSource& source, uint32_t token) {
    stage.fetch(source.tokens.at(0, token), 2 * source.wire.token_bytes);
  }
  template <class Sink>
  static UCCLEP_FN void send(Stage& stage, const RowSource& source, uint32_t token, const Sink& sink) {
    const uint32_t hidden = source.wire.token_bytes;  // one byte an element
    const uint32_t padded = source.wire.row_bytes - hidden;
    char* scales = stage.scales();
    bulk_wait_read();  // a store of the row before may still read them
    for (uint32_t b = lane_id(); b < padded; b += wave_size) scales[b] = 0;
    sync_warp();
    stage.drain(source.tokens.at(0, token), 2 * hidden, [&](char* piece, uint64_t offset, uint32_t bytes) {
      const auto first = static_cast<uint32_t>(offset / 2);
      quantise_piece(source, piece, first, bytes / 2, scales);
      smem_to_bulk();
      sink.put(piece, first, bytes / 2, 0, 0);
    });
    smem_to_bulk();
    sink.put(scales, 0, padded, hidden, ceil_div(hidden, line_payload));
  }

 private:
  static UCCLEP_FN uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

  // Elements [first, first + count) of the row.
  static UCCLEP_FN void quantise_piece(const RowSource& source, char* piece, uint32_t first, uint32_t count,
                                       char* scales) {
    UCCLEP_KEEP_LOOP
    for (uint32_t e = 0; e < count; e += wave_size * per_lane) {
      const uint32_t at = e + lane_id() * per_lane;
      const bool used = at < count;
      vec16 x{};
      if (used) x = load16(piece + 2 * at);
      sync_warp();  // all have read what is now written over
      const uint64_t packed = quantise(source, x, used, first + at, scales);
      if (used) *reinterpret_cast<uint64_t*>(piece + at) = packed;
      sync_warp();
    }
  }

  // This lane's 8 elements; lanes that are not used only take part in the shuffles.
  static UCCLEP_FN uint64_t quantise(const RowSource& source, const vec16& x, bool used, uint32_t element,
                                     char* scales) {
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
    // The largest |x| has the largest bits without the sign; a NaN is larger than all and makes the whole group NaN.
    uint32_t top = 0;
    for (uint32_t w : words) top = larger(top, larger(w & 0x7fff, w >> 16 & 0x7fff));
    for (uint32_t mask = group_lanes / 2; mask > 0; mask /= 2) top = larger(top, shfl_xor(top, mask));
    const float floor = 1e-4f;
    float a = from_bf16(static_cast<uint16_t>(top));
    if (a < floor) a = floor;
    const float fine = a / 448.0f;
    const uint8_t power = to_e8m0_up(fine);
    const float scale = source.round_scale ? from_e8m0(power) : fine;
    const float inverse = 448.0f / a;
    uint64_t packed = 0;
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < per_lane / 2; ++i) {
      const float low = from_bf16(static_cast<uint16_t>(words[i]));
      const float high = from_bf16(static_cast<uint16_t>(words[i] >> 16));
      const bool exact = source.round_scale;
      const uint32_t pair = to_e4m3_pair(exact ? low / scale : low * inverse, exact ? high / scale : high * inverse);
      packed |= uint64_t{pair} << (16 * i);
    }
    if (used && element % group == 0) {
      if (source.scale_powers) {
        scales[element / group] = static_cast<char>(power);
      } else {
        reinterpret_cast<float*>(scales)[element / group] = scale;
      }
    }
    return packed;
  }
};

}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// bf16 in, e4m3 out with one scale per 128 elements (UCCLEP_QUANT_FP8_128), on the way to the wire.
#pragma once
#include "ucclep/device/arch/numeric.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/rows/stage.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

constexpr uint32_t quant_group = 128;  // elements that share a scale
constexpr uint32_t quant_per_lane = 8;

UCCLEP_FN uint32_t larger(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

// What a lane makes of its elements, 8 a vector.
template <uint32_t vectors>
struct Quantised {
  uint64_t packed[vectors];
  uint32_t scale;  // of the group: the bits of a float, or the exponent

  // Lane verb, for one lane of group g: to element g of a row's scales.
  UCCLEP_FN void keep_scale(const RowSource& source, char* scales, uint32_t g) const {
    if (source.scale_powers) {
      scales[g] = static_cast<char>(scale);
    } else {
      reinterpret_cast<uint32_t*>(scales)[g] = scale;
    }
  }
};

// Warp verb: a group is the lanes side by side that hold it. Lanes without elements only take part in the shuffles.
template <uint32_t vectors>
UCCLEP_FN Quantised<vectors> quantise_group(const RowSource& source, const vec16 (&x)[vectors]) {
  constexpr uint32_t lanes = quant_group / (quant_per_lane * vectors);
  // The largest |x| has the largest bits without the sign; a NaN is larger than all and makes the whole group NaN. They
  // are compared with those of the other half of the word below them, which decide nothing.
  uint32_t top = 0;
  for (const vec16& v : x) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    for (uint32_t w : words) top = larger(top, larger(w << 1, w << 17));
  }
  for (uint32_t mask = lanes / 2; mask > 0; mask /= 2) top = larger(top, shfl_xor(top, mask));
  const float floor = 1e-4f;
  float a = from_bf16(static_cast<uint16_t>(top >> 17));
  if (a < floor) a = floor;
  const float fine = a / 448.0f;
  const uint8_t power = to_e8m0_up(fine);
  const float scale = source.round_scale ? from_e8m0(power) : fine;
  // A power of two has an exact inverse: to multiply by it is to divide by the scale.
  const float inverse = (source.round_scale ? 1.0f : 448.0f) / (source.round_scale ? scale : a);
  Quantised<vectors> made{{}, source.scale_powers ? uint32_t{power} : float_bits(scale)};
  UCCLEP_UNROLL
  for (uint32_t v = 0; v < vectors; ++v) {
    const uint32_t words[4] = {x[v].x, x[v].y, x[v].z, x[v].w};
    UCCLEP_UNROLL
    for (uint32_t i = 0; i < quant_per_lane / 2; ++i) {
      const float low = from_bf16(static_cast<uint16_t>(words[i]));
      const float high = from_bf16(static_cast<uint16_t>(words[i] >> 16));
      const uint32_t pair = to_e4m3_pair(low * inverse, high * inverse);
      made.packed[v] |= uint64_t{pair} << (16 * i);
    }
  }
  return made;
}

// Quantises and sends a row in BULK form. A piece is quantised where it lies: element i is read from bytes 2i, 2i + 1
// and written to byte i.
struct QuantiseRow {
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
      sink.put(piece, first, bytes / 2);
    });
    smem_to_bulk();
    sink.put(scales, hidden, padded);
  }

 private:
  // Elements [first, first + count) of the row.
  static UCCLEP_FN void quantise_piece(const RowSource& source, char* piece, uint32_t first, uint32_t count,
                                       char* scales) {
    UCCLEP_KEEP_LOOP
    for (uint32_t e = 0; e < count; e += wave_size * quant_per_lane) {
      const uint32_t at = e + lane_id() * quant_per_lane;
      const bool used = at < count;
      vec16 x[1] = {};
      if (used) x[0] = load16(piece + 2 * at);
      sync_warp();  // all have read what is now written over
      const Quantised<1> made = quantise_group(source, x);
      if (used) *reinterpret_cast<uint64_t*>(piece + at) = made.packed[0];
      if (used && (first + at) % quant_group == 0) made.keep_scale(source, scales, (first + at) / quant_group);
      sync_warp();
    }
  }
};

}  // namespace UCCLEP_SIMT_NAMESPACE

// SPDX-License-Identifier: Apache-2.0
// The meta line of a row (MetaLayout): written by the source, read where the row arrives.
#pragma once
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/routing.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Lane k's weight of a token; 0 where there is none. top_k: columns of topk_weights.
UCCLEP_FN float weight_of(uint32_t top_k, const View& topk_weights, uint32_t token, const Selection& selection) {
  if (lane_id() >= top_k || selection.expert < 0 || !topk_weights.data) return 0;
  return *reinterpret_cast<const float*>(topk_weights.at(0, token, lane_id()));
}

// Warp verb: the body of a token's meta in shared memory, ready for a bulk_store. weight: lane k's.
UCCLEP_FN void build_meta(const GroupShape& shape, uint32_t token, const Selection& selection, float weight,
                          char* meta) {
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  const uint32_t k = lane_id();
  for (uint32_t i = k; i < layout.body_bytes() / 4; i += wave_size) reinterpret_cast<uint32_t*>(meta)[i] = 0;
  sync_warp();
  if (k == 0) *reinterpret_cast<uint32_t*>(meta) = token;
  if (k < shape.top_k) {
    const bool valid = selection.expert >= 0;
    reinterpret_cast<float*>(meta + layout.weights)[k] = weight;
    reinterpret_cast<uint32_t*>(meta + layout.positions)[k] = selection.position;
    reinterpret_cast<uint16_t*>(meta + layout.experts)[k] = valid ? static_cast<uint16_t>(selection.expert) : no_expert;
  }
  smem_to_bulk();
}

// Warp verb: 8 bytes of the same body at an offset of each lane's own, of selections and weights that lanes have.
UCCLEP_FN uint64_t meta_word_of_lanes(const GroupShape& shape, uint32_t token, const Selection& selection, float weight,
                                      uint32_t offset) {
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  const uint32_t weight_bits = selection.expert >= 0 ? __builtin_bit_cast(uint32_t, weight) : 0;
  const uint32_t expert = lane_id() >= shape.top_k ? 0
                          : selection.expert >= 0  ? static_cast<uint16_t>(selection.expert)
                                                   : no_expert;
  uint32_t halves[2];
  UCCLEP_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t at = offset + 4 * i, pair = (at - layout.experts) / 2;
    const uint32_t of_weight = shfl(weight_bits, (at - layout.weights) / 4 % wave_size);
    const uint32_t of_position = shfl(selection.position, (at - layout.positions) / 4 % wave_size);
    const uint32_t low = shfl(expert, pair % wave_size), high = shfl(expert, (pair + 1) % wave_size);
    halves[i] = at == 0                 ? token
                : at < layout.weights   ? 0
                : at < layout.positions ? of_weight
                : at < layout.experts   ? of_position
                : pair < shape.top_k    ? low | (pair + 1 < shape.top_k ? high << 16 : 0)
                                        : 0;
  }
  return halves[0] | uint64_t{halves[1]} << 32;
}

// Lane verb: 8 bytes of the same body, for those who have no warp to build it. weights: K of the token, or NULL.
UCCLEP_FN uint64_t meta_word(const HandleMemory& memory, uint32_t token, const float* weights, uint32_t offset) {
  const uint32_t top_k = memory.shape.top_k;
  const MetaLayout layout = MetaLayout::of(top_k);
  const auto* experts = memory.at<int32_t>(memory.handle.offsets.topk) + uint64_t{token} * top_k;
  const auto* positions = memory.at<uint32_t>(memory.handle.offsets.positions) + uint64_t{token} * top_k;
  const auto expert = [&](uint32_t k) -> uint32_t {
    if (k >= top_k) return 0;
    return experts[k] >= 0 ? static_cast<uint16_t>(experts[k]) : no_expert;
  };
  const auto half = [&](uint32_t at) -> uint32_t {
    if (at == 0) return token;
    if (at < layout.weights) return 0;
    if (at >= layout.experts) {
      const uint32_t k = (at - layout.experts) / 2;
      return expert(k) | expert(k + 1) << 16;
    }
    if (at >= layout.positions) return positions[(at - layout.positions) / 4];
    const uint32_t k = (at - layout.weights) / 4;
    return weights != nullptr && experts[k] >= 0 ? reinterpret_cast<const uint32_t*>(weights)[k] : 0;
  };
  return half(offset) | uint64_t{half(offset + 4)} << 32;
}

// Lane k's view of a received row.
struct ReceivedSelection {
  int32_t expert = -1;  // global; -1: none
  float weight = 0;
  uint32_t position = 0;
};

// Lane verb: selection k of a row whose meta lies in memory (window or shared).
UCCLEP_FN ReceivedSelection read_selection(const GroupShape& shape, const char* meta, uint32_t k) {
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  ReceivedSelection s;
  if (k >= shape.top_k) return s;
  const uint16_t expert = reinterpret_cast<const uint16_t*>(meta + layout.experts)[k];
  if (expert == no_expert) return s;
  s.expert = expert;
  s.weight = reinterpret_cast<const float*>(meta + layout.weights)[k];
  s.position = reinterpret_cast<const uint32_t*>(meta + layout.positions)[k];
  return s;
}
// Warp verb: lane k's.
UCCLEP_FN ReceivedSelection read_meta(const GroupShape& shape, const char* meta) {
  return read_selection(shape, meta, lane_id());
}

UCCLEP_FN uint32_t meta_token(const char* meta) {
  return *reinterpret_cast<const uint32_t*>(meta);
}

}  // namespace UCCLEP_SIMT_NAMESPACE

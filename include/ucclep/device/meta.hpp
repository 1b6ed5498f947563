// SPDX-License-Identifier: Apache-2.0
// The meta line of a row (MetaLayout): written by the source, read where the row arrives.
#pragma once
#include "ucclep/device/routing.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Lane k's weight of a token; 0 where there is none.
UCCLEP_FN float weight_of(const GroupShape& shape, const View& topk_weights, uint32_t token,
                          const Selection& selection) {
  if (lane_id() >= shape.top_k || selection.expert < 0 || !topk_weights.data) return 0;
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

// Lane k's view of a received row.
struct ReceivedSelection {
  int32_t expert = -1;  // global; -1: none
  float weight = 0;
  uint32_t position = 0;
};

// Warp verb: reads a meta body that lies in memory (window or shared).
UCCLEP_FN ReceivedSelection read_meta(const GroupShape& shape, const char* meta) {
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  ReceivedSelection s;
  const uint32_t k = lane_id();
  if (k >= shape.top_k) return s;
  const uint16_t expert = reinterpret_cast<const uint16_t*>(meta + layout.experts)[k];
  if (expert == no_expert) return s;
  s.expert = expert;
  s.weight = reinterpret_cast<const float*>(meta + layout.weights)[k];
  s.position = reinterpret_cast<const uint32_t*>(meta + layout.positions)[k];
  return s;
}

UCCLEP_FN uint32_t meta_token(const char* meta) {
  return *reinterpret_cast<const uint32_t*>(meta);
}

}  // namespace UCCLEP_SIMT_NAMESPACE

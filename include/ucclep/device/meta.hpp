// SPDX-License-Identifier: Apache-2.0
// The meta line of a row (MetaLayout): written by the source, read where the row arrives.
#pragma once
#include "ucclep/device/routing.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Warp verb: the body of a token's meta in shared memory, ready for a bulk_store.
UCCLEP_FN void build_meta(const GroupShape& shape, const View& topk_weights, uint32_t token, const Selection& selection,
                          char* meta) {
  const MetaLayout layout = MetaLayout::of(shape.top_k);
  const uint32_t k = lane_id();
  for (uint32_t i = k; i < layout.body_bytes() / 4; i += wave_size) reinterpret_cast<uint32_t*>(meta)[i] = 0;
  sync_warp();
  if (k == 0) *reinterpret_cast<uint32_t*>(meta) = token;
  if (k < shape.top_k) {
    const bool valid = selection.expert >= 0;
    float weight = 0;
    if (valid && topk_weights.data) weight = *reinterpret_cast<const float*>(topk_weights.at(0, token, k));
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

// SPDX-License-Identifier: Apache-2.0
#include "host/plan.hpp"

#include <algorithm>

#include "ucclep/device/stage.hpp"

namespace ucclep {
namespace {

// A lane of the host device is a fibre of a CPU thread: a few warps keep a core as busy as many would. On a GPU 16
// warps hide the latency of the links.
constexpr unsigned host_warps = 4;
// One piece holds a usual row on the host, where a piece is one memcpy. On GPUs 4 KB already run at the links' speed.
constexpr uint32_t host_piece_bytes = 15360, gpu_piece_bytes = 3840;
constexpr size_t scan_scratch_bytes = 1024;

unsigned blocks(const DeviceTraits& traits, int call_num_sms, int group_num_sms) {
  const int asked = call_num_sms > 0 ? call_num_sms : group_num_sms;
  return asked > 0 ? std::min(static_cast<unsigned>(asked), traits.num_sms) : traits.num_sms;
}

unsigned threads(const DeviceTraits& traits) {
  const unsigned most = traits.max_block / traits.wave;
  return traits.wave * (traits.kind == UCCLEP_DEVICE_HOST ? std::min(host_warps, most) : most);
}

}  // namespace

LaunchPlan plan_rows(const DeviceTraits& traits, int call_num_sms, int group_num_sms) {
  LaunchPlan plan;
  plan.shape.grid = blocks(traits, call_num_sms, group_num_sms);
  plan.shape.block = threads(traits);
  const unsigned warps = plan.shape.block / traits.wave;
  const size_t fixed = StageShape::bytes_per_warp(0);
  const size_t space = traits.shared_bytes / warps;
  const auto fits = static_cast<uint32_t>(space > fixed ? (space - fixed) / 2 : 0);
  const uint32_t wanted = traits.kind == UCCLEP_DEVICE_HOST ? host_piece_bytes : gpu_piece_bytes;
  constexpr uint32_t unit = StageShape::piece_unit;
  plan.piece_bytes = std::max(unit, std::min(wanted, fits) / unit * unit);
  plan.shape.shared_bytes = StageShape::bytes_per_warp(plan.piece_bytes) * warps;
  return plan;
}

LaunchShape plan_routing(const DeviceTraits& traits, int call_num_sms, int group_num_sms) {
  return {blocks(traits, call_num_sms, group_num_sms), threads(traits), scan_scratch_bytes};
}

}  // namespace ucclep

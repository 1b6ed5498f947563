// SPDX-License-Identifier: Apache-2.0
#include "host/plan.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "ucclep/device/ht_routing.hpp"
#include "ucclep/device/stage.hpp"

namespace ucclep {
namespace {

// A lane of the host device is a fibre of a CPU thread: a few warps keep a core as busy as many would. On a GPU 16
// warps hide the latency of the links.
constexpr unsigned host_warps = 4;
// On the host a piece is a few memcpys. On GPUs 4 KB already run at the links' speed.
constexpr uint32_t host_piece_bytes = 7680, gpu_piece_bytes = 3840;
constexpr unsigned enough_warps = 8;  // before pieces are made smaller
constexpr size_t block_scan_bytes = 1024;

unsigned blocks(const DeviceTraits& traits, int asked) {
  return asked > 0 ? std::min(static_cast<unsigned>(asked), traits.num_sms) : traits.num_sms;
}

unsigned threads(const DeviceTraits& traits) {
  const unsigned most = traits.max_block / traits.wave;
  return traits.wave * (traits.kind == UCCLEP_DEVICE_HOST ? std::min(host_warps, most) : most);
}

}  // namespace

LaunchPlan plan_rows(const DeviceTraits& traits, int num_sms, size_t tables) {
  const unsigned most = threads(traits) / traits.wave;
  const size_t space = traits.shared_bytes > tables ? traits.shared_bytes - tables : 0;
  constexpr uint32_t unit = StageShape::piece_unit;
  LaunchPlan plan;
  plan.piece_bytes = traits.kind == UCCLEP_DEVICE_HOST ? host_piece_bytes : gpu_piece_bytes;
  const auto fit = [&] { return static_cast<unsigned>(space / StageShape::bytes_per_warp(plan.piece_bytes)); };
  while (fit() < std::min(most, enough_warps) && plan.piece_bytes > unit) plan.piece_bytes -= unit;
  const unsigned warps = std::min(most, fit());
  if (warps == 0) {
    fail(ucclEpNotSupported, "{} gives a block {} bytes of shared memory, too few for its tables of {}", traits.name,
         traits.shared_bytes, tables);
  }
  plan.shape.grid = blocks(traits, num_sms);
  plan.shape.block = traits.wave * warps;
  plan.shape.shared_bytes = StageShape::bytes_per_warp(plan.piece_bytes) * warps + tables;
  return plan;
}

RoutingPlan plan_routing(const DeviceTraits& traits, const GroupShape& shape, int num_sms) {
  RoutingPlan plan;
  plan.shape = {blocks(traits, num_sms), threads(traits), traits.shared_bytes};
  plan.scanners = scanners_of(traits, shape, plan.shape);
  plan.shape.shared_bytes =
      std::max(block_scan_bytes, ht::ScanTables::bytes(shape) + plan.scanners * ht::ScanTables::bytes_per_warp(shape));
  return plan;
}

uint32_t scanners_of(const DeviceTraits& traits, const GroupShape& shape, const LaunchShape& launch) {
  const uint64_t tables = ht::ScanTables::bytes(shape), of_warp = ht::ScanTables::bytes_per_warp(shape);
  if (launch.shared_bytes < tables + of_warp) {
    fail(ucclEpNotSupported, "routing among {} experts needs {} bytes of shared memory, {} gives a block {}",
         shape.experts, tables + of_warp, traits.name, launch.shared_bytes);
  }
  return static_cast<uint32_t>(
      std::min<uint64_t>((launch.shared_bytes - tables) / of_warp, launch.block / traits.wave));
}

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
#include "host/group/plan.hpp"

#include <algorithm>
#include <ranges>

#include "base/error.hpp"
#include "ucclep/device/ht/routing.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep {
namespace {

// A lane of the host device is a fibre of a CPU thread: a few warps keep a core as busy as many would. On a GPU 16
// warps hide the latency of the links.
constexpr unsigned host_warps = 4;
// On the host a piece is a few memcpys. On GPUs 4 KB already run at the links' speed.
constexpr uint32_t host_piece_bytes = 7680, gpu_piece_bytes = 3840;
constexpr unsigned enough_warps = 8;  // before pieces are made smaller
constexpr size_t block_scan_bytes = 1024;

// By default some SMs stay free: an operation of another group finds one there while this one waits for peers, which
// may be waiting in that other operation.
unsigned blocks(const DeviceTraits& traits, int asked) {
  const unsigned most = std::min(traits.num_sms, TurnWord::max_blocks);
  if (asked > 0) return std::min(static_cast<unsigned>(asked), most);
  const unsigned reserve = most > 1 ? std::max(1u, most / 32) : 0;
  return most - reserve;
}

unsigned threads(const DeviceTraits& traits) {
  const unsigned max = traits.max_block / traits.wave;
  return traits.wave * (traits.kind == UCCLEP_DEVICE_HOST ? std::min(host_warps, max) : max);
}

}  // namespace

LaunchPlan plan_rows(const DeviceTraits& traits, int num_sms, size_t tables, Moves moves) {
  const unsigned max = threads(traits) / traits.wave;
  const size_t space = traits.shared_bytes > tables ? traits.shared_bytes - tables : 0;
  constexpr uint32_t unit = StageShape::piece_unit;
  LaunchPlan plan;
  plan.piece_bytes = moves == Moves::lines               ? line_batch_bytes
                     : traits.kind == UCCLEP_DEVICE_HOST ? host_piece_bytes
                                                         : gpu_piece_bytes;
  const auto fit = [&] { return static_cast<unsigned>(space / StageShape::bytes_per_warp(plan.piece_bytes)); };
  while (fit() < std::min(max, enough_warps) && plan.piece_bytes > unit) plan.piece_bytes -= unit;
  const unsigned warps = std::min(max, fit());
  if (warps == 0) {
    fail(ucclEpNotSupported,
         "a block of {} has {} bytes of shared memory, but the group's tables need {}: use fewer ranks or experts",
         traits.name, traits.shared_bytes, tables);
  }
  plan.shape.grid = blocks(traits, num_sms);
  plan.shape.block = traits.wave * warps;
  plan.shape.shared_bytes = StageShape::bytes_per_warp(plan.piece_bytes) * warps + tables;
  return plan;
}

bool has_blocks_of_two_warps(const DeviceTraits& traits, uint32_t ranks) {
  const uint64_t needed = exposed_table_bytes(ranks) + 2 * StageShape::bytes_per_warp(StageShape::piece_unit);
  return traits.max_block >= 2 * traits.wave && traits.shared_bytes >= needed;
}

RoutingPlan plan_routing(const DeviceTraits& traits, const GroupShape& shape, int num_sms, uint32_t tokens) {
  constexpr uint32_t unit = 32;
  RoutingPlan plan;
  plan.shape = plan_counting(traits, num_sms);
  const uint64_t of_unit = ht::ScanTables::bytes(shape, unit) - ht::ScanTables::counts_bytes(shape);
  const uint64_t fit = (traits.shared_bytes - ht::ScanTables::counts_bytes(shape)) / of_unit * unit;
  const uint64_t wanted = round_up(ht::ScanShares::of(tokens, plan.shape.grid).of_block, unit);
  plan.set_tokens = static_cast<uint32_t>(std::min(fit, wanted));
  plan.shape.shared_bytes = std::max(block_scan_bytes, ht::ScanTables::bytes(shape, plan.set_tokens));
  return plan;
}

LaunchShape plan_counting(const DeviceTraits& traits, int num_sms) {
  return {blocks(traits, num_sms), threads(traits), block_scan_bytes};
}

// A counter for each expert behind what a scan needs: an Update has room for two.
LaunchShape plan_expert_map(const DeviceTraits& traits, const GroupShape& shape) {
  return {1, threads(traits), block_scan_bytes + sizeof(uint32_t) * shape.experts};
}

namespace {

// What a block needs at least: the tables of either mode, and one warp's stage.
uint64_t needed_shared_bytes(const GroupShape& shape) {
  const uint64_t tables = std::max(uint64_t{BlockTableLayout::of(shape).bytes}, exposed_table_bytes(shape.ranks));
  return tables + StageShape::bytes_per_warp(StageShape::piece_unit);
}

}  // namespace

uint32_t max_ranks_of(const DeviceTraits& traits) {
  const auto fits = [&](uint32_t ranks) {
    GroupShape shape{};
    shape.ranks = shape.experts = ranks;
    shape.local = Divisor(1);
    return needed_shared_bytes(shape) <= traits.shared_bytes;
  };
  const auto ranks = std::views::iota(1u, max_ranks + 1);
  return static_cast<uint32_t>(std::ranges::partition_point(ranks, fits) - ranks.begin());
}

void check_launchable(const DeviceTraits& traits, const GroupShape& shape) {
  const uint64_t needed = needed_shared_bytes(shape);
  if (needed <= traits.shared_bytes) return;
  fail(ucclEpNotSupported,
       "{} ranks with {} experts and ll_max_tokens_per_rank {} need {} bytes of shared memory in a block, but {} has "
       "{}: use at most {} ranks, fewer experts, or fewer tokens in LL",
       shape.ranks, shape.experts, shape.ll_tokens, needed, traits.name, traits.shared_bytes, max_ranks_of(traits));
}

uint32_t max_experts_of(const DeviceTraits& traits, uint32_t ranks, const NodeShape& nodes) {
  GroupShape shape{};
  shape.nodes = nodes;
  shape.ranks = ranks;
  const auto fits = [&](uint32_t of_rank) {
    shape.local = Divisor(of_rank);
    shape.experts = of_rank * ranks;
    return ht::ScanTables::bytes(shape, chunk_tokens) <= traits.shared_bytes;
  };
  const auto of_rank = std::views::iota(1u, max_experts / ranks + 1);
  return static_cast<uint32_t>(std::ranges::partition_point(of_rank, fits) - of_rank.begin()) * ranks;
}

}  // namespace ucclep

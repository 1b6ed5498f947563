// SPDX-License-Identifier: Apache-2.0
#include "host/group/group_shape.hpp"

#include <algorithm>
#include <bit>
#include <ranges>
#include <span>

#include "base/error.hpp"
#include "host/group/plan.hpp"
#include "ucclep/device/layout/masks.hpp"
#include "ucclep/device/layout/network_view.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep {
namespace {

constexpr int default_in_flight = 2, max_signals = 65536;

// P15: operations whose rows fit here per source travel as LINE. Where a line is all but full of data it spares a fence
// and a flag for 7 % more bytes (docs/tuning.md), so all that decoding sends; elsewhere a line costs twice its bytes,
// so only what is small.
constexpr uint64_t full_line_capacity = 4 * 1024 * 1024, half_line_capacity = 16 * 1024;

void check_range(const char* field, int64_t value, int64_t min, int64_t max) {
  if (value < min || value > max) {
    fail(ucclEpInvalidArgument, "config.{} is {}, expected {} to {}", field, value, min, max);
  }
}

// Each field may be within its limits and their product not: offsets are 64-bit.
void check_window(const ucclEpGroupConfig_t& config, int nranks) {
  constexpr double max = 0x1p56, bytes_per_selection = 64;
  const double tokens = std::max(config.max_tokens_per_rank, config.ll_max_tokens_per_rank);
  if (tokens * nranks > max_rows) {
    fail(ucclEpInvalidArgument,
         "max_tokens_per_rank {} and ll_max_tokens_per_rank {} on {} ranks exceed the rows that a rank can receive, "
         "{}: choose smaller limits",
         config.max_tokens_per_rank, config.ll_max_tokens_per_rank, nranks, max_rows);
  }
  const double row = static_cast<double>(config.max_token_bytes) + bytes_per_selection * config.top_k;
  const double bytes = 4 * tokens * row * nranks * std::max(config.max_in_flight, default_in_flight);
  if (bytes > max) {
    fail(ucclEpInvalidArgument,
         "max_tokens_per_rank {} and ll_max_tokens_per_rank {} with max_token_bytes {} on {} ranks need {:.1e} bytes "
         "per rank: choose smaller limits",
         config.max_tokens_per_rank, config.ll_max_tokens_per_rank, config.max_token_bytes, nranks, bytes);
  }
}

// Ranks with different counts of experts are for later.
void check_experts_per_rank(const ucclEpGroupConfig_t& config, int nranks) {
  if (config.experts_per_rank == nullptr) return;
  const std::span counts(config.experts_per_rank, static_cast<size_t>(nranks));
  int64_t sum = 0;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] < 0) {
      fail(ucclEpInvalidArgument, "config.experts_per_rank[{}] is {}, expected 0 or more", rank, counts[rank]);
    }
    sum += counts[rank];
  }
  if (sum != config.num_experts) {
    fail(ucclEpInvalidArgument, "config.num_experts is {}, expected {}, the sum of config.experts_per_rank",
         config.num_experts, sum);
  }
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] == counts[0]) continue;
    fail(ucclEpNotSupported,
         "config.experts_per_rank[{}] is {} and [0] is {}: this version needs as many experts on each rank, so give "
         "equal counts or NULL",
         rank, counts[rank], counts[0]);
  }
}

}  // namespace

ucclEpGroupConfig_t checked_config(const ucclEpGroupConfig_t& given, int nranks, const DeviceTraits& traits,
                                   const NodeShape& nodes) {
  ucclEpGroupConfig_t config = given;
  check_range("top_k", config.top_k, 1, max_top_k);
  check_range("num_sms", config.num_sms, 0, INT32_MAX);
  check_range("num_experts", config.num_experts, 1, max_experts_of(traits, static_cast<uint32_t>(nranks), nodes));
  check_experts_per_rank(config, nranks);
  config.experts_per_rank = nullptr;  // the caller's
  if (config.num_experts % nranks != 0) {
    fail(ucclEpInvalidArgument, "config.num_experts is {}, expected a multiple of the {} ranks", config.num_experts,
         nranks);
  }
  check_range("max_tokens_per_rank", config.max_tokens_per_rank, 1, max_tokens);
  check_range("ll_max_tokens_per_rank", config.ll_max_tokens_per_rank, 0, max_tokens);
  check_range("max_token_bytes", config.max_token_bytes, 1, INT32_MAX / 2);
  check_range("max_recv_tokens_per_rank", config.max_recv_tokens_per_rank, 0, INT64_MAX);
  check_range("timeout_ms", config.timeout_ms, 0, INT32_MAX);
  check_range("enable_mask", config.enable_mask, 0, 1);
  check_range("window_bytes", config.window_bytes, 0, INT64_MAX);
  check_range("overflow", config.overflow, UCCLEP_OVERFLOW_ERROR, UCCLEP_OVERFLOW_DROP);
  check_range("num_signals", config.num_signals, 0, max_signals);
  // Each has a physical expert at least.
  check_range("num_logical_experts", config.num_logical_experts, 0, config.num_experts);
  check_range("replica_choice", config.replica_choice, UCCLEP_REPLICA_ROUND_ROBIN, UCCLEP_REPLICA_NEAREST);
  if (config.max_in_flight != 0) check_range("max_in_flight", config.max_in_flight, default_in_flight, max_in_flight);
  if ((config.alloc_fn == nullptr) != (config.free_fn == nullptr)) {
    fail(ucclEpInvalidArgument, "config.{} is NULL, but the other allocator function is not: set both or none",
         config.alloc_fn == nullptr ? "alloc_fn" : "free_fn");
  }
  check_window(config, nranks);
  config.max_in_flight = config.max_in_flight == 0 ? default_in_flight : std::bit_ceil(unsigned(config.max_in_flight));
  if (config.num_logical_experts == 0) config.num_logical_experts = config.num_experts;
  if (config.ll_max_tokens_per_rank == 0) config.ll_max_tokens_per_rank = config.max_tokens_per_rank;
  return config;
}

namespace {

// Rounds begin at multiples of it, where not all tokens fit into one.
constexpr uint32_t round_unit = 32;
constexpr uint64_t usual_window_bytes = 512ull << 20;  // of HT (docs/tuning.md)

GroupShape with_round(GroupShape shape, uint32_t tokens) {
  shape.ht_tokens = tokens;
  shape.pool_rows = shape.recv_rows < uint64_t{shape.ranks} * tokens ? shape.recv_rows : 0;
  return shape;
}

uint64_t bytes_of_windows(const GroupShape& shape) {
  const WindowLayout layout = WindowLayout::of(shape);
  return layout.bytes + layout.network_bytes;
}

// The most tokens of a round, of at most the shape's, with which windows have no more bytes.
uint32_t tokens_of_round(const GroupShape& shape, uint64_t bytes) {
  const uint32_t all = shape.ht_tokens;
  const auto fits = [&](uint32_t tokens) { return bytes_of_windows(with_round(shape, tokens)) <= bytes; };
  if (fits(all)) return all;
  const auto units = std::views::iota(1u, all / round_unit + 1);
  const auto larger = std::ranges::partition_point(units, [&](uint32_t n) { return fits(n * round_unit); });
  return std::max(std::min(all, round_unit), static_cast<uint32_t>(larger - units.begin()) * round_unit);
}

GroupShape whole_shape(const ucclEpGroupConfig_t& config, int nranks, const DeviceTraits& traits,
                       const NodeShape& nodes) {
  GroupShape shape{};
  shape.ranks = static_cast<uint32_t>(nranks);
  shape.experts = static_cast<uint32_t>(config.num_experts);
  shape.local = Divisor(shape.experts / shape.ranks);
  shape.top_k = static_cast<uint32_t>(config.top_k);
  shape.in_flight = static_cast<uint32_t>(config.max_in_flight);
  shape.ht_tokens = static_cast<uint32_t>(config.max_tokens_per_rank);
  shape.ll_tokens = static_cast<uint32_t>(config.ll_max_tokens_per_rank);
  shape.recv_rows = max_rows;
  if (config.max_recv_tokens_per_rank != 0) {
    shape.recv_rows = static_cast<uint32_t>(std::min(config.max_recv_tokens_per_rank, int64_t{max_rows}));
  }
  shape.whole_bytes = traits.whole_bytes;
  const bool lines_whole = shape.whole_bytes >= traits.line_bytes;
  shape.line_bytes = lines_whole ? traits.line_bytes : unsigned{sizeof(Packet)};
  shape.signals = static_cast<uint32_t>(config.num_signals);
  shape.token_bytes = round_up(static_cast<uint64_t>(config.max_token_bytes), 16);
  shape.nodes = nodes;
  shape.networked = nodes.nodes > 0 ? 1 : 0;
  shape.masked = static_cast<uint32_t>(config.enable_mask);
  shape.stages_puts = shape.networked != 0 && !traits.nics_reach ? 1 : 0;
  shape.relay_stages = shape.stages_puts != 0 && shape.masked == 0 && nodes.most > 1 ? 1 : 0;
  if (shape.networked != 0 || !lines_whole) {
    shape.ll_bulk_tokens = shape.ll_tokens;
    return shape;
  }
  const bool full = 8 * traits.line_payload >= 7 * traits.line_bytes;
  const uint64_t all_lines = shape.ll_tokens * max_lines_per_row(shape) * shape.line_bytes;
  shape.line_capacity = std::min(all_lines, full ? full_line_capacity : half_line_capacity);
  shape.ll_bulk_tokens = all_lines <= shape.line_capacity ? 0 : shape.ll_tokens;
  return shape;
}

}  // namespace

bool has_rounds(const GroupShape& shape, const DeviceTraits& traits) {
  return shape.masked == 0 && has_blocks_of_two_warps(traits, shape.ranks);
}

GroupShape shape_of(const ucclEpGroupConfig_t& config, int nranks, const DeviceTraits& traits, const NodeShape& nodes) {
  const GroupShape shape = whole_shape(config, nranks, traits, nodes);
  if (!has_rounds(shape, traits)) return with_round(shape, shape.ht_tokens);
  const uint64_t asked = static_cast<uint64_t>(config.window_bytes),
                 bytes = asked != 0 ? asked : bytes_of_windows(with_round(shape, 1)) + usual_window_bytes;
  return with_round(shape, tokens_of_round(shape, bytes));
}

void check_window_bytes(const ucclEpGroupConfig_t& config, const GroupShape& shape) {
  const uint64_t needed = bytes_of_windows(shape);
  if (config.window_bytes == 0 || needed <= static_cast<uint64_t>(config.window_bytes)) return;
  fail(ucclEpInvalidArgument,
       "config.window_bytes (UCCLEP_WINDOW_BYTES) is {}, but the group needs {}, with {} tokens of each rank in HT and "
       "{} in LL: raise it, or lower ll_max_tokens_per_rank or max_in_flight",
       config.window_bytes, needed, shape.ht_tokens, shape.ll_tokens);
}

WorkspaceLayout WorkspaceLayout::of(const GroupShape& shape) {
  constexpr uint64_t unit = 128;
  WorkspaceLayout at{};
  at.windows = round_up(GroupState::bytes(shape), unit);
  at.channel = round_up(at.windows + sizeof(char*) * shape.ranks * (1 + shape.networked), unit);
  at.masks = round_up(at.channel + ChannelState::bytes(shape), unit);
  at.network = at.masks + (shape.masked != 0 ? GroupMasks::bytes(shape.ranks) : 0);
  at.tables = at.bytes = at.network;
  if (shape.networked != 0) {
    at.network = round_up(at.network, unit);
    at.tables = at.network + sizeof(NetworkView);
    at.bytes = at.tables + NetworkTables::bytes(shape);
  }
  at.zeros = round_up(at.bytes, unit);
  at.bytes = at.zeros + shape.token_bytes;
  return at;
}

}  // namespace ucclep

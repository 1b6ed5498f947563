// SPDX-License-Identifier: Apache-2.0
#include "host/group/handle.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <thread>

#include "base/best_effort.hpp"
#include "bootstrap/roll_call.hpp"
#include "host/api/group.hpp"
#include "host/boundary/guard.hpp"
#include "host/boundary/structs.hpp"
#include "host/boundary/tensor.hpp"
#include "host/boundary/views.hpp"
#include "host/group/group_shape.hpp"
#include "host/group/masks.hpp"
#include "host/group/phases.hpp"
#include "host/operations/update.hpp"
#include "ucclep/device/layout/handle.hpp"

namespace ucclep {
namespace {

// AUTO is a function of the group's config and the layout only, never of T (P14).
constexpr int auto_low_latency_tokens = 256;

int resolved_mode(int mode, int layout, const ucclEpGroupConfig_t& group) {
  if (mode != UCCLEP_MODE_AUTO) return mode;
  if (layout == UCCLEP_LAYOUT_RANK_MAJOR) return UCCLEP_MODE_LL;
  if (layout == UCCLEP_LAYOUT_FLAT) return UCCLEP_MODE_HT;
  return group.max_tokens_per_rank <= auto_low_latency_tokens ? UCCLEP_MODE_LL : UCCLEP_MODE_HT;
}

void check_config(const ucclEpHandleConfig_t& config) {
  if (config.mode < UCCLEP_MODE_AUTO || config.mode > UCCLEP_MODE_HT) {
    fail(ucclEpInvalidArgument, "config.mode is {}, expected one of UCCLEP_MODE_*", config.mode);
  }
  if (config.layout < UCCLEP_LAYOUT_EXPERT_MAJOR || config.layout > UCCLEP_LAYOUT_TILES) {
    fail(ucclEpInvalidArgument, "config.layout is {}, expected one of UCCLEP_LAYOUT_*", config.layout);
  }
  if (config.expert_ids != UCCLEP_EXPERT_IDS_LOCAL && config.expert_ids != UCCLEP_EXPERT_IDS_GLOBAL) {
    fail(ucclEpInvalidArgument, "config.expert_ids is {}, expected one of UCCLEP_EXPERT_IDS_*", config.expert_ids);
  }
  const int alignment = config.expert_alignment;
  constexpr int max = 1 << 20;
  if (alignment < 0 || alignment > max || (alignment != 0 && !std::has_single_bit(static_cast<unsigned>(alignment)))) {
    fail(ucclEpInvalidArgument, "config.expert_alignment is {}, expected a power of two up to {}, or 0", alignment,
         max);
  }
  if (config.waves < 0 || config.waves > static_cast<int>(max_waves)) {
    fail(ucclEpInvalidArgument, "config.waves is {}, expected 0 to {}", config.waves, max_waves);
  }
  if (config.waves > 1 && config.layout != UCCLEP_LAYOUT_EXPERT_MAJOR) {
    fail(ucclEpInvalidArgument, "config.waves is {}, but waves are only supported with EXPERT_MAJOR", config.waves);
  }
}

constexpr int default_tile_rows = 128, min_tile_rows = 16, max_tile_rows = 256;

void check_tiles(const ucclEpGroup& group, int mode, const ucclEpHandleConfig_t& config) {
  const int rows = config.tile_rows;
  if (config.layout != UCCLEP_LAYOUT_TILES) {
    if (rows == 0) return;
    fail(ucclEpInvalidArgument, "config.tile_rows is {}, but only UCCLEP_LAYOUT_TILES has tiles: leave it 0", rows);
  }
  if (rows != 0 &&
      (rows < min_tile_rows || rows > max_tile_rows || !std::has_single_bit(static_cast<unsigned>(rows)))) {
    fail(ucclEpInvalidArgument,
         "config.tile_rows is {}, expected a power of two from {} to {}, or 0 for the default of {}", rows,
         min_tile_rows, max_tile_rows, default_tile_rows);
  }
  if (config.expert_alignment != 0) {
    fail(ucclEpInvalidArgument, "config.expert_alignment is {}, but with TILES it must be 0: an expert has whole tiles",
         config.expert_alignment);
  }
  if (group.mask_words) {
    fail(ucclEpNotSupported,
         "config.layout is TILES, which is not supported in groups with enable_mask: use EXPERT_MAJOR");
  }
  if (mode == UCCLEP_MODE_LL && group.shape().networked != 0) {
    fail(ucclEpNotSupported,
         "config.layout is TILES, which is not supported in LL groups whose ranks are in several domains: use "
         "EXPERT_MAJOR, or UCCLEP_MODE_HT");
  }
}

// Tokens of an operation, at most.
uint32_t max_tokens_of(const ucclEpGroup& group, int mode, int64_t asked) {
  const GroupShape& shape = group.shape();
  const int64_t usual = group.tokens_of_mode(mode);
  if (mode == UCCLEP_MODE_HT && asked > usual && !has_rounds(shape, group.comm->traits)) {
    fail(ucclEpNotSupported,
         "config.max_tokens is {}, expected at most max_tokens_per_rank = {}: groups {} run an operation in one round",
         asked, usual, shape.masked != 0 ? "with enable_mask" : "of this many ranks");
  }
  const int64_t rounds = int64_t{max_rounds} * shape.ht_tokens, rows = max_rows / shape.ranks;
  const int64_t most = mode == UCCLEP_MODE_LL ? usual : std::min({rounds, rows, max_tokens});
  if (asked < 0 || asked > most) {
    fail(ucclEpInvalidArgument, "config.max_tokens is {}, expected 0 to {}{}", asked, most,
         mode == UCCLEP_MODE_LL ? ", the group's maximum of LL tokens" : "");
  }
  return static_cast<uint32_t>(asked == 0 ? usual : asked);
}

void check_layout(int mode, const ucclEpHandleConfig_t& config) {
  const bool low_latency = mode == UCCLEP_MODE_LL;
  if (config.layout == (low_latency ? UCCLEP_LAYOUT_FLAT : UCCLEP_LAYOUT_RANK_MAJOR)) {
    fail(ucclEpNotSupported,
         "config.layout is {}, which is not supported in {} mode: LL supports EXPERT_MAJOR, RANK_MAJOR and TILES, HT "
         "supports EXPERT_MAJOR, FLAT and TILES",
         low_latency ? "FLAT" : "RANK_MAJOR", low_latency ? "LL" : "HT");
  }
  if (config.expert_alignment > 1 && (low_latency || config.layout != UCCLEP_LAYOUT_EXPERT_MAJOR)) {
    fail(ucclEpInvalidArgument, "config.expert_alignment is {}, but it is only supported with HT EXPERT_MAJOR",
         config.expert_alignment);
  }
}

// Which handles may continue with a routing that memory holds: those of the group with these settings. Never 0.
uint32_t stamp_of(const ucclEpGroup& group, const HandleView& view) {
  uint64_t hash = group.serial;
  for (const uint64_t setting :
       {uint64_t(view.mode), uint64_t(view.layout), uint64_t(view.expert_ids), uint64_t{view.expert_alignment},
        uint64_t{view.tokens}, uint64_t{view.waves}, uint64_t{view.tile_rows}}) {
    hash = (hash ^ setting) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return static_cast<uint32_t>(hash) | 1;
}

// The settings of a handle that kernels see; its memory comes later.
HandleView settings_of(const ucclEpGroup& group, const ucclEpHandleConfig_t& config) {
  check_config(config);
  const int mode = resolved_mode(config.mode, config.layout, group.config);
  check_layout(mode, config);
  check_tiles(group, mode, config);
  HandleView d{};
  d.mode = mode;
  d.layout = config.layout;
  d.expert_ids = config.expert_ids;
  d.expert_alignment = static_cast<uint32_t>(std::max(1, config.expert_alignment));
  d.waves = static_cast<uint32_t>(std::max(1, config.waves));
  d.tokens = max_tokens_of(group, mode, config.max_tokens);
  d.rounds = mode == UCCLEP_MODE_LL ? 1 : rounds_of(group.shape(), d.tokens);
  if (d.layout == UCCLEP_LAYOUT_TILES) {
    d.tile_rows = static_cast<uint32_t>(config.tile_rows != 0 ? config.tile_rows : default_tile_rows);
    if (mode == UCCLEP_MODE_HT) d.expert_alignment = d.tile_rows;
  }
  d.offsets = HandleLayout::of(group.shape(), d.tokens, mode == UCCLEP_MODE_LL, d.waves, d.tile_rows);
  d.stamp = stamp_of(group, d);
  return d;
}

std::shared_ptr<HostCounts> make_counts(const ucclEpGroup& group) {
  Device& device = *group.comm->device;
  const size_t bytes = sizeof(HostCounts) + sizeof(int64_t) * group.shape().local_experts();
  return {static_cast<HostCounts*>(device.alloc_host(bytes)), [&device](HostCounts* counts) {
            best_effort("handle", "counts of a handle were not freed", [&] { device.free_host(counts); });
          }};
}

constexpr uint64_t memory_unit = 128;  // the caller's memory may be aligned to less

uint64_t memory_bytes(const HandleView& view) {
  return view.offsets.bytes + memory_unit;
}

// The caller's memory, if the caller has given any.
char* checked_memory(const ucclEpHandleConfig_t& config, const HandleView& view) {
  TensorView memory = optional_tensor(config.handle_mem, "config.handle_mem");
  if (!memory.given()) return nullptr;
  const auto bytes = static_cast<int64_t>(memory_bytes(view));
  memory.dtype({ucclEpUint8})
      .shape({at_least(bytes, "the bytes that ucclEpHandleMemSize returns")})
      .adjacent_elements();
  const auto address = reinterpret_cast<uintptr_t>(view_of(memory).data);
  return reinterpret_cast<char*>(round_up(address, memory_unit));
}

// What the memory holds already, as far as this group has filled it with such a handle. Otherwise nothing yet; and
// what other handles had where it lies is gone.
std::shared_ptr<KnownRouting> routing_in(ucclEpGroup& group, const HandleView& view,
                                         const std::shared_ptr<HostCounts>& counts) {
  std::vector<ucclEpGroup::HandleMemory>& all = group.handle_memories;
  const uint64_t bytes = view.offsets.bytes;
  for (const ucclEpGroup::HandleMemory& one : all) {
    if (one.data == view.memory && one.stamp == view.stamp) return one.routing;
  }
  std::erase_if(all, [&](const ucclEpGroup::HandleMemory& one) {
    return one.data < view.memory + bytes && view.memory < one.data + one.bytes;
  });
  auto routing = std::make_shared<KnownRouting>();
  routing->counts = counts;
  all.push_back({view.memory, bytes, view.stamp, routing});
  return routing;
}

ucclEpHandle_t create_handle(ucclEpGroup& group, const ucclEpHandleConfig_t& config) {
  auto handle = std::make_unique<ucclEpHandle>(group);
  HandleView& d = handle->device;
  d = settings_of(group, config);
  d.memory = checked_memory(config, d);
  release_retired(group);
  const std::shared_ptr<HostCounts> counts = make_counts(group);
  if (d.memory != nullptr) {
    handle->new_counts = counts;
    handle->routing = routing_in(group, d, counts);
  } else {
    handle->memory = Workspace(*group.comm->device, group.config, d.offsets.bytes, std::vector<char>(d.offsets.zeroed),
                               deadline_of(group));
    d.memory = handle->memory.data();
    handle->routing = std::make_shared<KnownRouting>();
    handle->routing->counts = counts;
  }
  for (const Kind kind : {Kind::dispatch, Kind::combine}) {
    if (d.tile_rows == 0) break;
    handle->services[static_cast<uint32_t>(kind)] = std::make_shared<TileService>(*group.comm->device);
  }
  handle->enlist(ObjectKind::handle, group.comm);
  group.handles.push_back(handle.get());
  return handle.release();
}

// Where user kernels keep copies of rows: the first handle that wants it makes it, for all of the group.
char* copies_for(const ucclEpHandle& handle) {
  if (handle.low_latency() || zones_of(handle) == Zones::sources) return nullptr;
  ucclEpGroup& group = *handle.group;
  if (group.copies.data() == nullptr) {
    refuse_in_capture(*group.comm);
    const CopyTables tables = CopyTables::of(group.shape());
    group.copies = Workspace(*group.comm->device, group.config, tables.bytes, std::vector<char>(tables.zeroed),
                             deadline_of(group));
  }
  return group.copies.data();
}

// The counts of the Update that ended last, unless one is under way. The kernel's release store of the sequence orders
// the counts before it; when it is the same after they were read, they belong together.
bool try_read(const ucclEpHandle& handle, std::vector<int64_t>& counts) {
  HostCounts& shared = *handle.routing->counts;
  const uint64_t sequence = load(shared.sequence);
  if (sequence % 2 != 0 || sequence < handle.routing->awaited_sequence ||
      load(shared.call) < handle.routing->updates_called)
    return false;
  counts.assign(1, load(shared.rows));
  for (uint32_t l = 0; l < handle.group->shape().local_experts(); ++l) {
    counts.push_back(load(shared.rows_of_experts()[l]));
  }
  return load(shared.sequence) == sequence;
}

// With masks the kernel may have to wait for one lost rank after the other.
[[noreturn]] void fail_late(const ucclEpGroup& group, const Deadline& deadline) {
  std::vector<int> masked;
  for (uint32_t rank = 0; group.mask_words && rank < group.shape().ranks; ++rank) {
    if (is_masked(group, rank)) masked.push_back(static_cast<int>(rank));
  }
  fail(ucclEpTimeout, "the last ucclEpHandleUpdate did not complete within {} ms{}", deadline.total_ms(),
       masked.empty() ? "" : "; masked so far: " + name_ranks(masked));
}

// Rows in all, then of each local expert.
std::vector<int64_t> wait_counts(ucclEpHandle& handle) {
  const ucclEpGroup& group = *handle.group;
  const ucclEpComm& comm = *group.comm;
  const Deadline deadline = deadline_of(group);
  constexpr auto poll_interval = std::chrono::microseconds(50);
  std::vector<int64_t> counts;
  while (!try_read(handle, counts)) {
    comm.faults->throw_if_fatal();
    // The kernel's own deadline ends at about the same time: its record names who is missing.
    if (deadline.with_grace().expired()) fail_late(group, deadline);
    std::this_thread::sleep_for(poll_interval);
  }
  if (counts.front() < 0) {
    const ucclEpAsyncError_t error = comm.faults->current();
    fail(ucclEpInvalidArgument, "the last ucclEpHandleUpdate failed: {}", error.text);
  }
  // A replay changes them again without a call.
  handle.routing->known_rows = handle.routing->captured ? -1 : counts.front();
  return counts;
}

}  // namespace

void destroy_handle(ucclEpHandle_t handle) {
  handle->withdraw();
  ucclEpGroup& group = *handle->group;
  if (handle->routing.use_count() == 1) forget_captured_phase(*handle);
  group.handles.erase(std::find(group.handles.begin(), group.handles.end(), handle));
  // An operation in flight still uses the memory: it goes when the group is idle.
  group.retired.push_back({std::move(handle->memory), handle->routing});
  best_effort("handle", "a handle's memory is not freed before its group is destroyed",
              [&] { release_retired(group); });
  delete handle;
}

}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpHandleCreate(ucclEpHandle_t* handle, ucclEpGroup_t group, const ucclEpHandleConfig_t* config) {
  return guarded("ucclEpHandleCreate", group, [&] {
    require(handle, "handle");
    refuse_in_capture(*usable(group).comm);
    *handle = create_handle(usable(group), read_struct(config, "config"));
  });
}

ucclEpResult_t ucclEpHandleDestroy(ucclEpHandle_t handle) {
  return guarded_destroying("ucclEpHandleDestroy", handle, [&] { destroy_handle(handle); });
}

ucclEpResult_t ucclEpHandleMemSize(ucclEpGroup_t group, const ucclEpHandleConfig_t* config, size_t* bytes) {
  return guarded("ucclEpHandleMemSize", group, [&] {
    require(bytes, "bytes");
    *bytes = memory_bytes(settings_of(usable(group), read_struct(config, "config")));
  });
}

ucclEpResult_t ucclEpHandleWaitCounts(ucclEpHandle_t handle, int64_t* recv_total, int64_t* tokens_per_expert) {
  return guarded("ucclEpHandleWaitCounts", handle, [&] {
    ucclEpHandle& h = usable(handle);
    require(recv_total, "recv_total");
    if (h.low_latency())
      fail(ucclEpInvalidUsage,
           "an LL handle has no counts before its dispatch: ucclEpHandleWaitCounts needs an HT handle");
    if (!h.routing->updated) fail(ucclEpInvalidUsage, "the handle has no routing: call ucclEpHandleUpdate first");
    refuse_in_capture(*h.group->comm);
    const std::vector<int64_t> counts = wait_counts(h);
    if (tokens_per_expert != nullptr) std::copy(counts.begin() + 1, counts.end(), tokens_per_expert);
    *recv_total = counts.front();
  });
}

ucclEpResult_t ucclEpHandleGetDevice(ucclEpHandle_t handle, ucclEpDeviceHandle* out) {
  return guarded("ucclEpHandleGetDevice", handle, [&] {
    const ucclEpHandle& h = usable(handle);
    if (h.memory.data() == nullptr) {
      fail(ucclEpNotSupported,
           "the handle uses config.handle_mem, which user kernels do not support: create the handle without it");
    }
    check_device_struct(out);
    char* const copies = copies_for(h);
    out->group = h.group->device;
    out->view = h.device;
    out->copies = copies;
  });
}

ucclEpResult_t ucclEpHandleGetTiles(ucclEpHandle_t handle, ucclEpTiles_t* out) {
  return guarded("ucclEpHandleGetTiles", handle, [&] {
    const HandleView& view = usable(handle).device;
    check_out_struct(out, "out");
    if (view.tile_rows == 0) fail(ucclEpInvalidUsage, "the handle has no tiles: create it with UCCLEP_LAYOUT_TILES");
    const TileLayout& at = view.offsets.tiles;
    const auto words = [&]<class T>(T*& field, uint64_t offset) { field = reinterpret_cast<T*>(view.memory + offset); };
    ucclEpTiles_t tiles = UCCLEP_TILES_INIT;
    words(tiles.tile_ready, at.ready);
    words(tiles.tile_done, at.done);
    words(tiles.rows_final, at.final);
    words(tiles.tile_expert, at.experts);
    words(tiles.first_row, at.first_row);
    words(tiles.src_info, at.src_info);
    words(tiles.weights, at.weights);
    words(tiles.row_at, at.row_at);
    words(tiles.scales_at, at.scales_at);
    tiles.tiles = static_cast<int64_t>(at.tiles);
    tiles.capacity = tiles.tiles * view.tile_rows;
    write_struct(out, tiles, "out");
  });
}

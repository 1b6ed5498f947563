// SPDX-License-Identifier: Apache-2.0
// HandleUpdate and GetRoutingCounts.
#include "host/operations/update.hpp"

#include <algorithm>
#include <atomic>

#include "base/error.hpp"
#include "device/kernels/kernels.hpp"
#include "host/boundary/guard.hpp"
#include "host/boundary/structs.hpp"
#include "host/boundary/views.hpp"
#include "host/group/phases.hpp"
#include "host/group/plan.hpp"
#include "ucclep/device/layout/arguments.hpp"

namespace ucclep {
namespace {

void update_ll(ucclEpHandle& handle, const RoutingInput& routing, const CounterViews& counters, ucclEpStream_t stream) {
  ucclEpGroup& group = *handle.group;
  begin_routing(handle);
  const LlUpdateArgs args{group.device, handle.device, routing};
  launch(group, kernels::ll_update, plan_counting(group.comm->traits, group.config.num_sms), args, stream);
  note_capture(handle, stream);
  note_update(handle, routing);
  handle.routing->pending_counters = counters;
}

}  // namespace

void note_update(ucclEpHandle& handle, const RoutingInput& routing) {
  handle.routing->updated = true;
  handle.routing->dispatched = false;
  handle.routing->tokens = routing.tokens;
  handle.routing->top_k = static_cast<int>(routing.top_k.value);
}

RoutingInput routing_input(const TensorView& topk_idx) {
  return {view_of(topk_idx), static_cast<uint32_t>(topk_idx.size(0)), Divisor(static_cast<uint32_t>(topk_idx.size(1))),
          0};
}

RoutingInput kept_routing(const ucclEpHandle& handle) {
  View ids;
  ids.data = handle.device.memory + handle.device.offsets.topk;
  ids.element = ids.element_bytes = sizeof(int32_t);
  ids.inner = ids.element * handle.group->shape().top_k;
  return {ids, static_cast<uint32_t>(handle.routing->tokens), Divisor(static_cast<uint32_t>(handle.routing->top_k)), 0,
          true};
}

TensorView checked_topk_idx(const ucclEpTensor_t* tensor, const char* name, int64_t max_tokens,
                            const GroupShape& shape) {
  TensorView t = required_tensor(tensor, name);
  t.dtype({ucclEpInt64, ucclEpInt32})
      .shape({at_most(max_tokens, "the handle's max_tokens, by default B of its mode"),
              SizeRule{1, shape.top_k, "1 to the group's top_k"}})
      .adjacent_elements();
  return t;
}

Zones zones_of(const ucclEpHandle& handle) {
  if (handle.device.layout != UCCLEP_LAYOUT_EXPERT_MAJOR && handle.device.tile_rows == 0) return Zones::sources;
  return handle.low_latency() ? Zones::slabs : Zones::experts;
}

SizeRule slab_rows(const ucclEpHandle& handle) {
  const int64_t rows = handle.group->shape().ranks * handle.max_tokens();
  if (handle.device.tile_rows == 0) return exactly(rows, "ranks * B");
  return exactly(static_cast<int64_t>(handle.device.offsets.tiles.slab), "ranks * B, rounded up to tile_rows");
}

int64_t rows_kept(const ucclEpHandle& handle, int64_t rows) {
  return std::min(rows, int64_t{handle.group->shape().recv_rows});
}

Settings handle_settings(const ucclEpHandle& handle, int top_k) {
  Settings settings;
  settings.mode = static_cast<uint32_t>(handle.device.mode);
  settings.layout = static_cast<uint32_t>(handle.device.layout);
  settings.waves = handle.device.waves;
  // Ranks may have tiles of different sizes.
  if (handle.device.tile_rows == 0)
    settings.alignment_log2 = static_cast<uint32_t>(std::countr_zero(handle.device.expert_alignment));
  settings.top_k = static_cast<uint32_t>(top_k);
  return settings;
}

void check_operation(const ucclEpHandle& handle, Kind kind, int send_only, int pass, int num_sms) {
  check_in_flight(handle, kind);
  if (send_only != 0 && send_only != 1)
    fail(ucclEpInvalidArgument, "config.send_only is {}, expected 0 or 1", send_only);
  if (pass != UCCLEP_PASS_FORWARD && pass != UCCLEP_PASS_BACKWARD) {
    fail(ucclEpInvalidArgument, "config.pass is {}, expected one of UCCLEP_PASS_*", pass);
  }
  if (pass == UCCLEP_PASS_BACKWARD && handle.device.layout == UCCLEP_LAYOUT_RANK_MAJOR) {
    fail(ucclEpNotSupported,
         "config.pass must not be UCCLEP_PASS_BACKWARD in RANK_MAJOR: train in HT, or in LL EXPERT_MAJOR");
  }
  if (num_sms < 0) fail(ucclEpInvalidArgument, "config.num_sms is {}, expected 0 or more", num_sms);
}

void announce_total(const CounterViews& counters) {
  if (counters.recv_total_host) std::atomic_ref(*counters.recv_total_host).store(-1, std::memory_order_release);
}

void update_ht(ucclEpHandle& handle, const RoutingInput& routing, CounterViews counters, int num_sms,
               ucclEpStream_t stream) {
  ucclEpGroup& group = *handle.group;
  const bool captured = group.comm->device->is_capturing(stream);
  begin_routing(handle);
  counters.host_counts = handle.routing->counts.get();
  counters.host_call = captured ? 0 : handle.routing->updates_called + 1;
  announce_total(counters);
  Settings settings = handle_settings(handle, static_cast<int>(routing.top_k.value));
  settings.hidden = handle.device.tokens;
  settings.scale_bytes = Settings::no_row;
  const int sms = num_sms > 0 ? num_sms : group.config.num_sms;
  const RoutingPlan plan = plan_routing(group.comm->traits, group.shape(), sms, routing.tokens);
  HtUpdateArgs args{group.device, handle.device, routing, settings, zones_of(handle), counters};
  args.routing.set_tokens = plan.set_tokens;
  const Kernel& kernel = group.shape().networked != 0 ? kernels::ht_update_network
                         : group.mask_words           ? kernels::ht_update_masked
                                                      : kernels::ht_update;
  launch_repaired(group, kernel, kernels::ht_repair_update, plan.shape, args, stream);
  note_capture(handle, stream);
  note_update(handle, routing);
  note_call(handle, captured);
  handle.routing->known_rows = -1;
}

}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpHandleUpdate(ucclEpHandle_t handle, const ucclEpTensor_t* topk_idx, const ucclEpCounters_t* out,
                                  ucclEpStream_t stream) {
  return guarded("ucclEpHandleUpdate", handle, [&] {
    ucclEpHandle& h = usable(handle);
    const GroupShape& shape = h.group->shape();
    checked_stream(*h.group->comm, stream);
    check_nothing_pending(h);
    const RoutingInput routing = routing_input(checked_topk_idx(topk_idx, "topk_idx", h.max_tokens(), shape));
    const CounterViews counters = counter_views(out, "out", shape);
    if (h.low_latency()) {
      announce_total(counters);
      update_ll(h, routing, counters, stream);
    } else {
      update_ht(h, routing, counters, 0, stream);
    }
  });
}

ucclEpResult_t ucclEpGetRoutingCounts(ucclEpGroup_t group, const ucclEpTensor_t* topk_idx,
                                      const ucclEpRoutingCounts_t* out, ucclEpStream_t stream) {
  return guarded("ucclEpGetRoutingCounts", group, [&] {
    ucclEpGroup& g = usable(group);
    const GroupShape& shape = g.shape();
    checked_stream(*g.comm, stream);
    const TensorView idx = checked_topk_idx(topk_idx, "topk_idx", INT32_MAX, shape);
    const ucclEpRoutingCounts_t wanted = read_struct(out, "out");
    const auto counts = [](const ucclEpTensor_t* tensor, const char* name, int64_t size, const char* what) {
      TensorView t = optional_tensor(tensor, name);
      t.dtype({ucclEpInt32, ucclEpInt64}).shape({exactly(size, what)}).adjacent_elements().no_overlap();
      return view_of(t);
    };
    TensorView in_rank = optional_tensor(wanted.is_token_in_rank, "out.is_token_in_rank");
    in_rank.dtype({ucclEpUint8})
        .shape({exactly(idx.size(0), "tokens of topk_idx"), exactly(shape.ranks, "ranks")})
        .adjacent_elements()
        .no_overlap();
    RoutingCountsArgs args{};
    args.group = g.device;
    args.routing = routing_input(idx);
    args.tokens_per_rank = counts(wanted.tokens_per_rank, "out.tokens_per_rank", shape.ranks, "ranks");
    args.logical_experts = static_cast<uint32_t>(g.config.num_logical_experts);
    args.tokens_per_logical_expert = counts(wanted.tokens_per_logical_expert, "out.tokens_per_logical_expert",
                                            g.config.num_logical_experts, "the group's num_logical_experts");
    args.tokens_per_expert = counts(wanted.tokens_per_expert, "out.tokens_per_expert", shape.experts, "experts");
    args.is_token_in_rank = view_of(in_rank);
    launch(g, kernels::routing_counts, plan_counting(g.comm->traits, 1), args, stream);
  });
}

// SPDX-License-Identifier: Apache-2.0
// ucclEpDispatch and ucclEpCompleteDispatch: the checks, then one launch (HT with topk_idx: two).
#include "device/kernels/kernels.hpp"
#include "host/boundary/guard.hpp"
#include "host/group/expose.hpp"
#include "host/group/group.hpp"
#include "host/group/group_shape.hpp"
#include "host/group/plan.hpp"
#include "host/operations/dispatch_call.hpp"
#include "ucclep/device/layout/arguments.hpp"

namespace ucclep {
namespace {

LaunchPlan plan_of(const DispatchCall& call) {
  const ucclEpGroup& group = *call.handle.group;
  const size_t tables =
      call.handle.low_latency() ? BlockTableLayout::of(call.shape()).bytes : exposed_table_bytes(call.shape().ranks);
  return plan_rows(group.comm->traits, call.config.num_sms > 0 ? call.config.num_sms : group.config.num_sms, tables,
                   call.in_lines() ? Moves::lines : Moves::bulk);
}

OperationKernels kernels_of(const DispatchCall& call) {
  using namespace kernels;
  const auto pick = [&](const ByQuant& family) -> const Kernel& { return family.of(call.quantised()); };
  const bool networked = call.shape().networked != 0;
  const bool tiles = call.handle.device.tile_rows != 0;
  if (!call.handle.low_latency()) {
    if (!networked)
      return {pick(ht_dispatch), pick(ht_send_dispatch), pick(tiles ? ht_complete_tiles : ht_complete_dispatch)};
    return {pick(ht_dispatch_network), pick(ht_send_dispatch_network),
            pick(tiles ? ht_complete_tiles_network : ht_complete_dispatch_network)};
  }
  if (networked) return {pick(ll_dispatch_network), pick(ll_send_dispatch_network), ll_complete_dispatch_network};
  const ByQuant& whole = !call.in_lines()           ? ll_dispatch
                         : call.shape().masked != 0 ? ll_dispatch_lines_masked
                                                    : ll_dispatch_lines;
  return {pick(whole), pick(ll_send_dispatch), pick(tiles ? ll_complete_tiles : ll_complete_dispatch)};
}

template <class Args>
void launch_call(const DispatchCall& call, const LaunchPlan& plan, const Args& args, ucclEpStream_t stream) {
  launch_operation(call.handle, Kind::dispatch, call.schedule, kernels_of(call), plan.shape, args, stream);
}

LlDispatchArgs ll_arguments(const DispatchCall& call, const LaunchPlan& plan) {
  LlDispatchArgs args{};
  args.group = call.handle.group->device;
  args.handle = call.handle.device;
  if (!call.device_initiated)
    args.routing = call.topk_idx.given() ? routing_input(call.topk_idx) : kept_routing(call.handle);
  args.settings = call.settings;
  args.source = call.source;
  args.topk_weights = call.topk_weights;
  args.output = call.output;
  args.counters = call.counters;
  args.tables = BlockTableLayout::of(call.shape());
  args.piece_bytes = plan.piece_bytes;
  args.device_initiated = call.device_initiated;
  if (!call.device_initiated) args.waves.of = args.waves.end = parts_of(call.handle);
  return args;
}

void launch_ll(const DispatchCall& call, const LaunchPlan& plan, ucclEpStream_t stream) {
  announce_total(call.counters);
  launch_call(call, plan, ll_arguments(call, plan), stream);
}

// HT FLAT: peers may write rows into the output themselves, if they reach all that a row consists of. A phase exposes
// nothing: it would have to wait for peers to complete theirs.
ZeroCopyOffer offer_of(const DispatchCall& call) {
  if (call.output.zones != Zones::sources || call.schedule != Schedule::whole) return {};
  const ucclEpComm& comm = *call.handle.group->comm;
  const ZeroCopyOffer offer{expose(comm, call.out_tokens), expose(comm, call.out_scales),
                            static_cast<uint32_t>(call.output.capacity)};
  return call.out_scales.given() && !offer.scales.given() ? ZeroCopyOffer{} : offer;
}

// The routing that the memory holds may have tokens where the caller has none, and an empty tensor no address: their
// zeros are read from the group's own memory.
RowSource readable(RowSource source, char* zeros) {
  source.tokens.data = source.scales.data = zeros;
  source.scales.inner = source.scales.element = 0;
  return source;
}

HtDispatchArgs ht_arguments(const DispatchCall& call, const LaunchPlan& plan) {
  HtDispatchArgs args{};
  args.group = call.handle.group->device;
  args.handle = call.handle.device;
  args.settings = call.settings;
  args.source = call.source;
  args.topk_weights = call.topk_weights;
  args.tokens = static_cast<uint32_t>(call.num_tokens);
  if (args.tokens == 0) {
    const auto& group = *call.handle.group;
    args.source = readable(args.source, group.workspace.data() + WorkspaceLayout::of(group.shape()).zeros);
  }
  args.output = call.output;
  args.offer = offer_of(call);
  args.cumulative = call.counters.cumulative;
  args.wait_ns = call.counters.wait_ns;
  args.piece_bytes = plan.piece_bytes;
  args.device_initiated = call.device_initiated;
  if (!call.device_initiated) args.waves.of = args.waves.end = parts_of(call.handle);
  return args;
}

void launch_ht(const DispatchCall& call, const LaunchPlan& plan, ucclEpStream_t stream) {
  if (call.topk_idx.given()) {
    CounterViews counters = call.counters;
    counters.cumulative = counters.wait_ns = View{};
    update_ht(call.handle, routing_input(call.topk_idx), counters, call.config.num_sms, stream);
  }
  launch_call(call, plan, ht_arguments(call, plan), stream);
}

void note_dispatch(const DispatchCall& call) {
  call.handle.routing->dispatched = true;
  call.handle.routing->weights_given = call.weighted;
  call.handle.routing->output_rows = static_cast<int64_t>(call.output.rows);
}

// LL: what a dispatch that carries its routing means for the handle.
void note_routing_of(const DispatchCall& call) {
  if (!call.topk_idx.given()) return;
  begin_routing(call.handle);
  note_update(call.handle, routing_input(call.topk_idx));
}

void dispatch(ucclEpHandle& handle, const ucclEpDispatchInputs_t* inputs, const ucclEpDispatchOutputs_t* outputs,
              const ucclEpDispatchConfig_t* config, ucclEpStream_t stream) {
  DispatchCall call{handle, read_struct(inputs, "inputs"), read_struct(outputs, "outputs"),
                    read_struct(config, "config")};
  checked_stream(*handle.group->comm, stream);
  check(call);
  const LaunchPlan plan = plan_of(call);
  if (handle.low_latency()) {
    note_routing_of(call);
    launch_ll(call, plan, stream);
    handle.routing->pending_counters = {};
  } else {
    launch_ht(call, plan, stream);
  }
  note_dispatch(call);
}

// The same for a user's kernel.
void get_device(ucclEpHandle& handle, const ucclEpDispatchInputs_t* inputs, const ucclEpDispatchOutputs_t* outputs,
                const ucclEpDispatchConfig_t* config, ucclEpDeviceDispatch* out) {
  DispatchCall call{handle, read_struct(inputs, "inputs"), read_struct(outputs, "outputs"),
                    read_struct(config, "config")};
  check_device_struct(out);
  check(call);
  check_one_launch(handle, call.schedule);
  if (!handle.low_latency() && call.topk_idx.given()) {
    fail(ucclEpInvalidArgument, "inputs.topk_idx must be NULL with an HT handle: call ucclEpHandleUpdate first");
  }
  const LaunchPlan plan = plan_of(call);
  if (handle.low_latency()) {
    note_routing_of(call);
    announce_total(call.counters);
    handle.routing->pending_counters = {};
    out->ll = ll_arguments(call, plan);
  } else {
    out->ht = ht_arguments(call, plan);
  }
  out->block_threads = plan.shape.block;
  out->shared_bytes = static_cast<unsigned>(plan.shape.shared_bytes);
  out->forms = forms_of(handle, call.in_lines());
  note_dispatch(call);
}

void complete_dispatch(ucclEpHandle& handle, const ucclEpDispatchOutputs_t* outputs,
                       const ucclEpDispatchConfig_t* config, ucclEpStream_t stream) {
  DispatchCall call{handle, UCCLEP_DISPATCH_INPUTS_INIT, read_struct(outputs, "outputs"), read_struct(config, "config"),
                    true};
  checked_stream(*handle.group->comm, stream);
  if (call.config.quant != UCCLEP_QUANT_NONE) {
    fail(ucclEpInvalidArgument,
         "config.quant is {}, expected UCCLEP_QUANT_NONE: rows that a kernel sent are not quantised",
         call.config.quant);
  }
  check(call);
  if (handle.low_latency()) {
    launch_ll(call, plan_of(call), stream);
    handle.routing->pending_counters = {};
    handle.routing->updated = true;
    handle.routing->tokens = ucclEpHandle::tokens_unknown;
    handle.routing->top_k = call.top_k;
  } else {
    launch_ht(call, plan_of(call), stream);
  }
  note_dispatch(call);
}

}  // namespace
}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpDispatch(ucclEpHandle_t handle, const ucclEpDispatchInputs_t* inputs,
                              const ucclEpDispatchOutputs_t* outputs, const ucclEpDispatchConfig_t* config,
                              ucclEpStream_t stream) {
  return guarded("ucclEpDispatch", handle, [&] { ucclep::dispatch(usable(handle), inputs, outputs, config, stream); });
}

ucclEpResult_t ucclEpCompleteDispatch(ucclEpHandle_t handle, const ucclEpDispatchOutputs_t* outputs,
                                      const ucclEpDispatchConfig_t* config, ucclEpStream_t stream) {
  return guarded("ucclEpCompleteDispatch", handle, [&] { complete_dispatch(usable(handle), outputs, config, stream); });
}

ucclEpResult_t ucclEpDispatchGetDevice(ucclEpHandle_t handle, const ucclEpDispatchInputs_t* inputs,
                                       const ucclEpDispatchOutputs_t* outputs, const ucclEpDispatchConfig_t* config,
                                       ucclEpDeviceDispatch* out) {
  return guarded("ucclEpDispatchGetDevice", handle, [&] { get_device(usable(handle), inputs, outputs, config, out); });
}

// SPDX-License-Identifier: Apache-2.0
#include "host/operations/dispatch_call.hpp"

#include "ucclep/device/layout/arguments.hpp"

namespace ucclep {
namespace {

constexpr uint32_t scale_group = 128;       // elements that share a scale
constexpr uint32_t exponents_per_word = 4;  // e8m0 exponents in an int32 scale
constexpr std::initializer_list<ucclEpDataType_t> row_types = {ucclEpBfloat16,   ucclEpFloat16,    ucclEpFloat32,
                                                               ucclEpFloat8e4m3, ucclEpFloat8e5m2, ucclEpFloat4e2m1x2};

void check_config(DispatchCall& call) {
  const ucclEpDispatchConfig_t& config = call.config;
  check_operation(call.handle, Kind::dispatch, config.send_only, config.pass, config.num_sms);
  call.schedule = schedule_of(call.handle, Kind::dispatch, config.send_only, call.device_initiated);
  if (call.device_initiated && config.send_only != 0) {
    fail(ucclEpInvalidArgument,
         "config.send_only must be 0: this call is the receive phase of an operation that a kernel began");
  }
  if (call.device_initiated && call.backward() && call.handle.low_latency()) {
    fail(ucclEpInvalidArgument,
         "config.pass must not be UCCLEP_PASS_BACKWARD: LL operations of user kernels are forward only");
  }
  if (config.quant != UCCLEP_QUANT_NONE && config.quant != UCCLEP_QUANT_FP8_128) {
    fail(ucclEpInvalidArgument, "config.quant is {}, expected one of UCCLEP_QUANT_*", config.quant);
  }
  if (config.round_scale != 0 && (config.round_scale != 1 || config.quant == UCCLEP_QUANT_NONE)) {
    fail(ucclEpInvalidArgument, "config.round_scale is {}, expected 0, or 1 with UCCLEP_QUANT_FP8_128",
         config.round_scale);
  }
}

// The routing: of this call, or of the last Update. That of a user's kernel in LL only the GPU knows.
void check_routing(DispatchCall& call) {
  ucclEpHandle& handle = call.handle;
  if (call.device_initiated && handle.low_latency()) {
    call.num_tokens = ucclEpHandle::tokens_unknown;
    call.top_k = static_cast<int>(call.shape().top_k);
    return;
  }
  if (call.inputs.topk_idx != nullptr && call.backward()) {
    fail(ucclEpInvalidArgument, "inputs.topk_idx must be NULL: the backward pass uses the handle's routing");
  }
  if (call.inputs.topk_idx != nullptr) {
    call.topk_idx = checked_topk_idx(call.inputs.topk_idx, "inputs.topk_idx", handle.max_tokens(), call.shape());
    call.num_tokens = call.topk_idx.size(0);
    call.top_k = static_cast<int>(call.topk_idx.size(1));
    return;
  }
  if (!handle.routing->updated)
    fail(ucclEpInvalidUsage, "the handle has no routing: call ucclEpHandleUpdate, or give inputs.topk_idx");
  if (handle.routing->tokens == ucclEpHandle::tokens_unknown) {
    fail(ucclEpInvalidUsage, "the handle's routing came from a device-initiated dispatch: give inputs.topk_idx");
  }
  if (call.backward() && handle.device.tile_rows != 0 && !handle.routing->dispatched) {
    fail(ucclEpInvalidUsage,
         "the handle has no forward dispatch since its last ucclEpHandleUpdate: with TILES a backward pass uses its "
         "places, so call ucclEpDispatch with UCCLEP_PASS_FORWARD first");
  }
  call.num_tokens = handle.routing->tokens;
  call.top_k = handle.routing->top_k;
}

void check_tokens(DispatchCall& call) {
  if (call.device_initiated) return;
  call.tokens = required_tensor(call.inputs.tokens, "inputs.tokens");
  if (call.quantised()) {
    call.tokens.dtype({ucclEpBfloat16}, "UCCLEP_QUANT_FP8_128 quantises bf16 only");
  } else {
    call.tokens.dtype(row_types);
  }
  call.tokens.shape({exactly(call.num_tokens, "tokens of the routing"), at_least(1, "hidden")}).token_rows();
  call.dtype = call.tokens.dtype();
  call.hidden = call.tokens.size(1);
  if (call.quantised() && call.hidden % scale_group != 0) {
    fail(ucclEpInvalidArgument, "inputs.tokens.sizes[1] is {}, expected a multiple of {} with UCCLEP_QUANT_FP8_128",
         call.hidden, scale_group);
  }
}

// Leading dimensions of an output: slab and row, source rank and place, or the row alone.
struct LeadingDims {
  bool two;
  SizeRule outer, inner;
};

LeadingDims leading_dims(const DispatchCall& call) {
  const GroupShape& shape = call.shape();
  const int64_t b = call.handle.max_tokens();
  if (!call.handle.low_latency()) return {false, any_size(), any_size()};
  if (call.handle.device.layout == UCCLEP_LAYOUT_RANK_MAJOR) {
    return {true, exactly(shape.ranks, "ranks"), exactly(b, "B, the group's maximum of LL tokens")};
  }
  return {true, exactly(shape.local_experts(), "local experts"), slab_rows(call.handle)};
}

void check_shape(const TensorView& t, const LeadingDims& lead, std::initializer_list<SizeRule> rest) {
  if (!t.given()) return;
  if (lead.two && rest.size() == 1) {
    t.shape({lead.outer, lead.inner, *rest.begin()});
  } else if (lead.two) {
    t.shape({lead.outer, lead.inner});
  } else if (rest.size() == 1) {
    t.shape({lead.inner, *rest.begin()});
  } else {
    t.shape({lead.inner});
  }
}

void check_out_tokens(DispatchCall& call) {
  call.out_tokens = required_tensor(call.outputs.tokens, "outputs.tokens");
  LeadingDims lead = leading_dims(call);
  if (call.device_initiated) {
    call.out_tokens.dtype(row_types);
    check_shape(call.out_tokens, lead, {at_least(1, "hidden")});
    call.dtype = call.out_tokens.dtype();
    call.hidden = call.out_tokens.size(call.out_tokens.ndim() - 1);
  } else {
    const ucclEpDataType_t expected = call.quantised() ? ucclEpFloat8e4m3 : call.dtype;
    call.out_tokens.dtype({expected},
                          call.quantised() ? "the dtype of UCCLEP_QUANT_FP8_128" : "the dtype of inputs.tokens");
    check_shape(call.out_tokens, lead, {exactly(call.hidden, "hidden of inputs.tokens")});
  }
  call.out_tokens.token_rows().no_overlap();
  const bool two = lead.two;
  const int64_t rows = call.out_tokens.size(two ? 1 : 0);
  call.output.rows = static_cast<uint64_t>(rows);
  call.output.capacity = static_cast<uint64_t>(two ? rows : rows_kept(call.handle, rows));
  const int64_t known = call.handle.routing->known_rows;
  if (!two && call.inputs.topk_idx == nullptr && known > int64_t{max_rows}) {
    fail(ucclEpInvalidArgument,
         "the routing gives this rank {} rows, expected at most {}: use less padding or fewer tokens", known, max_rows);
  }
  if (!two && call.inputs.topk_idx == nullptr && rows_kept(call.handle, known) > rows) {
    fail(ucclEpInvalidArgument,
         "outputs.tokens.sizes[0] is {}, expected at least the {} rows that ucclEpHandleWaitCounts returned, or "
         "max_recv_tokens_per_rank if that is less",
         rows, known);
  }
}

// Scales: width and type of the output, and how they travel.
struct ScalePlan {
  int64_t out_width = 0;
  uint32_t wire_count = 0, wire_bytes = 0;
};

ScalePlan quantised_scales(const DispatchCall& call, const TensorView& scales) {
  scales.dtype({ucclEpFloat32, ucclEpFloat8e8m0, ucclEpInt32}, "scales of UCCLEP_QUANT_FP8_128");
  if (scales.dtype() != ucclEpFloat32 && call.config.round_scale == 0) {
    fail(ucclEpInvalidArgument,
         "outputs.scales.dtype is {}, which holds powers of two only: set config.round_scale to 1",
         dtype_name(scales.dtype()));
  }
  const int64_t groups = call.hidden / scale_group;
  if (scales.dtype() == ucclEpFloat32) return {groups, static_cast<uint32_t>(groups), 4};
  if (scales.dtype() == ucclEpFloat8e8m0) return {groups, static_cast<uint32_t>(groups), 1};
  const int64_t words = (groups + exponents_per_word - 1) / exponents_per_word;
  return {words, static_cast<uint32_t>(words), exponents_per_word};
}

ScalePlan forwarded_scales(const DispatchCall& call, const TensorView& in, const TensorView& out) {
  const int64_t width = out.size(out.ndim() - 1);
  if (call.device_initiated) return {width, static_cast<uint32_t>(width), static_cast<uint32_t>(out.element_bytes())};
  in.shape({exactly(call.num_tokens, "tokens of the routing"), at_least(1, "scales of a row")});
  out.dtype({in.dtype()}, "the dtype of inputs.scales");
  return {in.size(1), static_cast<uint32_t>(in.size(1)), static_cast<uint32_t>(in.element_bytes())};
}

void check_scales(DispatchCall& call) {
  const TensorView in = optional_tensor(call.inputs.scales, "inputs.scales");
  call.out_scales = optional_tensor(call.outputs.scales, "outputs.scales");
  ScalePlan plan;
  if (call.quantised()) {
    if (in.given()) fail(ucclEpInvalidArgument, "inputs.scales must be NULL: UCCLEP_QUANT_FP8_128 computes the scales");
    if (!call.out_scales.given())
      fail(ucclEpInvalidArgument, "outputs.scales must not be NULL: UCCLEP_QUANT_FP8_128 writes scales");
    plan = quantised_scales(call, call.out_scales);
  } else if (is_byte_row(call.dtype)) {
    if (!in.given() && !call.device_initiated)
      fail(ucclEpInvalidArgument, "inputs.scales must not be NULL: {} rows have scales", dtype_name(call.dtype));
    if (!call.out_scales.given())
      fail(ucclEpInvalidArgument, "outputs.scales must not be NULL: {} rows have scales", dtype_name(call.dtype));
    plan = forwarded_scales(call, in, call.out_scales);
    call.source.scales = view_of(in);
  } else {
    if (in.given() || call.out_scales.given()) {
      fail(ucclEpInvalidArgument, "{}.scales must be NULL: {} rows have no scales", in.given() ? "inputs" : "outputs",
           dtype_name(call.dtype));
    }
  }
  LeadingDims lead = leading_dims(call);
  if (!lead.two) lead.inner = exactly(static_cast<int64_t>(call.output.rows), "rows of outputs.tokens");
  check_shape(call.out_scales, lead, {exactly(plan.out_width, "scales of a row")});
  call.out_scales.no_overlap();

  const int64_t token_bytes = call.hidden * static_cast<int64_t>(call.out_tokens.element_bytes());
  const int64_t scale_bytes = int64_t{plan.wire_count} * plan.wire_bytes;
  const int64_t max = call.handle.group->config.max_token_bytes;
  if (token_bytes + scale_bytes > max) {
    fail(ucclEpInvalidArgument, "a row has {} bytes and {} bytes of scales, but the group's max_token_bytes is {}",
         token_bytes, scale_bytes, max);
  }
  if (call.quantised() && scale_bytes > StageShape::scales_bytes) {
    fail(ucclEpNotSupported, "a row has {} bytes of scales, but this device quantises rows with at most {}",
         scale_bytes, StageShape::scales_bytes);
  }
  call.source.wire = WireShape::of(static_cast<uint32_t>(token_bytes), plan.wire_count, plan.wire_bytes);
  if (call.quantised()) {
    call.source.wire = call.source.wire.quantised(call.out_scales.dtype() == ucclEpFloat32 ? sizeof(float) : 1);
  }
  call.output.wire = call.source.wire;
}

void check_weights_and_ids(DispatchCall& call) {
  const bool by_expert = zones_of(call.handle) != Zones::sources;
  LeadingDims lead = leading_dims(call);
  if (!lead.two) lead.inner = exactly(static_cast<int64_t>(call.output.rows), "rows of outputs.tokens");
  const SizeRule k = exactly(call.top_k, "top-k of the routing");

  TensorView weights = optional_tensor(call.inputs.topk_weights, "inputs.topk_weights");
  weights.dtype({ucclEpFloat32}).shape({exactly(call.num_tokens, "tokens of the routing"), k}).adjacent_elements();
  call.topk_weights = view_of(weights);

  TensorView out_weights = optional_tensor(call.outputs.topk_weights, "outputs.topk_weights");
  const bool always = by_expert && call.handle.low_latency();
  call.weighted = call.device_initiated ? always || out_weights.given() : weights.given();
  if (out_weights.given() && !call.weighted) {
    fail(ucclEpInvalidArgument, "outputs.topk_weights must be NULL, because inputs.topk_weights is NULL");
  }
  out_weights.dtype({ucclEpFloat32});
  TensorView out_ids = optional_tensor(call.outputs.topk_idx, "outputs.topk_idx");
  if (by_expert && out_ids.given()) {
    fail(ucclEpInvalidArgument,
         "outputs.topk_idx must be NULL: in EXPERT_MAJOR the place of a row determines its expert");
  }
  out_ids.dtype({ucclEpInt64, ucclEpInt32});
  if (by_expert) {
    check_shape(out_weights, lead, {});
  } else {
    check_shape(out_weights, lead, {k});
    check_shape(out_ids, lead, {k});
  }
  out_weights.adjacent_elements().no_overlap();
  out_ids.adjacent_elements().no_overlap();
  call.output.topk_weights = by_expert ? rows_view_of(out_weights) : view_of(out_weights);
  call.output.topk_idx = view_of(out_ids);
}

// [rows], or the leading dimensions of the output.
void check_src_info(DispatchCall& call) {
  TensorView info = optional_tensor(call.outputs.src_info, "outputs.src_info");
  info.dtype({ucclEpInt64, ucclEpInt32});
  if (!info.given()) return;
  LeadingDims lead = leading_dims(call);
  if (!lead.two) lead.inner = exactly(static_cast<int64_t>(call.output.rows), "rows of outputs.tokens");
  if (lead.two && info.ndim() == 1) {
    info.shape({exactly(lead.outer.max * lead.inner.max, "rows of outputs.tokens")});
  } else {
    check_shape(info, lead, {});
  }
  info.adjacent_elements().no_overlap();
  call.output.src_info = rows_view_of(info);
  if (lead.two && info.ndim() == 1) call.output.src_info.outer = lead.inner.max * call.output.src_info.inner;
}

void check_counters(DispatchCall& call) {
  ucclEpHandle& handle = call.handle;
  const bool routes_here = (call.device_initiated && handle.low_latency()) || call.inputs.topk_idx != nullptr;
  if (call.outputs.counters != nullptr && !handle.low_latency() && !routes_here) {
    fail(ucclEpInvalidArgument,
         "outputs.counters must be NULL: an HT handle has its counts from ucclEpHandleUpdate or inputs.topk_idx");
  }
  const bool pending = handle.low_latency() && !routes_here;
  if (call.outputs.counters == nullptr && pending) call.counters = handle.routing->pending_counters;
  if (call.outputs.counters != nullptr)
    call.counters = counter_views(call.outputs.counters, "outputs.counters", call.shape());

  TensorView cumulative =
      optional_tensor(call.outputs.cumulative_tokens_per_expert, "outputs.cumulative_tokens_per_expert");
  cumulative.dtype({ucclEpInt32}).shape({exactly(call.shape().local_experts(), "local experts")}).adjacent_elements();
  call.counters.cumulative = view_of(cumulative);
  TensorView wait_ns = optional_tensor(call.outputs.wait_ns, "outputs.wait_ns");
  wait_ns.dtype({ucclEpInt64}).shape({exactly(call.shape().ranks, "ranks")}).adjacent_elements();
  call.counters.wait_ns = view_of(wait_ns);
}

void fill_settings(DispatchCall& call) {
  Settings& s = call.settings = handle_settings(call.handle, call.top_k);
  s.hidden = static_cast<uint32_t>(call.hidden);
  s.scale_bytes = call.source.wire.scale_bytes();
  s.dtype = static_cast<uint32_t>(call.dtype);
  s.output_dtype = static_cast<uint32_t>(call.out_tokens.dtype());
  s.scale_dtype = static_cast<uint32_t>(call.out_scales.dtype());
  s.quant = static_cast<uint32_t>(call.config.quant);
  s.round_scale = static_cast<uint32_t>(call.config.round_scale);
  s.pass = static_cast<uint32_t>(call.config.pass);
  s.weights_at_dispatch = call.weighted ? 1 : 0;
  s.node_copies = call.handle.low_latency() && !call.device_initiated ? call.shape().node_copies : 0;
}

void fill_output(DispatchCall& call) {
  call.source.tokens = view_of(call.tokens);
  call.source.round_scale = call.config.round_scale != 0;
  call.source.scale_powers = call.quantised() && call.out_scales.dtype() != ucclEpFloat32;
  call.output.tokens = view_of(call.out_tokens);
  call.output.scales = view_of(call.out_scales);
  call.output.zones = zones_of(call.handle);
  call.output.top_k = static_cast<uint32_t>(call.top_k);
  call.output.ranked = call.handle.device.layout == UCCLEP_LAYOUT_RANK_MAJOR;
  call.output.global_ids = call.handle.device.expert_ids == UCCLEP_EXPERT_IDS_GLOBAL;
}

}  // namespace

void check(DispatchCall& call) {
  check_config(call);
  check_routing(call);
  check_tokens(call);
  check_out_tokens(call);
  check_scales(call);
  check_weights_and_ids(call);
  check_src_info(call);
  check_counters(call);
  fill_output(call);
  fill_settings(call);
}

}  // namespace ucclep

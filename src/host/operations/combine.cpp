// SPDX-License-Identifier: Apache-2.0
// ucclEpCombine and ucclEpCompleteCombine.
#include <algorithm>

#include "ucclep/device/layout/arguments.hpp"

#include "device/kernels/kernels.hpp"
#include "host/boundary/guard.hpp"
#include "host/boundary/structs.hpp"
#include "host/boundary/views.hpp"
#include "host/group/expose.hpp"
#include "host/group/phases.hpp"
#include "host/group/plan.hpp"
#include "host/operations/update.hpp"

namespace ucclep {
namespace {

constexpr std::initializer_list<ucclEpDataType_t> summed_types = {ucclEpBfloat16, ucclEpFloat16, ucclEpFloat32};

void check_state(const ucclEpHandle& handle) {
  if (!handle.routing->updated || !handle.routing->dispatched) {
    fail(ucclEpInvalidUsage,
         "the handle has dispatched nothing since its last ucclEpHandleUpdate: call ucclEpDispatch before "
         "ucclEpCombine");
  }
}

TensorView check_tokens(const ucclEpHandle& handle, const ucclEpTensor_t* tensor) {
  const GroupShape& shape = handle.group->shape();
  TensorView tokens = required_tensor(tensor, "inputs.tokens");
  tokens.dtype(summed_types);
  const SizeRule hidden = at_least(1, "hidden");
  if (!handle.low_latency()) {
    tokens.shape({exactly(handle.routing->output_rows, "rows of the tensor that dispatch filled"), hidden});
  } else if (handle.device.layout == UCCLEP_LAYOUT_RANK_MAJOR) {
    tokens.shape(
        {exactly(shape.ranks, "ranks"), exactly(handle.max_tokens(), "B, the group's maximum of LL tokens"), hidden});
  } else {
    tokens.shape({exactly(shape.local_experts(), "local experts"), slab_rows(handle), hidden});
  }
  tokens.token_rows();
  return tokens;
}

SizeRule tokens_of(const ucclEpHandle& handle) {
  if (handle.routing->tokens == ucclEpHandle::tokens_unknown) {
    return at_most(handle.max_tokens(), "B, the group's maximum of LL tokens");
  }
  return exactly(handle.routing->tokens, "tokens of the routing");
}

// [T, H], of the same type as the rows that are summed.
View check_token_tensor(const ucclEpHandle& handle, const TensorView& tensor, const TensorView& rows) {
  tensor.dtype({rows.dtype()}, "the dtype of the rows")
      .shape({tokens_of(handle), exactly(rows.size(rows.ndim() - 1), "hidden of the rows")})
      .token_rows();
  return view_of(tensor);
}

// P7: weights with combine win over those given with dispatch.
View check_late_weights(const ucclEpHandle& handle, const ucclEpCombineInputs_t& inputs) {
  const bool weighted = handle.low_latency() && handle.device.layout == UCCLEP_LAYOUT_EXPERT_MAJOR;
  TensorView weights = optional_tensor(inputs.topk_weights, "inputs.topk_weights");
  if (weights.given() && handle.device.tile_rows != 0) {
    fail(ucclEpInvalidArgument,
         "inputs.topk_weights must be NULL: with TILES dispatch carries the weights, and combine applies them");
  }
  if (weights.given() && !weighted) {
    fail(ucclEpInvalidArgument,
         "inputs.topk_weights must be NULL: only LL EXPERT_MAJOR applies weights; apply them before combine");
  }
  if (weighted && !weights.given() && !handle.routing->weights_given) {
    fail(ucclEpInvalidArgument,
         "topk_weights were given neither with dispatch nor with combine: LL EXPERT_MAJOR needs them");
  }
  weights.dtype({ucclEpFloat32})
      .shape({tokens_of(handle), exactly(handle.routing->top_k, "top-k of the routing")})
      .adjacent_elements();
  return view_of(weights);
}

// Backward: the rows of weights that come with the rows, and their sums; both or none.
void check_weight_rows(const ucclEpHandle& handle, const ucclEpCombineInputs_t& inputs,
                       const ucclEpCombineOutputs_t& outputs, CombineArgs& args) {
  if ((inputs.topk_weights != nullptr) != (outputs.topk_weights != nullptr)) {
    const bool in = inputs.topk_weights != nullptr;
    fail(ucclEpInvalidArgument,
         "{}.topk_weights is given, but {}.topk_weights is NULL: the backward pass needs both or none",
         in ? "inputs" : "outputs", in ? "outputs" : "inputs");
  }
  const GroupShape& shape = handle.group->shape();
  const SizeRule k = exactly(handle.routing->top_k, "top-k of the routing");
  TensorView rows = optional_tensor(inputs.topk_weights, "inputs.topk_weights");
  rows.dtype({ucclEpFloat32});
  if (handle.low_latency()) {
    rows.shape({exactly(shape.local_experts(), "local experts"), slab_rows(handle)});
  } else if (handle.device.layout == UCCLEP_LAYOUT_FLAT) {
    rows.shape({exactly(handle.routing->output_rows, "rows of the tensor that dispatch filled"), k});
  } else {
    rows.shape({exactly(handle.routing->output_rows, "rows of the tensor that dispatch filled")});
  }
  rows.adjacent_elements();
  TensorView sums = optional_tensor(outputs.topk_weights, "outputs.topk_weights");
  sums.dtype({ucclEpFloat32}).shape({tokens_of(handle), k}).adjacent_elements().no_overlap();
  args.weight_rows = handle.device.layout == UCCLEP_LAYOUT_FLAT ? view_of(rows) : rows_view_of(rows);
  args.weights_out = view_of(sums);
  args.weights_back = rows.given();
}

// Everything of one call. device_initiated: by a user's kernel; of the inputs only the biases count.
struct CombineCall {
  ucclEpHandle& handle;
  bool device_initiated;
  ucclEpCombineInputs_t inputs;
  ucclEpCombineOutputs_t outputs;
  ucclEpCombineConfig_t config;

  bool backward() const { return config.pass == UCCLEP_PASS_BACKWARD; }
  // With masks, rows with weights of this combine leave when a repair has said whose weights have come.
  Schedule schedule() const {
    const Schedule schedule = schedule_of(handle, Kind::combine, config.send_only, device_initiated);
    const bool late_weights = inputs.topk_weights != nullptr && config.pass == UCCLEP_PASS_FORWARD;
    const bool held_back = schedule == Schedule::send_phase && handle.group->mask_words && late_weights;
    return held_back && handle.low_latency() ? Schedule::held_back : schedule;
  }
  // Its kernel knows no other form.
  bool in_lines() const {
    return handle.low_latency() && schedule() == Schedule::whole && handle.group->shape().lines_only();
  }
};

OperationKernels kernels_of(const CombineCall& call, ucclEpDataType_t dtype, bool small) {
  using namespace kernels;
  const auto of = [dtype](const ByType& whole, const ByType& send, const ByType& receive) {
    return OperationKernels{whole.of(dtype), send.of(dtype), receive.of(dtype)};
  };
  const GroupShape& shape = call.handle.group->shape();
  const bool networked = shape.networked != 0;
  if (!call.handle.low_latency()) {
    if (networked) return of(ht_combine_network, ht_send_combine_network, ht_complete_combine_network);
    return of(ht_combine, ht_send_combine, ht_complete_combine);
  }
  if (networked) return of(ll_combine_network, ll_send_combine_network, ll_complete_combine_network);
  const ByType& whole = !call.in_lines()    ? ll_combine
                        : shape.masked != 0 ? ll_combine_lines_masked
                        : small             ? ll_combine_small
                                            : ll_combine_lines;
  const bool served = call.schedule() == Schedule::served;
  return of(whole, served ? ll_send_tiles : ll_send_combine, ll_complete_combine);
}

// HT FLAT: peers may read their rows from the input themselves, but for weights of the backward pass. A phase exposes
// nothing: it would have to wait for peers to complete theirs.
ZeroCopyOffer offer_of(const CombineCall& call, const TensorView& tokens, const CombineArgs& args) {
  if (zones_of(call.handle) != Zones::sources || args.weights_back || call.schedule() != Schedule::whole) return {};
  return {expose(*call.handle.group->comm, tokens), {}, static_cast<uint32_t>(args.capacity)};
}

template <class Args>
void launch_call(const CombineCall& call, ucclEpDataType_t dtype, const LaunchShape& shape, const Args& args,
                 ucclEpStream_t stream, bool small = false) {
  launch_operation(call.handle, Kind::combine, call.schedule(), kernels_of(call, dtype, small), shape, args, stream);
}

void check_device_initiated(const CombineCall& call) {
  if (call.config.send_only != 0) {
    fail(ucclEpInvalidArgument,
         "config.send_only must be 0: this call is the receive phase of an operation that a kernel began");
  }
  if (call.inputs.tokens != nullptr || call.inputs.topk_weights != nullptr) {
    fail(ucclEpInvalidArgument, "inputs.{} must be NULL: the kernel that began this combine already sent the rows",
         call.inputs.tokens != nullptr ? "tokens" : "topk_weights");
  }
  if (call.backward() && call.handle.low_latency()) {
    fail(ucclEpInvalidArgument,
         "config.pass must not be UCCLEP_PASS_BACKWARD: LL operations of user kernels are forward only");
  }
  if (call.outputs.topk_weights != nullptr) {
    fail(ucclEpInvalidArgument, "outputs.topk_weights must be NULL: user kernels send rows without weights");
  }
}

void check_config(const CombineCall& call) {
  const ucclEpCombineConfig_t& config = call.config;
  check_operation(call.handle, Kind::combine, config.send_only, config.pass, config.num_sms);
  if (config.quant == UCCLEP_QUANT_FP8_128) {
    fail(ucclEpNotSupported, "config.quant is UCCLEP_QUANT_FP8_128, which is only supported for dispatch");
  }
  if (config.quant != UCCLEP_QUANT_NONE) {
    fail(ucclEpInvalidArgument, "config.quant is {}, expected UCCLEP_QUANT_NONE", config.quant);
  }
  if (config.send_only != 0 && call.handle.device.tile_rows != 0 && !call.handle.low_latency() &&
      pending_of(call.handle, Kind::dispatch)) {
    fail(ucclEpNotSupported,
         "config.send_only must be 0 while an HT dispatch of tiles is pending: launch the consumers, then call "
         "ucclEpCombine, which completes both operations");
  }
  if (config.done_target < 0)
    fail(ucclEpInvalidArgument, "config.done_target is {}, expected 0 or more", config.done_target);
  if (config.done_target != 0 && call.handle.device.tile_rows == 0) {
    fail(ucclEpInvalidArgument, "config.done_target is {}, but only UCCLEP_LAYOUT_TILES has tiles: leave it 0",
         config.done_target);
  }
}

void check_pass(const CombineCall& call) {
  const ucclEpTensor_t* bias = call.inputs.bias != nullptr ? call.inputs.bias : call.inputs.bias2;
  if (call.backward() && bias != nullptr) {
    fail(ucclEpInvalidArgument, "inputs.{} must be NULL: the backward pass adds none",
         call.inputs.bias != nullptr ? "bias" : "bias2");
  }
  if (!call.backward() && call.outputs.topk_weights != nullptr) {
    fail(ucclEpInvalidArgument, "outputs.topk_weights must be NULL: only the backward pass returns weights");
  }
}

// The rows that are summed; where a kernel has sent them, the output tells their type and width.
TensorView check_rows(const CombineCall& call) {
  const ucclEpHandle& handle = call.handle;
  if (!call.device_initiated) return check_tokens(handle, call.inputs.tokens);
  TensorView output = required_tensor(call.outputs.tokens, "outputs.tokens");
  output.dtype(summed_types).shape({tokens_of(handle), at_least(1, "hidden")});
  return output;
}

CombineArgs arguments_of(const CombineCall& call, const TensorView& rows) {
  const ucclEpHandle& handle = call.handle;
  const ucclEpGroup& group = *handle.group;
  const int64_t hidden = rows.size(rows.ndim() - 1);
  const int64_t row_bytes = hidden * static_cast<int64_t>(rows.element_bytes());
  if (row_bytes > group.config.max_token_bytes) {
    fail(ucclEpInvalidArgument, "a row of {} has {} bytes, but the group's max_token_bytes is {}", rows.name(),
         row_bytes, group.config.max_token_bytes);
  }
  const TensorView output = required_tensor(call.outputs.tokens, "outputs.tokens");
  TensorView wait_ns = optional_tensor(call.outputs.wait_ns, "outputs.wait_ns");
  wait_ns.dtype({ucclEpInt64}).shape({exactly(group.shape().ranks, "ranks")}).adjacent_elements();

  CombineArgs args{};
  args.group = group.device;
  args.handle = handle.device;
  if (call.backward()) {
    check_weight_rows(handle, call.inputs, call.outputs, args);
  } else {
    args.topk_weights = check_late_weights(handle, call.inputs);
    args.late_weights = call.inputs.topk_weights != nullptr;
  }
  args.output = check_token_tensor(handle, output.no_overlap(), rows);
  args.output_rows = static_cast<uint32_t>(output.size(0));
  args.bias = check_token_tensor(handle, optional_tensor(call.inputs.bias, "inputs.bias"), rows);
  args.bias2 = check_token_tensor(handle, optional_tensor(call.inputs.bias2, "inputs.bias2"), rows);
  args.wait_ns = view_of(wait_ns);
  args.zones = zones_of(handle);
  args.ranked = handle.device.layout == UCCLEP_LAYOUT_RANK_MAJOR;
  const bool given = handle.routing->weights_given || args.late_weights;  // of tiles there may be none
  const bool weights = args.zones == Zones::slabs || handle.device.tile_rows != 0;
  args.weighted = weights && given && !call.backward();
  args.row_bytes = static_cast<uint32_t>(row_bytes);
  args.ranks = Divisor(group.shape().ranks);
  args.batches = Divisor(static_cast<uint32_t>(ceil_div(args.row_bytes, line_batch_bytes)));
  args.partial_bytes = args.row_bytes + (args.weights_back ? weight_row_bytes(group.shape()) : 0);
  args.settings = handle_settings(handle, handle.routing->top_k);
  args.settings.hidden = static_cast<uint32_t>(hidden);
  args.settings.dtype = args.settings.output_dtype = static_cast<uint32_t>(rows.dtype());
  args.settings.pass = static_cast<uint32_t>(call.config.pass);
  args.settings.weights_at_dispatch = handle.routing->weights_given && !call.backward() ? 1 : 0;
  args.settings.weights_at_combine = call.inputs.topk_weights != nullptr ? 1 : 0;
  args.device_initiated = call.device_initiated;
  args.done_target = static_cast<uint32_t>(std::max(1, call.config.done_target));
  if (!call.device_initiated) {
    args.tokens = view_of(rows);
    args.capacity = static_cast<uint64_t>(handle.low_latency() ? rows.size(1) : rows_kept(handle, rows.size(0)));
  }
  return args;
}

// Checks all that the caller gave, but for the stream.
TensorView check(const CombineCall& call) {
  const ucclEpHandle& handle = call.handle;
  check_config(call);
  if (call.device_initiated) check_device_initiated(call);
  check_state(handle);
  if (call.inputs.scales != nullptr)
    fail(ucclEpNotSupported,
         "inputs.scales must be NULL: combine accepts bf16, fp16 and fp32 rows, which have no scales");
  check_pass(call);
  return check_rows(call);
}

LaunchPlan plan_of(const CombineCall& call) {
  const ucclEpGroup& group = *call.handle.group;
  const size_t tables = call.handle.low_latency() ? 0 : exposed_table_bytes(group.shape().ranks);
  return plan_rows(group.comm->traits, call.config.num_sms > 0 ? call.config.num_sms : group.config.num_sms, tables,
                   call.in_lines() ? Moves::lines : Moves::bulk);
}

void combine(const CombineCall& call, ucclEpStream_t stream) {
  ucclEpHandle& handle = call.handle;
  ucclEpGroup& group = *handle.group;
  checked_stream(*group.comm, stream);
  const TensorView rows = check(call);
  CombineArgs args = arguments_of(call, rows);
  const LaunchPlan plan = plan_of(call);
  args.piece_bytes = plan.piece_bytes;
  if (call.config.send_only == 0) {
    end_dispatch(handle, stream);
  } else {
    check_beside_dispatch(handle, stream);
  }
  if (handle.low_latency()) {
    const uint32_t wave = group.comm->traits.wave;
    const bool small = is_small_batch(args, plan.shape.grid, plan.shape.block / wave, wave);
    launch_call(call, rows.dtype(), plan.shape, args, stream, small);
  } else {
    launch_call(call, rows.dtype(), plan.shape, HtCombineArgs{args, offer_of(call, rows, args)}, stream);
  }
}

// The same for a user's kernel.
void get_device(const CombineCall& call, ucclEpDeviceCombine* out) {
  check_device_struct(out);
  const TensorView rows = check(call);
  check_one_launch(call.handle, call.schedule());
  CombineArgs args = arguments_of(call, rows);
  const LaunchPlan plan = plan_of(call);
  args.piece_bytes = plan.piece_bytes;
  out->args = {args, offer_of(call, rows, args)};
  out->block_threads = plan.shape.block;
  out->shared_bytes = static_cast<unsigned>(plan.shape.shared_bytes);
  // The dispatch before has to have them, too.
  out->forms = forms_of(call.handle, call.in_lines() && call.handle.group->shape().rows_by_headers());
}

CombineCall call_of(ucclEpHandle& handle, bool device_initiated, const ucclEpCombineInputs_t* inputs,
                    const ucclEpCombineOutputs_t* outputs, const ucclEpCombineConfig_t* config) {
  return {handle, device_initiated, read_struct(inputs, "inputs"), read_struct(outputs, "outputs"),
          read_struct(config, "config")};
}

}  // namespace
}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpCombine(ucclEpHandle_t handle, const ucclEpCombineInputs_t* inputs,
                             const ucclEpCombineOutputs_t* outputs, const ucclEpCombineConfig_t* config,
                             ucclEpStream_t stream) {
  return guarded("ucclEpCombine", handle,
                 [&] { combine(call_of(usable(handle), false, inputs, outputs, config), stream); });
}

ucclEpResult_t ucclEpCompleteCombine(ucclEpHandle_t handle, const ucclEpCombineInputs_t* inputs,
                                     const ucclEpCombineOutputs_t* outputs, const ucclEpCombineConfig_t* config,
                                     ucclEpStream_t stream) {
  return guarded("ucclEpCompleteCombine", handle,
                 [&] { combine(call_of(usable(handle), true, inputs, outputs, config), stream); });
}

ucclEpResult_t ucclEpCombineGetDevice(ucclEpHandle_t handle, const ucclEpCombineInputs_t* inputs,
                                      const ucclEpCombineOutputs_t* outputs, const ucclEpCombineConfig_t* config,
                                      ucclEpDeviceCombine* out) {
  return guarded("ucclEpCombineGetDevice", handle,
                 [&] { get_device(call_of(usable(handle), false, inputs, outputs, config), out); });
}

// SPDX-License-Identifier: Apache-2.0
// ucclEpCombine and ucclEpComplete.
#include "ucclep/device/combine.hpp"

#include "device/kernels/kernels.hpp"
#include "host/guard.hpp"
#include "host/lend.hpp"
#include "host/plan.hpp"
#include "host/structs.hpp"
#include "host/update.hpp"
#include "host/views.hpp"
#include "ucclep/device/ht_args.hpp"

namespace ucclep {
namespace {

void check_state(const ucclEpHandle& handle) {
  if (!handle.updated || !handle.dispatched) {
    fail(ucclEpInvalidUsage,
         "the handle has dispatched nothing since its last Update: combine returns what dispatch brought");
  }
}

TensorView check_tokens(const ucclEpHandle& handle, const ucclEpTensor_t* tensor) {
  const GroupShape& shape = handle.group->shape();
  TensorView tokens = required_tensor(tensor, "inputs.tokens");
  tokens.dtype({ucclEpBfloat16, ucclEpFloat16, ucclEpFloat32});
  const SizeRule hidden = at_least(1, "hidden");
  if (!handle.low_latency()) {
    tokens.shape({exactly(handle.capacity, "rows of the tensor that dispatch filled"), hidden});
  } else if (handle.device.layout == UCCLEP_LAYOUT_RANK_MAJOR) {
    tokens.shape(
        {exactly(shape.ranks, "ranks"), exactly(handle.max_tokens(), "B, the group's maximum of LL tokens"), hidden});
  } else {
    tokens.shape({exactly(shape.local_experts(), "local experts"),
                  exactly(shape.ranks * handle.max_tokens(), "ranks * B"), hidden});
  }
  tokens.token_rows();
  return tokens;
}

// [T, H] of the same type as the rows.
View check_token_tensor(const ucclEpHandle& handle, const TensorView& tensor, const TensorView& rows, int64_t hidden,
                        bool output) {
  tensor.dtype({rows.dtype()}, "that of inputs.tokens")
      .shape({exactly(handle.tokens, "tokens of the routing"), exactly(hidden, "hidden of inputs.tokens")})
      .token_rows();
  if (output) tensor.no_overlap();
  return view_of(tensor);
}

// P7: weights with combine win over those given with dispatch.
View check_weights(const ucclEpHandle& handle, const ucclEpCombineInputs_t& inputs) {
  const bool weighted = handle.low_latency() && handle.device.layout == UCCLEP_LAYOUT_EXPERT_MAJOR;
  TensorView weights = optional_tensor(inputs.topk_weights, "inputs.topk_weights");
  if (weights.given() && !weighted) {
    fail(ucclEpInvalidArgument,
         "inputs.topk_weights is given, but only LL EXPERT_MAJOR applies weights: weight the rows before");
  }
  if (weighted && !weights.given() && !handle.weights_given) {
    fail(ucclEpInvalidArgument,
         "topk_weights were given neither with dispatch nor with combine; LL EXPERT_MAJOR applies them");
  }
  weights.dtype({ucclEpFloat32})
      .shape({exactly(handle.tokens, "tokens of the routing"), exactly(handle.top_k, "top-k of the routing")})
      .adjacent_elements();
  return view_of(weights);
}

// HT FLAT: peers may read their rows from the input themselves.
Offer offer_of(const ucclEpHandle& handle, const TensorView& tokens) {
  if (zones_of(handle) != Zones::sources) return {};
  return {lent(*handle.group->comm, tokens), {}, static_cast<uint32_t>(tokens.size(0))};
}

const Kernel& kernel_of(const ucclEpHandle& handle, ucclEpDataType_t dtype) {
  const bool ll = handle.low_latency();
  if (dtype == ucclEpBfloat16) return ll ? kernels::ll_combine_bf16 : kernels::ht_combine_bf16;
  if (dtype == ucclEpFloat16) return ll ? kernels::ll_combine_fp16 : kernels::ht_combine_fp16;
  return ll ? kernels::ll_combine_fp32 : kernels::ht_combine_fp32;
}

void combine(ucclEpHandle& handle, const ucclEpCombineInputs_t* given_inputs,
             const ucclEpCombineOutputs_t* given_outputs, const ucclEpCombineConfig_t* given_config,
             ucclEpStream_t stream) {
  const ucclEpCombineInputs_t inputs = read_struct(given_inputs, "inputs");
  const ucclEpCombineOutputs_t outputs = read_struct(given_outputs, "outputs");
  const ucclEpCombineConfig_t config = read_struct(given_config, "config");
  ucclEpGroup& group = *handle.group;
  checked_stream(*group.comm, stream);
  check_operation(config.send_only, config.pass, config.num_sms);
  check_state(handle);
  if (inputs.scales != nullptr) fail(ucclEpNotSupported, "inputs.scales: combine takes bf16, fp16 and fp32 rows");
  if (outputs.topk_weights != nullptr)
    fail(ucclEpInvalidArgument, "outputs.topk_weights is given, but only the backward pass returns weights");

  const TensorView tokens = check_tokens(handle, inputs.tokens);
  const int64_t hidden = tokens.size(tokens.ndim() - 1);
  const int64_t row_bytes = hidden * static_cast<int64_t>(tokens.element_bytes());
  if (row_bytes > group.config.max_token_bytes) {
    fail(ucclEpInvalidArgument, "a row of inputs.tokens has {} bytes, the group's max_token_bytes is {}", row_bytes,
         group.config.max_token_bytes);
  }
  TensorView wait_ns = optional_tensor(outputs.wait_ns, "outputs.wait_ns");
  wait_ns.dtype({ucclEpInt64}).shape({exactly(group.shape().ranks, "ranks")}).adjacent_elements();

  const size_t tables = handle.low_latency() ? 0 : sizeof(Lease) * group.shape().ranks;
  const LaunchPlan plan =
      plan_rows(group.comm->traits, config.num_sms > 0 ? config.num_sms : group.config.num_sms, tables);
  CombineArgs args{};
  args.group = group.device;
  args.handle = handle.device;
  args.tokens = view_of(tokens);
  args.topk_weights = check_weights(handle, inputs);
  args.output = check_token_tensor(handle, required_tensor(outputs.tokens, "outputs.tokens"), tokens, hidden, true);
  args.bias = check_token_tensor(handle, optional_tensor(inputs.bias, "inputs.bias"), tokens, hidden, false);
  args.bias2 = check_token_tensor(handle, optional_tensor(inputs.bias2, "inputs.bias2"), tokens, hidden, false);
  args.wait_ns = view_of(wait_ns);
  args.capacity = static_cast<uint64_t>(tokens.size(handle.low_latency() ? 1 : 0));
  args.zones = zones_of(handle);
  args.ranked = handle.device.layout == UCCLEP_LAYOUT_RANK_MAJOR;
  args.weighted = args.zones == Zones::slabs;
  args.row_bytes = static_cast<uint32_t>(row_bytes);
  args.piece_bytes = plan.piece_bytes;
  args.settings = handle_settings(handle, handle.top_k);
  args.settings.hidden = static_cast<uint32_t>(hidden);
  args.settings.dtype = args.settings.output_dtype = static_cast<uint32_t>(tokens.dtype());
  args.settings.weights_at_dispatch = handle.weights_given ? 1 : 0;
  args.settings.weights_at_combine = inputs.topk_weights != nullptr ? 1 : 0;
  const Kernel& kernel = kernel_of(handle, tokens.dtype());
  if (handle.low_latency()) {
    launch(group, kernel, plan.shape, args, stream);
  } else {
    launch(group, kernel, plan.shape, HtCombineArgs{args, offer_of(handle, tokens)}, stream);
  }
}

}  // namespace
}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpCombine(ucclEpHandle_t handle, const ucclEpCombineInputs_t* inputs,
                             const ucclEpCombineOutputs_t* outputs, const ucclEpCombineConfig_t* config,
                             ucclEpStream_t stream) {
  return guarded("ucclEpCombine", comm_of(handle),
                 [&] { ucclep::combine(usable(handle), inputs, outputs, config, stream); });
}

ucclEpResult_t ucclEpComplete(ucclEpHandle_t handle, ucclEpStream_t stream) {
  return guarded("ucclEpComplete", comm_of(handle), [&] { checked_stream(*usable(handle).group->comm, stream); });
}

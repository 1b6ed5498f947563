// SPDX-License-Identifier: Apache-2.0
#include "initiated_calls.hpp"

#include "launch_user.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// Strides of zero: contiguous.
Rows rows_of(const ucclEpTensor_t* tensor) {
  if (tensor == nullptr || tensor->data == nullptr) return {};
  const int64_t stride = tensor->strides[tensor->ndim - 2], row = tensor->sizes[tensor->ndim - 1];
  return {static_cast<const char*>(tensor->data),
          (stride != 0 ? stride : row) * static_cast<int64_t>(reference::element_bytes(tensor->dtype))};
}

ucclEpDeviceHandle device_of(ucclEpHandle_t handle) {
  ucclEpDeviceHandle device;
  ok(ucclEpHandleGetDevice(handle, &device), "ucclEpHandleGetDevice");
  return device;
}

}  // namespace

void launch_round(const Exchange& exchange, ucclEpHandle_t handle, const std::string& scope, const RoundArgs& args,
                  ucclEpStream_t stream, UserGrid grid) {
  const char* kernel = exchange.scenario().ll() ? "round_" : "round_ht_";
  launch_user(handle, kernel + scope, &args, sizeof args, stream, grid);
}

void launch_initiated(const Exchange& exchange, ucclEpHandle_t handle, const std::string& scope,
                      const InitiatedDispatchArgs& args, ucclEpStream_t stream, UserGrid grid) {
  RoundArgs round{};
  round.parts = RoundParts::dispatch;
  round.dispatch.send = args;
  round.receives = false;
  launch_round(exchange, handle, scope, round, stream, grid);
}

void launch_initiated(const Exchange& exchange, ucclEpHandle_t handle, const std::string& scope,
                      const InitiatedCombineArgs& args, ucclEpStream_t stream) {
  RoundArgs round{};
  round.parts = RoundParts::combine;
  round.combine.send = args;
  round.receives = false;
  launch_round(exchange, handle, scope, round, stream);
}

InitiatedDispatchArgs dispatch_args(Exchange& exchange, ucclEpHandle_t handle, uint32_t seed) {
  const Scenario& scenario = exchange.scenario();
  const ucclEpDispatchInputs_t& in = exchange.dispatch_in;
  InitiatedDispatchArgs args{};
  args.handle = device_of(handle);
  args.shape = {static_cast<uint32_t>(scenario.hidden), scenario.dtype};
  args.shape.top_k = static_cast<uint32_t>(scenario.top_k);
  args.shape.weighted = in.topk_weights != nullptr;
  args.shape.pass = scenario.pass;
  if (in.scales != nullptr) {
    args.shape.scale_dtype = in.scales->dtype;
    args.shape.scale_bytes = static_cast<uint32_t>(scenario.scale_width()) *
                             static_cast<uint32_t>(reference::element_bytes(in.scales->dtype));
    args.scales = rows_of(in.scales);
  }
  args.rows = rows_of(in.tokens);
  args.experts = rows_of(exchange.topk_idx().get());
  args.wide_ids = scenario.idx == ucclEpInt64;
  args.weights = rows_of(in.topk_weights);
  args.tokens = args.said = static_cast<uint32_t>(in.tokens->sizes[0]);
  args.seed = seed;
  const int64_t ids = int64_t{args.shape.top_k} * 8;
  const bool dense = args.experts.stride == ids && (args.weights.data == nullptr || 2 * args.weights.stride == ids);
  args.known = seed % 2 == 0 && scenario.ll() && args.wide_ids && dense;
  return args;
}

void initiate_dispatch(Exchange& exchange, ucclEpHandle_t handle, const std::string& scope,
                       const InitiatedDispatchArgs& args, ucclEpStream_t stream, UserGrid grid) {
  launch_initiated(exchange, handle, scope, args, stream, grid);
  ok(ucclEpCompleteDispatch(handle, &exchange.dispatch_out, &exchange.dispatch_config, stream),
     "ucclEpCompleteDispatch");
}

void initiate_dispatch(Exchange& exchange, ucclEpHandle_t handle, const std::string& scope, uint32_t seed,
                       ucclEpStream_t stream) {
  initiate_dispatch(exchange, handle, scope, dispatch_args(exchange, handle, seed), stream);
}

// All rows of the tensor, those that hold nothing as well.
InitiatedCombineArgs combine_args(Exchange& exchange, ucclEpHandle_t handle, uint32_t seed) {
  const Scenario& scenario = exchange.scenario();
  const ucclEpTensor_t* rows = exchange.combine_in.tokens;
  InitiatedCombineArgs args{};
  args.handle = device_of(handle);
  args.shape = {static_cast<uint32_t>(scenario.combined_hidden()), scenario.combine_dtype};
  args.shape.top_k = static_cast<uint32_t>(scenario.top_k);
  args.shape.pass = scenario.pass;
  args.rows = rows_of(rows);
  args.count = static_cast<uint32_t>(scenario.ll() ? rows->sizes[0] * rows->sizes[1] : rows->sizes[0]);
  args.seed = seed;
  return args;
}

void initiate_combine(Exchange& exchange, ucclEpHandle_t handle, const std::string& scope,
                      const InitiatedCombineArgs& args, ucclEpStream_t stream) {
  launch_initiated(exchange, handle, scope, args, stream);
  ucclEpCombineInputs_t biases = exchange.combine_in;
  biases.tokens = nullptr;
  ok(ucclEpCompleteCombine(handle, &biases, &exchange.combine_out, &exchange.combine_config, stream),
     "ucclEpCompleteCombine");
}

void initiate_combine(Exchange& exchange, ucclEpHandle_t handle, const std::string& scope, uint32_t seed,
                      ucclEpStream_t stream) {
  initiate_combine(exchange, handle, scope, combine_args(exchange, handle, seed), stream);
}

void there_and_home(Exchange& exchange, Session& at, const std::string& scope, uint32_t seed,
                    const DeviceInitiated& device_initiated) {
  if (device_initiated.dispatch) {
    initiate_dispatch(exchange, at.handle, scope, seed, at.stream);
  } else {
    exchange.dispatch(at.handle, at.stream);
  }
  at.stream.synchronize();
  exchange.check_dispatch();
  if (device_initiated.combine) {
    initiate_combine(exchange, at.handle, scope, seed, at.stream);
  } else {
    exchange.combine(at.handle, at.stream);
  }
  at.stream.synchronize();
  exchange.check_combine();
}

void routed_round(const Rank& rank, Session& at, const Scenario& scenario, const std::string& scope, uint32_t seed,
                  const DeviceInitiated& device_initiated) {
  Exchange exchange(rank, at.comm, scenario, scenario.seed + seed);
  exchange.update(at.handle, at.stream);
  there_and_home(exchange, at, scope, seed, device_initiated);
  exchange.check_counters();
  Scenario backward = backward_of(scenario);
  backward.weight_rows = false;
  Exchange gradients(rank, at.comm, backward, scenario.seed + seed);
  gradients.refresh(seed + 1000);
  there_and_home(gradients, at, scope, seed + 1, device_initiated);
}

std::vector<std::string> scopes_of_run() {
  if (reduced()) return {"lanes4", "block"};
  return {std::begin(scopes), std::end(scopes)};
}

void from_every_scope(const InitiatedRound& round) {
  uint32_t seed = 0;
  for (const std::string& scope : scopes_of_run()) {
    for (const DeviceInitiated& device_initiated :
         {DeviceInitiated{}, DeviceInitiated{.dispatch = false}, DeviceInitiated{.combine = false}}) {
      try {
        round(scope, ++seed, device_initiated);
      } catch (const Failure& failure) {
        throw Failure(scope + ", dispatch " + (device_initiated.dispatch ? "device-initiated" : "whole") +
                      ", combine " + (device_initiated.combine ? "device-initiated" : "whole") + ": " + failure.what());
      }
    }
  }
}

// The record of what went wrong, which is gone then.
void left_record(const Session& at, const char* phase, const char* words) {
  const ucclEpAsyncError_t error = async_error(at.comm);
  require(error.code == ucclEpInvalidArgument && std::string(error.phase) == phase &&
              std::string(error.text).find(words) != std::string::npos,
          std::string("a record of another kind: ") + error.text);
  ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
}

}  // namespace ucclep::test

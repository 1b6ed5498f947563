// SPDX-License-Identifier: Apache-2.0
#include "receive_calls.hpp"

#include <chrono>
#include <thread>
#include <vector>

namespace ucclep::test {
namespace {

void* data_of(const ucclEpTensor_t* tensor) {
  return tensor == nullptr ? nullptr : tensor->data;
}

void check_zone_rows(const Exchange& exchange, int rank, Words& words) {
  const reference::Counters counts =
      reference::counters(exchange.contents().world(), exchange.scenario().shape(), rank);
  words.zone_rows.set_integers(exchange.scenario().by_expert() ? counts.tokens_per_expert_unpadded
                                                               : counts.tokens_per_rank);
  words.zone_rows.verify(rank);
}

}  // namespace

ReceiveDispatchArgs received_dispatch(Exchange& exchange, ucclEpHandle_t handle, uint32_t seed, const Words& words) {
  ucclEpDispatchOutputs_t& out = exchange.dispatch_out;
  out.cumulative_tokens_per_expert = nullptr;  // what no kernel writes is not expected
  ReceiveDispatchArgs args{};
  args.send = dispatch_args(exchange, handle, seed);
  args.out = {data_of(out.tokens), data_of(out.scales), static_cast<int32_t*>(data_of(out.topk_idx)),
              static_cast<float*>(data_of(out.topk_weights)), static_cast<int64_t*>(data_of(out.src_info))};
  args.zones = args.rows = static_cast<uint32_t>(out.tokens->sizes[0]);
  if (exchange.scenario().ll()) args.rows *= static_cast<uint32_t>(out.tokens->sizes[1]);
  args.tile = 1 + seed * 11 % 48;
  args.zone_rows = static_cast<int32_t*>(words.zone_rows.get()->data);
  return args;
}

ReceiveCombineArgs received_combine(Exchange& exchange, ucclEpHandle_t handle, uint32_t seed) {
  ReceiveCombineArgs args{};
  args.send = combine_args(exchange, handle, seed);
  args.out = {data_of(exchange.combine_out.tokens), data_of(exchange.combine_in.bias),
              data_of(exchange.combine_in.bias2)};
  args.tokens = static_cast<uint32_t>(exchange.combine_out.tokens->sizes[0]);
  args.tile = 1 + seed * 3 % 5;
  return args;
}

void receive_dispatch(Exchange& exchange, const Place& at, const std::string& scope, uint32_t seed) {
  const Words words(exchange, at.comm);
  launch_round(exchange, at.handle, scope,
               {RoundParts::dispatch, received_dispatch(exchange, at.handle, seed, words), {}, nullptr}, at.stream);
  at.stream.synchronize();
}

void receive_round(const Rank& rank, const Place& at, Exchange& exchange, const std::string& scope, uint32_t seed,
                   const Received& received) {
  const bool ll = exchange.scenario().ll();
  Words words(exchange, at.comm);
  RoundArgs args{RoundParts::both, received_dispatch(exchange, at.handle, seed, words),
                 received_combine(exchange, at.handle, seed), static_cast<GridBarrier*>(words.barrier.get()->data)};
  args.dispatch.send.known = received.known;
  if (!received.one_kernel) args.parts = RoundParts::dispatch;
  if (received.one_kernel && received.known) args.parts = RoundParts::beside;
  if (received.late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (received.dispatch) {
    launch_round(exchange, at.handle, scope, args, at.stream);
  } else {
    exchange.dispatch(at.handle, at.stream);
  }
  at.stream.synchronize();
  exchange.check_dispatch();
  if (ll && received.dispatch) check_zone_rows(exchange, rank.rank, words);
  if (!received.one_kernel && received.combine) {
    args.parts = RoundParts::combine;
    launch_round(exchange, at.handle, scope, args, at.stream);
  } else if (!received.one_kernel) {
    if (!ll && received.dispatch) {  // so that the host knows of the dispatch; there is nothing left to do
      ok(ucclEpCompleteDispatch(at.handle, &exchange.dispatch_out, &exchange.dispatch_config, at.stream),
         "ucclEpCompleteDispatch");
    }
    exchange.combine(at.handle, at.stream);
  }
  at.stream.synchronize();
  exchange.check_combine();
  no_async_error(at.comm);
}

void receive_routing(const Rank& rank, const Place& at, const Scenario& scenario, const std::string& scope,
                     uint32_t seed, const Received& received) {
  Exchange exchange(rank, at.comm, scenario, scenario.seed + seed);
  if (!scenario.ll()) exchange.update(at.handle, at.stream);
  receive_round(rank, at, exchange, scope, seed, received);
  if (scenario.ll()) return;
  Scenario backward = backward_of(scenario);
  backward.weight_rows = false;
  Exchange gradients(rank, at.comm, backward, scenario.seed + seed);
  gradients.refresh(seed + 1000);
  receive_round(rank, at, gradients, scope, seed + 1, received);
}

void receive_rounds(const Rank& rank, const Place& at, const Scenario& scenario) {
  uint32_t seed = 0;
  for (const std::string& scope : scopes_of_run()) {
    constexpr Received apart[] = {{}, {.dispatch = false}, {.combine = false}};
    std::vector<Received> ways{{.one_kernel = true}, apart[seed / 2 % 3]};
    const bool knows = scope == "lanes4" || scope == "block";  // of the kernels (initiated_scopes.hpp)
    if (knows && scenario.ll() && scenario.idx == ucclEpInt64) {
      ways.push_back({.one_kernel = true, .known = true});
    }
    for (const Received& received : ways) {
      try {
        receive_routing(rank, at, scenario, scope, ++seed, received);
      } catch (const Failure& failure) {
        throw Failure(scope + ", round " + std::to_string(seed) + ": " + failure.what());
      }
    }
  }
}

}  // namespace ucclep::test

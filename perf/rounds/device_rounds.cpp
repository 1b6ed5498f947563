// SPDX-License-Identifier: Apache-2.0
#include "rounds/device_rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "api.hpp"
#include "rounds/bare_loop.hpp"
#include "rounds/kernels/arguments.hpp"
#include "rounds/launcher.hpp"

namespace ucclep::perf {
namespace {

RoundInput input_of(const Tensors& tensors) {
  return {static_cast<const char*>(tensors.tokens.data), static_cast<const int64_t*>(tensors.topk_idx.data),
          static_cast<const float*>(tensors.weights.data)};
}

// Rounds of a user's kernel: with the tensors of the endpoint, and its spare ones in every other round.
class UserRounds {
 public:
  UserRounds(Endpoint& endpoint, Launcher& launcher) : endpoint_(endpoint), launcher_(launcher) {
    check(ucclEpHandleGetDevice(endpoint.handle(), &handle_), "ucclEpHandleGetDevice", endpoint.comm());
    const GridBarrier open{};
    barrier_ = endpoint.memory().allocate(sizeof open);
    endpoint.memory().write(barrier_, &open, sizeof open);
  }

  const ucclEpDeviceGroup& group() const { return handle_.group; }

  // HT: routes the tokens of the iteration; all launches go by it, also those with the tensors exchanged.
  void update() {
    endpoint_.update();
    routed_ = static_cast<int64_t*>(endpoint_.tensors().counts.data);
  }

  // Whole operations, as the endpoint calls them.
  void launch_whole() {
    WholeRoundsArgs args{};
    args.rounds = static_cast<uint32_t>(endpoint_.options().rounds);
    for (int spare = 0; spare < 2; ++spare) {
      endpoint_.get_device(spare != 0, args.dispatch[spare], args.combine[spare]);
    }
    const ucclEpDeviceDispatch& dispatch = args.dispatch[0];  // the other is of the same shape
    const ucclEpDeviceCombine& combine = args.combine[0];
    const char* const forms = combine.forms == 1 ? "_lines" : "";
    launcher_.launch(fmt::format("rounds_{}_grid{}", endpoint_.options().mode, forms), args,
                     std::max(dispatch.shared_bytes, combine.shared_bytes),
                     std::min(dispatch.block_threads, combine.block_threads));
  }

  void launch(const std::string& form, const std::string& scope) {
    RoundsArgs args = tensor_args();
    args.handle = handle_;
    args.barrier = reinterpret_cast<GridBarrier*>(barrier_);
    args.rounds = static_cast<uint32_t>(endpoint_.options().rounds);
    args.counted = form == "counted";
    launcher_.launch(fmt::format("rounds_{}_{}", endpoint_.options().mode, scope), args);
  }

 private:
  RoundsArgs tensor_args() const {
    const Shape& shape = endpoint_.shape();
    const Tensors& now = endpoint_.tensors();
    RoundsArgs args{};
    args.shape = {static_cast<uint32_t>(shape.hidden), shape.dtype};
    args.shape.top_k = static_cast<uint32_t>(shape.topk);
    args.shape.weighted = true;
    args.inputs[0] = input_of(now);
    args.inputs[1] = input_of(endpoint_.spare());
    args.rows.tokens = now.out_tokens.data;
    args.rows.topk_weights = static_cast<float*>(now.out_weights.data);
    args.rows.src_info = static_cast<int64_t*>(now.out_source.data);
    args.results = static_cast<char*>(now.combine_out.data);
    args.counts = shape.mode == UCCLEP_MODE_LL ? static_cast<int64_t*>(now.counts.data) : routed_;
    args.tokens = static_cast<uint32_t>(now.tokens.sizes[0]);
    args.zones = static_cast<uint32_t>(now.counts.sizes[0]);
    args.zone_rows = static_cast<uint32_t>(now.out_tokens.sizes[shape.mode == UCCLEP_MODE_LL ? 1 : 0]);
    return args;
  }

  Endpoint& endpoint_;
  Launcher& launcher_;
  ucclEpDeviceHandle handle_;
  std::byte* barrier_ = nullptr;
  int64_t* routed_ = nullptr;  // counts of the last update
};

// The pair as it is in combine_perf, `rounds` times.
void call_rounds(Endpoint& endpoint) {
  for (int round = 0; round < endpoint.options().rounds; ++round) {
    endpoint.dispatch();
    endpoint.combine();
  }
}

Tally check_pair(Endpoint& endpoint) {
  Tally tally = endpoint.check_dispatch();
  return tally += endpoint.check_combine();
}

}  // namespace

std::vector<Plan> plan_rounds(Endpoint& endpoint) {
  const auto launcher = std::make_shared<Launcher>(endpoint);
  const auto user = std::make_shared<UserRounds>(endpoint, *launcher);
  const Options& o = endpoint.options();
  Plan plan{o.graph ? "library graph" : "library calls",
            {{"dispatch", endpoint.shape().wire_row_bytes(), endpoint.dispatches_by_node()},
             {"combine", endpoint.shape().combine_row_bytes(), endpoint.combines_by_node()}},
            [user] { user->update(); },
            [&endpoint] { call_rounds(endpoint); },
            [&endpoint] { return check_pair(endpoint); },
            o.rounds,
            true};
  std::vector<Plan> plans = {plan};
  plan.captures = false;
  const auto add = [&](const std::string& name, const std::function<void()>& operation) {
    plan.name = fmt::format("{} {}", name, launcher->shape_in_words());
    plan.operation = operation;
    plans.push_back(plan);
  };
  for (const std::string& scope : o.scopes) {
    if (scope == "grid" && o.dtype == "bf16" && user->group().network == nullptr)
      add("whole grid", [launcher, user] { user->launch_whole(); });
  }
  for (const std::string& form : o.forms) {
    for (const std::string& scope : o.scopes) {
      if (scope == "grid") continue;
      add(form + " " + scope, [launcher, user, form, scope] { user->launch(form, scope); });
    }
  }
  if (!BareLoop::exists(endpoint)) return plans;
  const auto bare = std::make_shared<BareLoop>(endpoint, *launcher, user->group());
  plan.name = fmt::format("bare {}", launcher->shape_in_words());
  plan.before = [bare] { bare->prepare(); };
  plan.operation = [launcher, bare] { bare->launch(); };
  plan.check = [bare] { return bare->verify(); };
  plans.push_back(plan);
  return plans;
}

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
// The backward pass: gradients of the experts' outputs go where the rows went, on the same handle, and gradients of the
// inputs come home, those of the weights with them.
#include <catch2/catch.hpp>
#include <string>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

void train(const std::vector<Scenario>& scenarios, int rounds = 1) {
  run_each(scenarios, there_and_back, rounds);
}

TEST_CASE("backward: gradients of rows and weights, slots used again",
          "[process][reduced][driver][checked][nodes][modes]") {
  train(trained({.top_k = 3, .max_tokens = 11, .hidden = 72, .alignment = 4, .rule = uniform(20), .seed = 81}), 3);
}

TEST_CASE("backward: sums in fp32 follow one order in every layout", "[process][reduced][nodes][modes]") {
  train(trained({.experts = 16,
                 .top_k = 12,
                 .max_tokens = 9,
                 .dtype = ucclEpFloat32,
                 .combine_dtype = ucclEpFloat32,
                 .seed = 82}));
}

TEST_CASE("backward: other types, strides and ranks without tokens", "[nodes]") {
  for (Scenario& scenario : trained({.top_k = 4,
                                     .tokens = {0, 8, 0, 3},
                                     .hidden = 128,
                                     .dtype = ucclEpFloat16,
                                     .combine_dtype = ucclEpFloat16,
                                     .weights = Weights::with_both,
                                     .slack = 5,
                                     .strided = true,
                                     .seed = 83})) {
    if (!scenario.by_expert() || !scenario.ll()) scenario.weights = Weights::with_dispatch;
    train({scenario});
  }
}

TEST_CASE("backward: rows alone, and more of them than a line or a piece holds", "[nodes]") {
  std::vector<Scenario> scenarios = trained({.max_tokens = 40, .hidden = 4096, .seed = 84});
  for (Scenario& scenario : scenarios) scenario.weight_rows = false;
  train(scenarios);
}

TEST_CASE("backward: a forward combine after it finds its own weights gone and says so") {
  const Scenario scenario{.layout = Layout::ll_expert_major, .ranks = 1, .experts = 4, .seed = 85};
  run_ranks(1, [&](Rank& rank) {
    Session at(rank, scenario);
    there_and_back(rank, at.comm, at.handle, at.stream, scenario, scenario.seed);
    Exchange forward(rank, at.comm, scenario, scenario.seed);
    refused(forward.try_combine(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpCombine",
            {"neither with dispatch nor with combine"});
  });
}

TEST_CASE("backward: what it does not have is refused, and nothing is enqueued") {
  const Scenario ranked{.layout = Layout::ll_rank_major, .ranks = 1, .experts = 4};
  run_ranks(1, [&](Rank& rank) {
    Session at(rank, ranked);
    Exchange gradients(rank, at.comm, backward_of(ranked));
    gradients.update(at.handle, at.stream);
    refused(gradients.try_dispatch(at.handle, at.stream), ucclEpNotSupported, "ucclEpDispatch",
            {"must not be UCCLEP_PASS_BACKWARD in RANK_MAJOR"});
    at.stream.synchronize();
    gradients.check_untouched();
  });
  for (const Scenario& scenario : trained({.ranks = 1, .experts = 4})) {
    run_ranks(1, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange gradients(rank, at.comm, backward_of(scenario));
      refused(gradients.try_dispatch(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpDispatch",
              {"the handle has no routing"});
      gradients.update(at.handle, at.stream);
      gradients.dispatch_in.topk_idx = gradients.topk_idx().get();
      refused(gradients.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch",
              {"inputs.topk_idx must be NULL"});
      gradients.dispatch_in.topk_idx = nullptr;
      gradients.dispatch_config.pass = 2;
      refused(gradients.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch",
              {"config.pass is 2"});
      gradients.dispatch_config.pass = UCCLEP_PASS_BACKWARD;
      gradients.dispatch(at.handle, at.stream);

      const ucclEpCombineInputs_t in = gradients.combine_in;
      const ucclEpCombineOutputs_t out = gradients.combine_out;
      gradients.combine_in.bias = gradients.combined().get();
      refused(gradients.try_combine(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpCombine",
              {"inputs.bias must be NULL"});
      gradients.combine_in = in;
      gradients.combine_in.bias2 = gradients.combined().get();
      refused(gradients.try_combine(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpCombine",
              {"inputs.bias2 must be NULL"});
      gradients.combine_in = in;
      gradients.combine_in.topk_weights = nullptr;
      refused(gradients.try_combine(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpCombine",
              {"inputs.topk_weights is NULL"});
      gradients.combine_in = in;
      gradients.combine_out.topk_weights = nullptr;
      refused(gradients.try_combine(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpCombine",
              {"outputs.topk_weights is NULL"});
      gradients.combine_out = out;
      gradients.combine_config.pass = UCCLEP_PASS_FORWARD;
      refused(gradients.try_combine(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpCombine",
              {"topk_weights must be NULL"});
      gradients.combine_config.pass = UCCLEP_PASS_BACKWARD;
      gradients.combine_in = in;
      gradients.combine(at.handle, at.stream);
      at.stream.synchronize();
      gradients.check_dispatch();
      gradients.check_combine();
    });
  }
}

}  // namespace
}  // namespace ucclep::test

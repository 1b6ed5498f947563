// SPDX-License-Identifier: Apache-2.0
#include "conformance/network_scenarios.hpp"

namespace ucclep::test {

std::vector<Scenario> some_of_everything(int ranks) {
  const int experts = 4 * ranks;
  std::vector<Scenario> all;
  all.push_back({.experts = experts, .top_k = 5, .max_tokens = 9, .hidden = 72, .rule = uniform(10)});
  all.push_back({.experts = experts, .top_k = 3, .max_tokens = 6, .weights = Weights::with_combine, .biases = 2});
  Scenario uneven{.experts = experts, .top_k = 4, .max_tokens = 12, .hidden = 136, .alignment = 8, .rule = uniform(30)};
  for (int rank = 0; rank < ranks; ++rank) uneven.tokens.push_back(rank % 3 == 0 ? 12 : rank % 3 == 1 ? 0 : 1);
  all.push_back(uneven);
  Scenario quantised{.experts = experts, .top_k = 3, .max_tokens = 7, .hidden = 640};
  quantised.quant = UCCLEP_QUANT_FP8_128;
  quantised.scales = Scales{ucclEpFloat32, 0, true};
  all.push_back(quantised);
  // Of fp32 sums with many terms every change of the order shows.
  all.push_back({.experts = experts,
                 .top_k = 12,
                 .max_tokens = 5,
                 .dtype = ucclEpFloat32,
                 .combine_dtype = ucclEpFloat32,
                 .biases = 1});
  return all;
}

std::vector<Scenario> the_rest(int ranks) {
  const int experts = 2 * ranks;
  std::vector<Scenario> all;
  Scenario bytes{.experts = experts, .top_k = 3, .max_tokens = 7, .hidden = 256, .dtype = ucclEpFloat8e4m3};
  bytes.combine_hidden = 64;
  bytes.scales = Scales{ucclEpFloat32, 5, true};
  all.push_back(bytes);
  all.push_back({.experts = experts,
                 .top_k = 2,
                 .max_tokens = 5,
                 .dtype = ucclEpFloat32,
                 .combine_dtype = ucclEpFloat32,
                 .weights = Weights::with_both,
                 .rule = next_rank()});
  all.push_back({.experts = experts, .top_k = 2, .max_tokens = 4, .carried = true, .rule = only({-1, -1})});
  all.push_back({.experts = experts, .top_k = 1, .max_tokens = 33, .hidden = 24, .rule = only({5})});
  return all;
}

std::vector<Scenario> with_limits(int ranks) {
  std::vector<Scenario> all;
  // About as many as come: some ranks drop rows and others do not.
  all.push_back({.experts = 2 * ranks,
                 .top_k = 3,
                 .max_tokens = 9,
                 .hidden = 72,
                 .alignment = 4,
                 .max_recv = 26,
                 .overflow = UCCLEP_OVERFLOW_ERROR,
                 .rule = uniform(10)});
  Scenario few{.experts = 2 * ranks, .top_k = 4, .max_tokens = 7, .hidden = 256, .biases = 1, .max_recv = 5};
  few.quant = UCCLEP_QUANT_FP8_128;
  few.scales = Scales{ucclEpFloat32, 0, true};
  few.overflow = UCCLEP_OVERFLOW_DROP;
  all.push_back(few);
  return all;
}

bool exists(const Scenario& scenario) {
  if (scenario.max_recv > 0 && scenario.ll()) return false;
  const bool late = scenario.weights == Weights::with_combine || scenario.weights == Weights::with_both;
  return scenario.layout == Layout::ll_expert_major || !late;
}

}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// Exchanges of user kernels in groups with enable_mask.
#pragma once
#include <vector>

#include "conformance/masked.hpp"

namespace ucclep::test::masked {

// What kernels send comes with weights, and LL operations with their routing. Between domains user kernels have LL
// only.
inline std::vector<Scenario> scenarios_of_kernels() {
  std::vector<Scenario> all;
  for (const Layout layout : all_layouts) {
    for (Scenario scenario : {lines(layout), bulk(layout)}) {
      scenario.carried = scenario.ll();
      all.push_back(scenario);
    }
  }
  if (reduced()) all = {all[3], all[4]};
  if (crosses_nodes(ranks)) std::erase_if(all, [](const Scenario& scenario) { return !scenario.ll(); });
  return all;
}

enum class Missing { dispatch, combine };

}  // namespace ucclep::test::masked

// SPDX-License-Identifier: Apache-2.0
// Exchanges of user kernels in groups with enable_mask.
#pragma once
#include <vector>

#include "conformance/masked.hpp"

namespace ucclep::test::masked {

// What kernels send comes with weights, and LL operations with their routing.
inline std::vector<Scenario> scenarios_of_kernels() {
  std::vector<Scenario> all;
  for (const Layout layout : all_layouts) {
    for (Scenario scenario : {lines(layout), bulk(layout)}) {
      scenario.carried = scenario.ll();
      all.push_back(scenario);
    }
  }
  if (reduced())
    all = {all[3], all[4]};
  else if (crosses_nodes(ranks))
    all = {all[0], all[3], all[4], all[7]};  // all the same, of each layout one
  return all;
}

enum class Missing { dispatch, combine };

// HT: rows of the rank were counted, and are zero rows; nothing of them goes back. dispatch and combine, by kernels,
// of those who are left; combine checks its results.
template <class Dispatch, class Combine>
void masked_after_update(Dispatch&& dispatch, Combine&& combine) {
  for (const Layout layout : {Layout::ht_flat, Layout::ht_expert_major}) {
    const Scenario scenario = lines(layout);
    run_ranks(ranks, [&](Rank& rank) {
      Masked at(rank, scenario, 20000);
      Exchange exchange(rank, at.comm, scenario, 2);
      exchange.update(at.handle, at.stream);
      at.stream.synchronize();
      meet(rank, 0);
      if (rank.rank != missing) {
        mask_missing(at);
        exchange.expect_blank(missing);
        dispatch(exchange, at);
        exchange.check_dispatch();
        exchange.leave_out(missing, true);
        combine(exchange, at);
        no_async_error(at.comm);
      }
      meet(rank, 1);
      comes_back(rank, at, scenario);
    });
  }
}

}  // namespace ucclep::test::masked

// SPDX-License-Identifier: Apache-2.0
// Device-initiated operations in groups with enable_mask: the receive phase on the host goes on without a
// rank that is lost, as operations of the library do.
#include <catch2/catch.hpp>
#include <string>

#include "initiated_calls.hpp"
#include "mask_scenarios.hpp"

namespace ucclep::test {
namespace {

using namespace masked;

void begin(Exchange& exchange, Masked& at, const std::string& scope) {
  if (!exchange.scenario().ll()) exchange.update(at.handle, at.stream);
  initiate_dispatch(exchange, at.handle, scope, 1, at.stream);
  at.stream.synchronize();
}

void end(Exchange& exchange, Masked& at, const std::string& scope) {
  initiate_combine(exchange, at.handle, scope, 2, at.stream);
  at.stream.synchronize();
  exchange.check_combine();
}

void initiated_round(Exchange& exchange, Masked& at, const std::string& scope) {
  begin(exchange, at, scope);
  exchange.check_dispatch();
  end(exchange, at, scope);
}

TEST_CASE("user kernels with masks: nobody is late", "[process][nodes][reduced][masked]") {
  for (const Scenario& scenario : scenarios_of_kernels()) {
    run_ranks(ranks, [&](Rank& rank) {
      Masked at(rank, scenario, 20000);
      uint64_t seed = 0;
      for (const std::string& scope : scopes_of_run()) {
        Exchange exchange(rank, at.comm, scenario, ++seed);
        initiated_round(exchange, at, scope);
        round_trip(rank, at.comm, at.handle, at.stream, scenario, ++seed);
      }
      require_masked(at, false);
      no_async_error(at.comm);
    });
  }
}

void late_to_initiate(const Scenario& scenario, Missing what) {
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario, 2);
    const bool comes = rank.rank != missing;
    if (comes && what == Missing::dispatch) exchange.leave_out(missing);
    meet(rank, 0);
    if (comes || what == Missing::combine) {
      begin(exchange, at, "warp");
      exchange.check_dispatch();
    }
    if (comes) {
      if (what == Missing::combine) exchange.leave_out(missing, true);
      end(exchange, at, "block");
      require_record(at);
      require_masked(at, true);
      // Nobody waits for it any more.
      Exchange next(rank, at.comm, scenario, 3);
      next.leave_out(missing);
      initiated_round(next, at, "lanes4");
      no_async_error(at.comm);
    }
    meet(rank, 1);
    if (!comes && what == Missing::combine) {
      initiate_combine(exchange, at.handle, "warp", 2, at.stream);
      at.stream.synchronize();
      has_heard(rank, at, exchange);
    }
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("user kernels with masks: a rank that does not come to a dispatch", "[process][nodes][reduced][masked]") {
  for (const Scenario& scenario : scenarios_of_kernels()) late_to_initiate(scenario, Missing::dispatch);
}
TEST_CASE("user kernels with masks: a rank that does not come to a combine", "[process][long][masked]") {
  for (const Scenario& scenario : scenarios_of_kernels()) late_to_initiate(scenario, Missing::combine);
}

TEST_CASE("user kernels with masks: a rank that is masked after the Update", "[process][nodes][reduced][masked]") {
  masked_after_update(
      [](Exchange& exchange, Masked& at) {
        initiate_dispatch(exchange, at.handle, "warp", 1, at.stream);
        at.stream.synchronize();
      },
      [](Exchange& exchange, Masked& at) { end(exchange, at, "thread"); });
}

}  // namespace
}  // namespace ucclep::test

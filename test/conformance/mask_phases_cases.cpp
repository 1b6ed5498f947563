// SPDX-License-Identifier: Apache-2.0
// Operations in two phases (send_only) in groups with enable_mask: a rank may be lost in the first, between them, in
// the second, and by an operation of another kind.
#include <catch2/catch.hpp>
#include <string>

#include "conformance/masked.hpp"

namespace ucclep::test {
namespace {

using namespace masked;

Scenario with_combine_weights() {
  Scenario scenario = lines(Layout::ll_expert_major);
  scenario.weights = Weights::with_combine;
  return scenario;
}

std::vector<Scenario> all_scenarios() {
  std::vector<Scenario> all{with_combine_weights()};
  if (reduced()) return {all.front(), lines(Layout::ht_flat)};
  for (const Layout layout : all_layouts) all.push_back(lines(layout));
  all.push_back(bulk(Layout::ll_rank_major));
  return all;
}

void in_phases(Exchange& exchange) {
  exchange.dispatch_config.send_only = exchange.combine_config.send_only = 1;
}

void complete(Masked& at) {
  ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
  at.stream.synchronize();
}

void start_dispatch(Exchange& exchange, Masked& at) {
  in_phases(exchange);
  update_and_dispatch(exchange, at);
  at.stream.synchronize();
}
void finish_dispatch(Exchange& exchange, Masked& at) {
  complete(at);
  exchange.check_counters();
  exchange.check_dispatch();
}
void combine_in_phases(Exchange& exchange, Masked& at) {
  exchange.combine(at.handle, at.stream);
  at.stream.synchronize();
  complete(at);
  exchange.check_combine();
}

// rank.rank != missing and the rest, in a group whose ranks have met, and come back in the end.
void with_missing(const Scenario& scenario, int timeout_ms, const std::function<void(Rank&, Masked&, Exchange&)>& rest,
                  const std::function<void(Rank&, Masked&, Exchange&)>& missing_rank) {
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, timeout_ms);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario, 2);
    meet(rank, 0);
    if (rank.rank == missing) {
      missing_rank(rank, at, exchange);
    } else {
      rest(rank, at, exchange);
    }
    meet(rank, 1);
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("masks in phases: nobody is late", "[process][reduced][driver][nodes][masks]") {
  for (const Scenario& scenario : all_scenarios()) {
    run_ranks(ranks, [&](Rank& rank) {
      Masked at(rank, scenario, 20000);
      for (uint64_t round = 1; round <= 4; ++round) {
        Exchange exchange(rank, at.comm, scenario, round);
        start_dispatch(exchange, at);
        exchange.check_untouched();
        finish_dispatch(exchange, at);
        combine_in_phases(exchange, at);
        round_trip(rank, at.comm, at.handle, at.stream, scenario, round + 10);
      }
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("masks in phases: a rank that comes to no phase", "[process][reduced][nodes][masks][modes]") {
  for (const Scenario& scenario :
       {lines(Layout::ll_expert_major), bulk(Layout::ll_rank_major), lines(Layout::ht_flat)}) {
    with_missing(
        scenario, short_ms,
        [&](Rank& rank, Masked& at, Exchange& exchange) {
          exchange.leave_out(missing);
          start_dispatch(exchange, at);
          finish_dispatch(exchange, at);
          combine_in_phases(exchange, at);
          require_record(at);
          require_masked(at, true);
          round_without(rank, at, scenario, 3);
          rank.board.add(3);
        },
        [&](Rank& rank, Masked& at, Exchange&) {
          rank.board.wait(3, ranks - 1, 60);  // the others have gone on
          hears(rank, at, scenario);
        });
  }
}

// Its rows are all there: it is missed by the combine only.
TEST_CASE("masks in phases: a rank that does not complete", "[process][masks][long]") {
  for (const Scenario& scenario : all_scenarios()) {
    with_missing(
        scenario, short_ms,
        [&](Rank& rank, Masked& at, Exchange& exchange) {
          start_dispatch(exchange, at);
          finish_dispatch(exchange, at);
          exchange.leave_out(missing, true);
          combine_in_phases(exchange, at);
          require_record(at);
          require_masked(at, true);
          round_without(rank, at, scenario, 3);
          rank.board.add(3);
        },
        [&](Rank& rank, Masked& at, Exchange& exchange) {
          start_dispatch(exchange, at);
          rank.board.wait(3, ranks - 1, 60);  // the others have gone on
          complete(at);                       // with rows, which its peers may have written over meanwhile
          has_heard(rank, at, exchange);
        });
  }
}

TEST_CASE("masks in phases: a rank that is masked between the phases, by the caller or by another operation",
          "[process][reduced][nodes][masks]") {
  for (const Scenario& scenario : {lines(Layout::ll_expert_major), lines(Layout::ll_rank_major), lines(Layout::ht_flat),
                                   lines(Layout::ht_expert_major)}) {
    for (const bool by_caller : {true, false}) {
      run_ranks(ranks, [&](Rank& rank) {
        Masked at(rank, scenario, by_caller ? 20000 : short_ms);
        Handle first = make_handle(at.group, handle_config(scenario));
        Exchange before(rank, at.comm, scenario, 1), exchange(rank, at.comm, scenario, 2);
        std::swap(at.handle, first);
        update_and_dispatch(before, at);
        std::swap(at.handle, first);
        start_dispatch(exchange, at);
        meet(rank, 0);
        if (rank.rank != missing) {
          if (by_caller) mask_missing(at);
          before.leave_out(missing, true);
          before.combine(first, at.stream);
          at.stream.synchronize();
          before.check_combine();
          if (!by_caller) require_record(at);
          if (scenario.ll()) {
            exchange.leave_out(missing);
          } else {
            exchange.expect_blank(missing);
          }
          finish_dispatch(exchange, at);
          if (!scenario.ll()) exchange.leave_out(missing, true);
          combine_in_phases(exchange, at);
          require_masked(at, true);
          round_without(rank, at, scenario, 3);
        }
        meet(rank, 1);
        comes_back(rank, at, scenario);
      });
    }
  }
}

TEST_CASE("masks in phases: one of a kind is in flight", "[process][masks]") {
  const Scenario scenario = lines(Layout::ht_flat);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    const Handle other = make_handle(at.group, handle_config(scenario));
    Exchange exchange(rank, at.comm, scenario, 1), next(rank, at.comm, scenario, 2);
    start_dispatch(exchange, at);
    next.update(other, at.stream);
    refused(next.try_dispatch(other, at.stream), ucclEpInvalidUsage, "ucclEpDispatch", {"enable_mask", "in flight"});
    finish_dispatch(exchange, at);
    next.dispatch(other, at.stream);
    at.stream.synchronize();
    next.check_dispatch();
    // What is pending is given up by MaskClear.
    exchange.combine(at.handle, at.stream);
    at.stream.synchronize();
    meet(rank, 0);
    ok(ucclEpMaskClear(at.group, at.stream), "ucclEpMaskClear");
    complete(at);
    round_trip(rank, at.comm, at.handle, at.stream, scenario, 3);
    no_async_error(at.comm);
  });
}

}  // namespace
}  // namespace ucclep::test

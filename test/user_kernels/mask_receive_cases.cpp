// SPDX-License-Identifier: Apache-2.0
// Operations that a user's kernel sends and receives in groups with enable_mask. Where nobody is lost they end in the
// kernel; else the receive phase on the host brings all rows, as if the kernel had received none.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>

#include "conformance/late_stores.hpp"
#include "mask_scenarios.hpp"
#include "receive_calls.hpp"

namespace ucclep::test {
namespace {

using namespace masked;

void receive(Exchange& exchange, Masked& at, RoundParts parts, const std::string& scope, uint32_t seed) {
  const Words words(exchange, at.comm);
  launch_round(exchange, at.handle, scope,
               {parts, received_dispatch(exchange, at.handle, seed, words), received_combine(exchange, at.handle, seed),
                static_cast<GridBarrier*>(words.barrier.get()->data)},
               at.stream);
  at.stream.synchronize();
}

void update(Exchange& exchange, Masked& at) {
  if (!exchange.scenario().ll()) exchange.update(at.handle, at.stream);
}

void complete_dispatch(Exchange& exchange, Masked& at) {
  ok(ucclEpCompleteDispatch(at.handle, &exchange.dispatch_out, &exchange.dispatch_config, at.stream),
     "ucclEpCompleteDispatch");
  at.stream.synchronize();
}

void complete_combine(Exchange& exchange, Masked& at) {
  ucclEpCombineInputs_t biases = exchange.combine_in;
  biases.tokens = nullptr;
  ok(ucclEpCompleteCombine(at.handle, &biases, &exchange.combine_out, &exchange.combine_config, at.stream),
     "ucclEpCompleteCombine");
  at.stream.synchronize();
}

// In one kernel, by those who are left.
void round_without_missing(const Rank& rank, Masked& at, const Scenario& scenario, const std::string& scope,
                           uint32_t seed) {
  Exchange exchange(rank, at.comm, scenario, seed);
  exchange.leave_out(missing);
  update(exchange, at);
  receive(exchange, at, RoundParts::both, scope, seed);
  exchange.check_dispatch();
  exchange.check_combine();
  no_async_error(at.comm);  // a wait that had lasted to its end would be on record
}

TEST_CASE("user kernels with masks receive: nobody is late", "[process][nodes][reduced][masked]") {
  for (const Scenario& scenario : scenarios_of_kernels()) {
    run_ranks(ranks, [&](Rank& rank) {
      Masked at(rank, scenario, 20000);
      receive_rounds(rank, at, scenario);
      round_trip(rank, at.comm, at.handle, at.stream, scenario, 9);
      require_masked(at, false);
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("user kernels with masks receive: after the last row there is nothing to complete",
          "[process][nodes][masked]") {
  for (const Scenario& scenario : scenarios_of_kernels()) {
    run_ranks(ranks, [&](Rank& rank) {
      Masked at(rank, scenario, 20000);
      Exchange exchange(rank, at.comm, scenario, 1), other(rank, at.comm, scenario, 1);
      update(exchange, at);
      receive(exchange, at, RoundParts::both, "warp", 1);
      complete_dispatch(other, at);
      complete_combine(other, at);
      exchange.check_dispatch();
      exchange.check_combine();
      other.check_untouched();
      no_async_error(at.comm);
    });
  }
}

// What the kernels of the others begin after they have given up does nothing.
void lose_dispatch(Exchange& exchange, Masked& at) {
  const ucclEpTensor_t* const cumulative = exchange.dispatch_out.cumulative_tokens_per_expert;
  receive(exchange, at, RoundParts::both, "warp", 1);
  receive(exchange, at, RoundParts::both, "block", 2);
  exchange.dispatch_out.cumulative_tokens_per_expert = cumulative;
  complete_dispatch(exchange, at);
  exchange.check_dispatch();
  exchange.check_counters();
  if (!exchange.scenario().ll()) exchange.leave_out(missing, true);
  receive(exchange, at, RoundParts::combine, "lanes4", 3);
  exchange.check_combine();
}

void lose_combine(Exchange& exchange, Masked& at) {
  exchange.leave_out(missing, true);
  receive(exchange, at, RoundParts::combine, "warp", 2);
  receive(exchange, at, RoundParts::both, "block", 3);
  if (!exchange.scenario().ll()) complete_dispatch(exchange, at);  // so that the host knows of it
  complete_combine(exchange, at);
  exchange.check_combine();
}

void late_to_receive(const Scenario& scenario, Missing what) {
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario, 2);
    update(exchange, at);
    at.stream.synchronize();
    const bool comes = rank.rank != missing;
    if (what == Missing::combine) {
      receive(exchange, at, RoundParts::dispatch, "block", 1);
      exchange.check_dispatch();
    } else if (comes && scenario.ll()) {
      exchange.leave_out(missing);
    } else if (comes) {
      exchange.expect_blank(missing);
    }
    meet(rank, 0);
    if (comes) {
      what == Missing::dispatch ? lose_dispatch(exchange, at) : lose_combine(exchange, at);
      require_record(at);
      require_masked(at, true);
      round_without_missing(rank, at, scenario, "thread", 3);
      round_without_missing(rank, at, scenario, "block", 4);
    }
    meet(rank, 1);
    if (!comes && what == Missing::combine) {
      receive(exchange, at, RoundParts::combine, "warp", 2);
      scenario.ll() ? complete_combine(exchange, at) : complete_dispatch(exchange, at);
      has_heard(rank, at, exchange);
    }
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("user kernels with masks receive: a rank that does not come to a dispatch",
          "[process][nodes][reduced][masked]") {
  for (const Scenario& scenario : scenarios_of_kernels()) late_to_receive(scenario, Missing::dispatch);
}
TEST_CASE("user kernels with masks receive: a rank that does not come to a combine",
          "[process][nodes][reduced][masked]") {
  for (const Scenario& scenario : scenarios_of_kernels()) late_to_receive(scenario, Missing::combine);
}

// A kernel has given up a dispatch: all leave the next combine at once, in which nobody has waited yet.
TEST_CASE("user kernels with masks receive: who is late for another operation than the one that lost a rank comes",
          "[process][nodes][masked]") {
  Scenario scenario = lines(Layout::ll_expert_major);
  scenario.carried = true;
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 2000);
    const Handle routed = make_handle(at.group, handle_config(scenario));
    Exchange before(rank, at.comm, scenario, 1), given_up(rank, at.comm, scenario, 2);
    before.dispatch(routed, at.stream);
    at.stream.synchronize();
    before.check_dispatch();
    meet(rank, 0);
    if (rank.rank != missing) {
      receive(given_up, at, RoundParts::dispatch, "block", 1);
      if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(700));
      before.leave_out(missing, true);
      before.combine(routed, at.stream);
      at.stream.synchronize();
      before.check_combine();
      given_up.leave_out(missing);
      complete_dispatch(given_up, at);
      given_up.check_dispatch();
      require_record(at);
      require_masked(at, true);
    }
    meet(rank, 1);
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("user kernels with masks receive: a rank that was masked before", "[process][nodes][reduced][masked]") {
  for (const Scenario& scenario : scenarios_of_kernels()) {
    run_ranks(ranks, [&](Rank& rank) {
      Masked at(rank, scenario, 20000);
      round_trip(rank, at.comm, at.handle, at.stream, scenario);
      meet(rank, 0);
      if (rank.rank != missing) {
        mask_missing(at);
        uint32_t seed = 0;
        for (const std::string& scope : scopes_of_run()) round_without_missing(rank, at, scenario, scope, ++seed);
        round_without(rank, at, scenario, 9);
      }
      meet(rank, 1);
      comes_back(rank, at, scenario);
    });
  }
}

TEST_CASE("user kernels with masks receive: a rank that is masked after the Update", "[process][reduced][masked]") {
  masked_after_update([](Exchange& exchange, Masked& at) { receive(exchange, at, RoundParts::dispatch, "lanes4", 1); },
                      [](Exchange& exchange, Masked& at) {
                        receive(exchange, at, RoundParts::combine, "warp", 1);
                        exchange.check_combine();
                      });
}

TEST_CASE("user kernels with masks receive: late stores of a rank that was masked", "[reduced][host][masked]") {
  for (const Scenario& scenario : scenarios_of_kernels()) {
    run_beside_late(scenario, [&](Rank& rank, Masked& at, uint32_t seed) {
      Exchange exchange(rank, at.comm, scenario, seed);
      exchange.leave_out(late);
      update(exchange, at);
      receive(exchange, at, RoundParts::both, seed == 2 ? "warp" : "lanes4", seed);
      exchange.check_dispatch();
      exchange.check_combine();
      no_async_error(at.comm);
    });
  }
}

// The last block has the header to send.
TEST_CASE("user kernels with masks: a rank that is masked before dispatch_end sends no header",
          "[reduced][host][masked]") {
  Scenario scenario = lines(Layout::ll_expert_major);
  scenario.carried = true;
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    const ucclEpDeviceGroup group = device_group(at.group);
    Exchange exchange(rank, at.comm, scenario, 2);
    meet(rank, 0);
    if (rank.rank == late) {
      uint32_t held = 0;
      InitiatedDispatchArgs args = dispatch_args(exchange, at.handle, 1);
      args.held = &held;
      launch_initiated(exchange, at.handle, "warp", args, at.stream);
      wait_until("the kernel to hold", [&] { return __atomic_load_n(&held, __ATOMIC_ACQUIRE) == 1; });
      meet(rank, 1);
      meet(rank, 2);
      __atomic_store_n(&held, 2u, __ATOMIC_RELEASE);
      complete_dispatch(exchange, at);
      for (int peer = 0; peer < ranks; ++peer) {
        const WindowPart header = parts_written_by(group, Kind::dispatch, 2, late).front();
        if (peer != late) require(*words_at(group, peer, header.begin + 8) != 2, "it has sent a header");
      }
      has_heard(rank, at, exchange);
    } else {
      meet(rank, 1);
      mask_late(at);
      meet(rank, 2);
      round_without(rank, at, scenario, 3, {late});
    }
    meet(rank, 3);
  });
}

}  // namespace
}  // namespace ucclep::test

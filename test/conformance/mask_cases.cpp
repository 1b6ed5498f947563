// SPDX-License-Identifier: Apache-2.0
// Groups with enable_mask: a rank that is late, stops or dies is masked, and the others go on without it, with the
// results of a world that does not have it; a rank that lives comes back with ucclEpMaskClear.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "conformance/masked.hpp"
#include "conformance/nodes.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep::test {
namespace {

using namespace masked;

// before_rows: after the Update of HT.
enum class Stops { before_dispatch, before_rows, before_combine };

// A rank that stopped goes on with the next operation, and hears that it was masked.
void goes_on(const Rank& rank, Masked& at, Exchange& exchange, Stops when) {
  if (when == Stops::before_dispatch) return hears(rank, at, exchange.scenario());
  if (when == Stops::before_rows) exchange.dispatch(at.handle, at.stream);
  if (when == Stops::before_combine) exchange.combine(at.handle, at.stream);
  at.stream.synchronize();
  exchange.check_untouched();
  has_heard(rank, at, exchange);
}

// Those ranks do not come, all to the same operation. transport: of two nodes; null: where the environment has them.
void late_ranks(const Scenario& scenario, Stops when, const std::vector<int>& lost = {missing},
                const char* transport = nullptr) {
  run_ranks(ranks, [&](Rank& rank) {
    const bool apart = transport != nullptr;
    Masked at(rank, apart ? in_nodes_of(rank, 2, transport) : comm_config(rank), scenario, short_ms);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    Exchange exchange(rank, at.comm, scenario, 2);
    const bool sends = when == Stops::before_combine, stops = among(lost, rank.rank);
    const auto leave_out = [&](bool counted) {
      for (const int peer : lost) exchange.leave_out(peer, counted);
    };
    if (when == Stops::before_dispatch && !stops) leave_out(false);
    meet(rank, 0);
    if (when == Stops::before_rows) {
      exchange.update(at.handle, at.stream);
      at.stream.synchronize();
      if (!stops) exchange.expect_blank(lost.front());
    }
    if (sends || !stops) {
      if (when != Stops::before_rows) update_routing(exchange, at);
      exchange.dispatch(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_counters();
      exchange.check_dispatch();
      if (sends) no_async_error(at.comm);
    }
    if (!stops) {
      if (when != Stops::before_dispatch) leave_out(true);
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_combine();
      require_record(at, lost);
      require_mask(at, mask_without(lost));
      round_without(rank, at, scenario, 3, lost);
      round_without(rank, at, scenario, 4, lost);
    }
    meet(rank, 1);
    if (stops) goes_on(rank, at, exchange, when);
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("LL goes on without a rank that does not come to a dispatch",
          "[process][reduced][driver][nodes][masks][modes][schedules]") {
  late_ranks(lines(Layout::ll_expert_major), Stops::before_dispatch);
}
TEST_CASE("LL RANK_MAJOR goes on without a rank that does not come to a dispatch", "[masks]") {
  late_ranks(lines(Layout::ll_rank_major), Stops::before_dispatch);
}
TEST_CASE("LL goes on without a rank that does not come to a combine", "[process][masks]") {
  late_ranks(lines(Layout::ll_expert_major), Stops::before_combine);
}
TEST_CASE("LL RANK_MAJOR goes on without a rank that does not come to a combine", "[reduced][nodes][masks]") {
  late_ranks(lines(Layout::ll_rank_major), Stops::before_combine);
}
TEST_CASE("LL in BULK form goes on without a rank that does not come to a dispatch", "[masks]") {
  late_ranks(bulk(Layout::ll_expert_major), Stops::before_dispatch);
}
TEST_CASE("LL in BULK form goes on without a rank that does not come to a combine", "[masks]") {
  late_ranks(bulk(Layout::ll_rank_major), Stops::before_combine);
}
TEST_CASE("LL with quantised rows goes on without a rank", "[nodes][masks]") {
  Scenario scenario = lines(Layout::ll_expert_major);
  scenario.quant = UCCLEP_QUANT_FP8_128;
  scenario.scales = Scales{};
  late_ranks(scenario, Stops::before_dispatch);
}
TEST_CASE("LL with weights of the combine goes on without a rank", "[nodes][masks]") {
  Scenario scenario = lines(Layout::ll_expert_major);
  scenario.weights = Weights::with_combine;
  scenario.combine_dtype = ucclEpFloat32;
  late_ranks(scenario, Stops::before_combine);
}

TEST_CASE("HT FLAT goes on without a rank that does not come to an Update",
          "[process][reduced][driver][nodes][masks]") {
  late_ranks(lines(Layout::ht_flat), Stops::before_dispatch);
}
TEST_CASE("HT EXPERT_MAJOR goes on without a rank that does not come to an Update", "[masks]") {
  Scenario scenario = lines(Layout::ht_expert_major);
  scenario.alignment = 4;
  late_ranks(scenario, Stops::before_dispatch);
}
TEST_CASE("HT FLAT goes on without a rank that does not come to a dispatch", "[process][masks]") {
  late_ranks(lines(Layout::ht_flat), Stops::before_rows);
}
TEST_CASE("HT EXPERT_MAJOR goes on without a rank that does not come to a dispatch", "[reduced][nodes][masks]") {
  Scenario scenario = bulk(Layout::ht_expert_major);
  scenario.alignment = 4;
  scenario.quant = UCCLEP_QUANT_FP8_128;
  scenario.scales = Scales{};
  late_ranks(scenario, Stops::before_rows);
}
TEST_CASE("HT FLAT goes on without a rank that does not come to a combine", "[reduced][nodes][masks][modes]") {
  late_ranks(bulk(Layout::ht_flat), Stops::before_combine);
}
TEST_CASE("HT EXPERT_MAJOR goes on without a rank that does not come to a combine", "[process][nodes][masks]") {
  late_ranks(bulk(Layout::ht_expert_major), Stops::before_combine);
}
TEST_CASE("HT with Update and dispatch in one call goes on without a rank", "[masks]") {
  Scenario scenario = lines(Layout::ht_flat);
  scenario.carried = true;
  late_ranks(scenario, Stops::before_dispatch);
}
TEST_CASE("HT with a limit of rows goes on without a rank", "[nodes][masks]") {
  for (const Stops when : {Stops::before_rows, Stops::before_combine}) {
    Scenario scenario = lines(Layout::ht_flat);
    scenario.max_recv = 9;
    scenario.overflow = UCCLEP_OVERFLOW_DROP;
    late_ranks(scenario, when);
  }
}
TEST_CASE("HT goes on without two ranks that do not come", "[nodes][masks]") {
  late_ranks(lines(Layout::ht_expert_major), Stops::before_dispatch, {2, 3});
  late_ranks(lines(Layout::ht_flat), Stops::before_combine, {2, 3});
}

Scenario any_scenario(uint64_t draw) {
  const Layout layout = all_layouts[draw % std::size(all_layouts)];
  Scenario scenario = draw / 4 % 2 == 0 ? lines(layout) : bulk(layout);
  if (layout == Layout::ht_expert_major) scenario.alignment = 1 << draw / 8 % 3;
  if (layout == Layout::ll_expert_major && draw / 32 % 2 == 0) scenario.weights = Weights::with_combine;
  return scenario;
}

TEST_CASE("masks over a network that does what it likes: ranks that do not come", "[network][masks][seeds]") {
  for (unsigned seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    INFO("again: UCCLEP_DEVICE=host UCCLEP_TEST_SEEDS=1 UCCLEP_TEST_FIRST_SEED="
         << seed << " conformance_test '[masks][seeds]'");
    const Scenario scenario = any_scenario(mix(seed));
    const Stops stops[] = {Stops::before_dispatch, Stops::before_combine, Stops::before_rows};
    const Stops when = stops[mix(seed, 1) % (scenario.ll() ? 2 : 3)];
    const bool two = when != Stops::before_rows && mix(seed, 2) % 3 == 0;
    const std::vector<int> lost = two ? std::vector<int>{2, 3} : std::vector<int>{missing};
    const std::string transport = "faulty:delay=400,seed=" + std::to_string(seed) + ":loopback";
    late_ranks(scenario, when, lost, transport.c_str());
  }
}

TEST_CASE("HT backward goes on without a rank that came to the forward pass", "[nodes][masks]") {
  for (const Layout layout : {Layout::ht_flat, Layout::ht_expert_major}) {
    const Scenario scenario = lines(layout), backward = backward_of(scenario);
    run_ranks(ranks, [&](Rank& rank) {
      Masked at(rank, scenario);
      round_trip(rank, at.comm, at.handle, at.stream, scenario);
      meet(rank, 0);
      if (rank.rank != missing) {
        Exchange gradients(rank, at.comm, backward, 1);  // the routing of the round trip
        gradients.expect_blank(missing);
        gradients.dispatch(at.handle, at.stream);
        at.stream.synchronize();
        gradients.check_dispatch();
        gradients.leave_out(missing, true);
        gradients.combine(at.handle, at.stream);
        at.stream.synchronize();
        gradients.check_combine();
        require_record(at);
        require_masked(at, true);
        round_without(rank, at, scenario, 3);
      }
      meet(rank, 1);
      if (rank.rank == missing) hears(rank, at, scenario);
      comes_back(rank, at, scenario);
    });
  }
}

TEST_CASE("HT and LL of one group go on without the rank that one of them has lost", "[process][nodes][masks]") {
  Scenario ll = lines(Layout::ll_expert_major);
  ll.ll_max_tokens = ll.max_tokens;
  const Scenario ht = lines(Layout::ht_flat);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, ll);
    Handle other = make_handle(at.group, handle_config(ht));
    const auto both = [&](uint64_t seed) {
      round_without(rank, at, ll, seed);
      std::swap(at.handle, other);
      round_without(rank, at, ht, seed + 1);
      std::swap(at.handle, other);
    };
    round_trip(rank, at.comm, at.handle, at.stream, ll);
    round_trip(rank, at.comm, other, at.stream, ht);
    meet(rank, 0);
    if (rank.rank != missing) {
      Exchange exchange(rank, at.comm, ht, 2);
      exchange.leave_out(missing);
      exchange.update(other, at.stream);
      at.stream.synchronize();
      exchange.check_counters();
      require_record(at);
      for (uint64_t round = 0; round < 3; ++round) both(10 + 2 * round);
    }
    meet(rank, 1);
    comes_back(rank, at, ll);
    round_trip(rank, at.comm, other, at.stream, ht, 9);
  });
}

TEST_CASE("HT: ucclEpHandleWaitCounts waits until who does not come is masked", "[process][nodes][masks]") {
  const Scenario scenario = lines(Layout::ht_flat);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario);
    meet(rank, 0);
    if (rank.rank != missing) {
      Exchange exchange(rank, at.comm, scenario, 2);
      exchange.leave_out(missing);
      exchange.update(at.handle, at.stream);
      int64_t total = 0;
      ok(ucclEpHandleWaitCounts(at.handle, &total, nullptr), "ucclEpHandleWaitCounts");
      at.stream.synchronize();
      exchange.check_counters();
      require(total == reference::counters(exchange.contents().world(), scenario.shape(), rank.rank).recv_total,
              "WaitCounts says " + std::to_string(total));
      require_record(at);
    }
    meet(rank, 1);
    comes_back(rank, at, scenario);
  });
}

// The rank that comes back has counts of another world than the others.
TEST_CASE("HT: after MaskClear a handle needs an Update", "[process][nodes][masks]") {
  const Scenario scenario = lines(Layout::ht_flat);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    meet(rank, 0);
    ok(ucclEpMaskClear(at.group, at.stream), "ucclEpMaskClear");
    Exchange exchange(rank, at.comm, scenario, 1);
    refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpDispatch", {"ucclEpHandleUpdate"});
    round_trip(rank, at.comm, at.handle, at.stream, scenario, 2);
    no_async_error(at.comm);
  });
}

void masked_at_once(const Scenario& scenario) {
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    meet(rank, 0);
    if (rank.rank != missing) {
      mask_missing(at);
      require_masked(at, true);
      const int all[ranks] = {1, 1, 1, 1};
      refused(ucclEpMaskUpdate(at.group, all, at.stream), ucclEpInvalidUsage, "ucclEpMaskUpdate", {"rank 3"});
    }
    meet(rank, 1);
    if (rank.rank != missing) {
      round_without(rank, at, scenario, 2);
    } else {
      hears(rank, at, scenario);
    }
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("a rank that the others mask is left out at once, and hears of it",
          "[process][reduced][driver][nodes][masks]") {
  for (const Scenario& scenario : {lines(Layout::ll_expert_major), lines(Layout::ht_flat)}) {
    masked_at_once(scenario);
  }
}

void masked_between(const Scenario& scenario) {
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, at.stream);
    exchange.dispatch(at.handle, at.stream);
    at.stream.synchronize();
    exchange.check_dispatch();
    meet(rank, 0);
    if (rank.rank != missing) {
      mask_missing(at);
      exchange.leave_out(missing, true);
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_combine();
      no_async_error(at.comm);
    }
    meet(rank, 1);
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("a rank that is masked between dispatch and combine gives nothing back", "[nodes][masks]") {
  for (const Scenario& scenario :
       {lines(Layout::ll_rank_major), lines(Layout::ht_flat), lines(Layout::ht_expert_major)}) {
    masked_between(scenario);
  }
}

// What it had sent stays in the windows of the others, and is not taken for what it sends when it is back.
void masked_while_it_waits(const Scenario& scenario) {
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    meet(rank, 0);
    if (rank.rank == missing) {
      Exchange exchange(rank, at.comm, scenario, 2);
      update_and_dispatch(exchange, at);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      rank.board.post(3);
      at.stream.synchronize();
      exchange.check_untouched();
      has_heard(rank, at, exchange);
    } else {
      rank.board.wait(3, 1);
      mask_missing(at);
      at.stream.synchronize();
    }
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("a rank is masked while it waits, with its rows sent, and comes back", "[process][nodes][masks]") {
  for (const Scenario& scenario :
       {lines(Layout::ll_expert_major), bulk(Layout::ll_rank_major), lines(Layout::ht_flat)}) {
    masked_while_it_waits(scenario);
  }
}

// Not so late that it misses the deadline.
TEST_CASE("a rank that comes in time is not masked", "[reduced][nodes][masks]") {
  for (const Scenario& scenario : {lines(Layout::ll_expert_major), lines(Layout::ll_rank_major), lines(Layout::ht_flat),
                                   lines(Layout::ht_expert_major)}) {
    run_ranks(ranks, [&](Rank& rank) {
      Masked at(rank, scenario, 20000);
      Exchange exchange(rank, at.comm, scenario);
      const auto wait = [&] {
        if (rank.rank == missing) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      };
      wait();
      update_and_dispatch(exchange, at);
      at.stream.synchronize();
      exchange.check_counters();
      exchange.check_dispatch();
      wait();
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_combine();
      require_masked(at, false);
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("LL goes on without two ranks that do not come to a dispatch", "[masks]") {
  late_ranks(lines(Layout::ll_expert_major), Stops::before_dispatch, {2, 3});
}
TEST_CASE("LL goes on without two ranks that do not come to a combine", "[nodes][masks]") {
  late_ranks(bulk(Layout::ll_rank_major), Stops::before_combine, {2, 3});
}

// Else who finds out about both at once goes on a time limit before who does not, and waits for it as long: either
// takes the other for lost.
TEST_CASE("ranks that are lost together cost the others one time limit", "[process][nodes][masks]") {
  constexpr int limit_ms = 3000;
  for (const Scenario& scenario :
       {lines(Layout::ll_expert_major), bulk(Layout::ll_rank_major), lines(Layout::ht_flat)}) {
    run_ranks(ranks, [&](Rank& rank) {
      Masked at(rank, scenario, limit_ms);
      const std::vector<int> lost{1, 2, 3};
      round_trip(rank, at.comm, at.handle, at.stream, scenario);
      meet(rank, 0);
      if (rank.rank == 0) {
        Exchange exchange(rank, at.comm, scenario, 2);
        for (const int peer : lost) exchange.leave_out(peer);
        const Clock::time_point begin = Clock::now();
        update_and_dispatch(exchange, at);
        at.stream.synchronize();
        const double took = seconds_since(begin);
        require(took < 1.75 * limit_ms / 1000, "it took " + std::to_string(took) + " s");
        exchange.check_counters();
        exchange.check_dispatch();
        require_record(at, lost);
        require_mask(at, mask_without(lost));
      }
      comes_back(rank, at, scenario);
    });
  }
}

TEST_CASE("ranks are lost one after the other until one is left", "[nodes][masks]") {
  const Scenario scenario = lines(Layout::ll_expert_major);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 1000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    std::vector<int> lost;
    for (int last = ranks - 1; last > 0; --last) {
      meet(rank, 2 + last);
      lost.push_back(last);
      if (rank.rank >= last) continue;
      Exchange exchange(rank, at.comm, scenario, 2);
      for (const int peer : lost) exchange.leave_out(peer);
      update_and_dispatch(exchange, at);
      exchange.combine(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_counters();
      exchange.check_dispatch();
      exchange.check_combine();
      require_record(at, {last});
    }
    if (rank.rank == 0) require_mask(at, mask_without(lost));
    comes_back(rank, at, scenario);
  });
}

TEST_CASE("abort from another thread ends an operation that waits for a rank to mask", "[reduced][masks]") {
  const Scenario scenario = lines(Layout::ll_expert_major);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    meet(rank, 0);
    if (rank.rank != missing) {
      Exchange exchange(rank, at.comm, scenario, 2);
      update_and_dispatch(exchange, at);
      exchange.combine(at.handle, at.stream);
      is_aborted(at, exchange, std::chrono::milliseconds(100));
    }
    meet(rank, 1);
  });
}

// Between domains each time over new connections, whose ends nobody takes for a loss.
TEST_CASE("ranks come together again and again", "[process][nodes][masks]") {
  for (const Scenario& scenario : {lines(Layout::ll_expert_major), lines(Layout::ht_flat)}) {
    run_ranks(ranks, [&](Rank& rank) {
      Masked at(rank, scenario, 20000);
      for (uint64_t round = 1; round <= 20; ++round) {
        round_trip(rank, at.comm, at.handle, at.stream, scenario, round);
        ok(ucclEpMaskClear(at.group, at.stream), "ucclEpMaskClear");
        no_async_error(at.comm);
      }
    });
  }
}

TEST_CASE("arguments of masks that make no sense are refused", "[process][masks]") {
  const Scenario scenario = lines(Layout::ll_expert_major);
  run_ranks(ranks, [&](Rank& rank) {
    Masked at(rank, scenario, 20000);
    refused(ucclEpMaskQuery(at.group, nullptr, at.stream), ucclEpInvalidArgument, "ucclEpMaskQuery", {"device_mask"});
    refused(ucclEpMaskUpdate(at.group, nullptr, at.stream), ucclEpInvalidArgument, "ucclEpMaskUpdate", {"host_mask"});
    int mask[ranks] = {1, 1, 1, 1};
    mask[1] = 2;
    refused(ucclEpMaskUpdate(at.group, mask, at.stream), ucclEpInvalidArgument, "ucclEpMaskUpdate", {"host_mask[1]"});
    mask[1] = 1;
    mask[rank.rank] = 0;
    refused(ucclEpMaskUpdate(at.group, mask, at.stream), ucclEpInvalidArgument, "ucclEpMaskUpdate", {"itself"});
    round_trip(rank, at.comm, at.handle, at.stream, scenario);
    ok(ucclEpMaskClear(at.group, at.stream), "ucclEpMaskClear");
    Exchange exchange(rank, at.comm, scenario, 1);
    refused(exchange.try_combine(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpCombine", {"dispatched nothing"});
    round_trip(rank, at.comm, at.handle, at.stream, scenario, 2);
  });
}

}  // namespace
}  // namespace ucclep::test

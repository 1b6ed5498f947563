// SPDX-License-Identifier: Apache-2.0
// How objects are used together: one routing for many operations, several handles, groups, communicators and streams,
// the caller's allocator, and what a group costs.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

Scenario short_lived(Layout layout, int top_k = 2) {
  return {.layout = layout, .top_k = top_k, .max_tokens = 6, .hidden = 32};
}

void check_pair(Exchange& exchange, ucclEpHandle_t handle, Stream& stream) {
  exchange.dispatch(handle, stream);
  exchange.combine(handle, stream);
  stream.synchronize();
  exchange.check_dispatch();
  exchange.check_combine();
}

TEST_CASE("one update serves several pairs of dispatch and combine", "[process][reduced][nodes]") {
  for (const Layout layout : all_layouts) {
    const Scenario scenario = short_lived(layout);
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario);
      exchange.update(at.handle, at.stream);
      at.stream.synchronize();  // topk_idx is its until then; refresh writes it
      for (uint64_t pair = 0; pair < 5; ++pair) {
        exchange.refresh(pair);
        check_pair(exchange, at.handle, at.stream);
        exchange.check_counters();
      }
    });
  }
}

TEST_CASE("counters of LL are written by the first dispatch after the update only", "[process]") {
  const Scenario scenario = short_lived(Layout::ll_expert_major);
  run_ranks(4, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    Tensor counts(at.comm, "tokens_per_expert", ucclEpInt32, {scenario.local_experts()});
    ucclEpCounters_t counters = UCCLEP_COUNTERS_INIT;
    counters.tokens_per_expert = counts.get();
    ok(ucclEpHandleUpdate(at.handle, exchange.topk_idx().get(), &counters, at.stream), "ucclEpHandleUpdate");
    check_pair(exchange, at.handle, at.stream);
    const reference::World& world = exchange.contents().world();
    counts.set_integers(reference::counters(world, scenario.shape(), rank.rank).tokens_per_expert);
    counts.verify(rank.rank);
    counts.poison();
    exchange.refresh(2);
    check_pair(exchange, at.handle, at.stream);
    counts.verify(rank.rank);
  });
}

TEST_CASE("dispatch carries the routing", "[process][reduced][driver][checked]") {
  Scenario scenario{.experts = 16, .top_k = 4, .max_tokens = 9, .rule = uniform(10)};
  scenario.carried = true;
  for (const Scenario& layout : in_all_layouts(scenario)) run(layout, 3);
}

TEST_CASE("updates and carried routing take turns on one handle", "[process]") {
  for (const Layout layout : all_layouts) {
    const Scenario updated = short_lived(layout);
    Scenario carried = updated;
    carried.carried = true;
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, updated);
      for (uint64_t seed = 0; seed < 4; ++seed) {
        round_trip(rank, at.comm, at.handle, at.stream, seed % 2 == 0 ? carried : updated, seed);
      }
    });
  }
}

TEST_CASE("dispatch and combine with only what is required", "[process]") {
  for (const Layout layout : all_layouts) {
    const Scenario scenario = short_lived(layout);
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario);
      ok(ucclEpHandleUpdate(at.handle, exchange.topk_idx().get(), nullptr, at.stream), "ucclEpHandleUpdate");
      ucclEpDispatchInputs_t in = UCCLEP_DISPATCH_INPUTS_INIT;
      in.tokens = exchange.dispatch_in.tokens;
      ucclEpDispatchOutputs_t out = UCCLEP_DISPATCH_OUTPUTS_INIT;
      out.tokens = exchange.dispatch_out.tokens;
      ok(ucclEpDispatch(at.handle, &in, &out, nullptr, at.stream), "ucclEpDispatch");
      ucclEpCombineInputs_t back = UCCLEP_COMBINE_INPUTS_INIT;
      back.tokens = exchange.combine_in.tokens;
      if (layout == Layout::ll_expert_major) back.topk_weights = exchange.dispatch_in.topk_weights;
      ucclEpCombineOutputs_t result = UCCLEP_COMBINE_OUTPUTS_INIT;
      result.tokens = exchange.combine_out.tokens;
      ok(ucclEpCombine(at.handle, &back, &result, nullptr, at.stream), "ucclEpCombine");
      at.stream.synchronize();
      // Where no source was asked for, the row alone says where it came from: all rows are checked by their bytes.
      for (const reference::Slot& slot :
           reference::placement(exchange.contents().world(), scenario.shape(), rank.rank).slots) {
        exchange.tokens_out().fill_row(slot.row, exchange.contents().received(slot.source, slot.token).bytes.data());
      }
      exchange.tokens_out().verify(rank.rank);
      const std::vector<float> expected = exchange.contents().combined(rank.rank);
      for (size_t i = 0; i < expected.size(); ++i) {
        reference::store(scenario.combine_dtype,
                         exchange.combined().element(static_cast<int64_t>(i) / 32, static_cast<int64_t>(i) % 32),
                         expected[i]);
      }
      exchange.combined().verify(rank.rank);
    });
  }
}

TEST_CASE("two handles with different numbers of choices interleave", "[process]") {
  for (const Layout layout : all_layouts) {
    const Scenario one = short_lived(layout, 1), two = short_lived(layout, 2);
    run_ranks(4, [&](Rank& rank) {
      Comm comm(rank);
      Stream stream(comm);
      Group group = make_group(comm, group_config({one, two}));
      Handle a = make_handle(group, handle_config(one)), b = make_handle(group, handle_config(two));
      for (uint64_t round = 0; round < 4; ++round) {
        Exchange first(rank, comm, one, round), second(rank, comm, two, 100 + round);
        first.update(a, stream);
        second.update(b, stream);
        first.dispatch(a, stream);
        second.dispatch(b, stream);
        first.combine(a, stream);
        second.combine(b, stream);
        stream.synchronize();
        for (Exchange* exchange : {&first, &second}) {
          exchange->check_counters();
          exchange->check_dispatch();
          exchange->check_combine();
        }
      }
    });
  }
}

TEST_CASE("LL and HT take turns on one group", "[process][reduced][driver][checked][modes]") {
  run_ranks(4, [&](Rank& rank) {
    std::vector<Scenario> scenarios = in_all_layouts({.top_k = 3, .max_tokens = 11, .ll_max_tokens = 5});
    Comm comm(rank);
    Stream stream(comm);
    Group group = make_group(comm, group_config(scenarios));
    std::vector<Handle> handles;
    for (const Scenario& scenario : scenarios) handles.push_back(make_handle(group, handle_config(scenario)));
    for (uint64_t round = 0; round < 3; ++round) {
      for (size_t i = 0; i < scenarios.size(); ++i) {
        round_trip(rank, comm, handles[i], stream, scenarios[i], round * 10 + i);
      }
    }
  });
}

TEST_CASE("LL and HT operations are in flight together", "[process]") {
  const Scenario ll = short_lived(Layout::ll_rank_major), ht = short_lived(Layout::ht_flat);
  run_ranks(4, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    Group group = make_group(comm, group_config({ll, ht}));
    Handle low = make_handle(group, handle_config(ll)), high = make_handle(group, handle_config(ht));
    Exchange first(rank, comm, ll, 1), second(rank, comm, ht, 2);
    second.update(high, stream);
    first.update(low, stream);
    first.dispatch(low, stream);
    second.dispatch(high, stream);
    second.combine(high, stream);
    first.combine(low, stream);
    stream.synchronize();
    for (Exchange* exchange : {&first, &second}) {
      exchange->check_counters();
      exchange->check_dispatch();
      exchange->check_combine();
    }
  });
}

TEST_CASE("two groups on one communicator", "[process]") {
  const Scenario one = short_lived(Layout::ll_expert_major);
  const Scenario two{.layout = Layout::ht_expert_major, .experts = 16, .top_k = 5, .max_tokens = 13, .hidden = 8};
  run_ranks(4, [&](Rank& rank) {
    Session first(rank, one);
    Group group = make_group(first.comm, group_config({two}));
    Handle handle = make_handle(group, handle_config(two));
    for (uint64_t round = 0; round < 3; ++round) {
      round_trip(rank, first.comm, first.handle, first.stream, one, round);
      round_trip(rank, first.comm, handle, first.stream, two, round);
    }
  });
}

TEST_CASE("two communicators are independent", "[process]") {
  const Scenario scenario = short_lived(Layout::ht_flat);
  run_ranks(4, {.communicators = 2}, [&](Rank& rank) {
    Comm one(rank, comm_config(rank), 0), two(rank, comm_config(rank), 1);
    Stream first(one), second(two);
    ucclEpGroupConfig_t config = group_config({scenario});
    config.num_sms = 8;  // blocks of both wait for peers at once, also on a GPU that four ranks share
    Group a = make_group(one, config), b = make_group(two, config);
    Handle x = make_handle(a, handle_config(scenario)), y = make_handle(b, handle_config(scenario));
    Exchange left(rank, one, scenario, 1), right(rank, two, scenario, 2);
    left.update(x, first);
    right.update(y, second);
    left.dispatch(x, first);
    right.dispatch(y, second);
    first.synchronize();
    second.synchronize();
    left.check_dispatch();
    right.check_dispatch();
  });
}

TEST_CASE("a communicator after a communicator", "[process][reduced][driver]") {
  const Scenario scenario = short_lived(Layout::ll_expert_major);
  run_ranks(3, {.communicators = 3}, [&](Rank& rank) {
    for (int id = 0; id < 3; ++id) {
      Scenario three = scenario;
      three.ranks = 3;
      three.experts = 6;
      Comm comm(rank, comm_config(rank), id);
      Stream stream(comm);
      Group group = make_group(comm, group_config({three}));
      Handle handle = make_handle(group, handle_config(three));
      round_trip(rank, comm, handle, stream, three);
    }
  });
}

TEST_CASE("operations on two streams ordered by events", "[process][reduced][driver][checked][modes]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_flat}) {
    const Scenario scenario = short_lived(layout);
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, scenario);
      Stream other(at.comm);
      Event updated(at.comm), dispatched(at.comm), combined(at.comm);
      Exchange exchange(rank, at.comm, scenario);
      exchange.update(at.handle, at.stream);
      ok(ucclEpEventRecord(at.comm, updated, at.stream), "ucclEpEventRecord");
      ok(ucclEpStreamWaitEvent(at.comm, other, updated), "ucclEpStreamWaitEvent");
      exchange.dispatch(at.handle, other);
      ok(ucclEpEventRecord(at.comm, dispatched, other), "ucclEpEventRecord");
      ok(ucclEpStreamWaitEvent(at.comm, at.stream, dispatched), "ucclEpStreamWaitEvent");
      exchange.combine(at.handle, at.stream);
      ok(ucclEpEventRecord(at.comm, combined, at.stream), "ucclEpEventRecord");
      ok(ucclEpEventSynchronize(at.comm, combined), "ucclEpEventSynchronize");
      exchange.check_dispatch();
      exchange.check_combine();
      float ms = -1;
      ok(ucclEpEventElapsed(at.comm, updated, combined, &ms), "ucclEpEventElapsed");
      require(ms >= 0 && ms < 100000, "ucclEpEventElapsed gave " + std::to_string(ms));
    });
  }
}

TEST_CASE("operations on the default stream", "[process][driver]") {
  run_ranks(4, [&](Rank& rank) {
    const Scenario scenario = short_lived(Layout::ll_rank_major);
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    exchange.update(at.handle, nullptr);
    exchange.dispatch(at.handle, nullptr);
    exchange.combine(at.handle, nullptr);
    ok(ucclEpStreamSynchronize(at.comm, nullptr), "ucclEpStreamSynchronize");
    exchange.check_dispatch();
    exchange.check_combine();
  });
}

TEST_CASE("the same input gives the same bytes in every run", "[process]") {
  for (const Layout layout : all_layouts) {
    const Scenario scenario{
        .layout = layout, .experts = 16, .top_k = 6, .max_tokens = 17, .combine_dtype = ucclEpFloat32};
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario);
      std::vector<uint8_t> rows, sums;
      for (int round = 0; round < 6; ++round) {
        exchange.refresh(1);
        exchange.update(at.handle, at.stream);
        exchange.dispatch(at.handle, at.stream);
        exchange.combine(at.handle, at.stream);
        at.stream.synchronize();
        if (round == 0) rows = exchange.tokens_out().download();
        if (round == 0) sums = exchange.combined().download();
        require(exchange.tokens_out().download() == rows, "dispatch of round " + std::to_string(round) + " differs");
        require(exchange.combined().download() == sums, "combine of round " + std::to_string(round) + " differs");
      }
    });
  }
}

TEST_CASE("more operations than slots run without a synchronisation between", "[process][reduced][nodes][modes]") {
  const int rounds = reduced() ? 6 : 25;
  for (const Layout layout : all_layouts) {
    const Scenario scenario = short_lived(layout);
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, scenario);
      Exchange exchange(rank, at.comm, scenario);
      for (int round = 0; round < rounds; ++round) {
        exchange.update(at.handle, at.stream);
        exchange.dispatch(at.handle, at.stream);
        exchange.combine(at.handle, at.stream);
      }
      at.stream.synchronize();
      exchange.check_counters();
      exchange.check_combine();
    });
  }
}

TEST_CASE("ucclEpComplete with nothing pending does nothing", "[process][reduced]") {
  for (const Layout layout : all_layouts) {
    const Scenario scenario = short_lived(layout);
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, scenario);
      ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete before the first operation");
      Exchange exchange(rank, at.comm, scenario);
      exchange.update(at.handle, at.stream);
      exchange.dispatch(at.handle, at.stream);
      ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete after dispatch");
      exchange.combine(at.handle, at.stream);
      ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete after combine");
      at.stream.synchronize();
      exchange.check_dispatch();
      exchange.check_combine();
    });
  }
}

TEST_CASE("the mode that AUTO means follows from the layout and the group's size", "[process]") {
  run_ranks(2, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    for (const int max_tokens : {256, 257}) {
      for (Scenario scenario :
           in_all_layouts({.ranks = 2, .experts = 4, .max_tokens = max_tokens, .tokens = {4, 3}, .hidden = 8})) {
        const bool expert_major_is_ll = max_tokens <= 256;
        if (scenario.by_expert() && scenario.ll() != expert_major_is_ll) continue;
        Group group = make_group(comm, group_config({scenario}));
        ucclEpHandleConfig_t config = handle_config(scenario);
        config.mode = UCCLEP_MODE_AUTO;
        Handle handle = make_handle(group, config);
        round_trip(rank, comm, handle, stream, scenario);
      }
    }
  });
}

TEST_CASE("max_in_flight from 2 to 8", "[process][nodes]") {
  const Scenario scenario = short_lived(Layout::ll_expert_major);
  run_ranks(4, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    for (const int in_flight : {2, 3, 8}) {
      ucclEpGroupConfig_t config = group_config({scenario});
      config.max_in_flight = in_flight;
      Group group = make_group(comm, config);
      Handle handle = make_handle(group, handle_config(scenario));
      for (uint64_t round = 0; round < 10; ++round) round_trip(rank, comm, handle, stream, scenario, round);
    }
  });
}

}  // namespace
}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// Operations in two phases: send_only starts them, ucclEpComplete finishes them. In between the group goes on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

void in_phases(Exchange& exchange, bool phases = true) {
  exchange.dispatch_config.send_only = exchange.combine_config.send_only = phases ? 1 : 0;
}

void complete(ucclEpHandle_t handle, ucclEpStream_t stream) {
  ok(ucclEpComplete(handle, stream), "ucclEpComplete");
}

void update_forward(Exchange& exchange, ucclEpHandle_t handle, ucclEpStream_t stream) {
  if (!exchange.scenario().carried && exchange.scenario().pass == UCCLEP_PASS_FORWARD) exchange.update(handle, stream);
}

// Both operations in phases; the outputs are written by the second.
void phases_round_trip(const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream,
                       const Scenario& scenario, uint64_t seed) {
  Exchange exchange(rank, comm, scenario, seed);
  in_phases(exchange);
  update_forward(exchange, handle, stream);
  exchange.dispatch(handle, stream);
  stream.synchronize();
  exchange.check_untouched();
  complete(handle, stream);
  stream.synchronize();
  if (scenario.pass == UCCLEP_PASS_FORWARD) exchange.check_counters();
  exchange.check_dispatch();
  exchange.combine(handle, stream);
  stream.synchronize();
  complete(handle, stream);
  complete(handle, stream);  // nothing is pending any more
  stream.synchronize();
  exchange.check_combine();
}

void run_phases(const std::vector<Scenario>& scenarios, int rounds = 1) {
  const auto phases_and_whole = [](const Rank& rank, ucclEpComm_t comm, ucclEpHandle_t handle, Stream& stream,
                                   const Scenario& scenario, uint64_t seed) {
    phases_round_trip(rank, comm, handle, stream, scenario, seed);
    round_trip(rank, comm, handle, stream, scenario, seed + 100);
  };
  run_each(scenarios, phases_and_whole, rounds);
}

TEST_CASE("phases: dispatch and combine, slots used again",
          "[phases][process][reduced][driver][checked][nodes][modes]") {
  run_phases(
      in_all_layouts({.top_k = 3, .max_tokens = 11, .hidden = 72, .alignment = 4, .rule = uniform(20), .seed = 301}),
      reduced() ? 2 : 3);
}

TEST_CASE("phases: quantised on the way", "[phases][process][driver][nodes]") {
  run_phases(
      in_all_layouts({.max_tokens = 9, .hidden = 256, .scales = Scales{}, .quant = UCCLEP_QUANT_FP8_128, .seed = 310}));
  run_phases(in_all_layouts({.max_tokens = 9,
                             .hidden = 1024,
                             .scales = Scales{.dtype = ucclEpInt32},
                             .quant = UCCLEP_QUANT_FP8_128,
                             .round_scale = true,
                             .seed = 311}));
}

TEST_CASE("phases: other types, strides and ranks without tokens", "[phases][nodes]") {
  run_phases(in_all_layouts({.tokens = {0, 8, 0, 3},
                             .dtype = ucclEpFloat8e4m3,
                             .combine_dtype = ucclEpFloat16,
                             .scales = Scales{.width = 4},
                             .biases = 2,
                             .strided = true,
                             .seed = 320}));
  run_phases(in_all_layouts({.experts = 16,
                             .top_k = 8,
                             .dtype = ucclEpFloat32,
                             .combine_dtype = ucclEpFloat32,
                             .carried = true,
                             .seed = 321}));
}

TEST_CASE("phases: rows that travel in bulk", "[phases][driver][nodes]") {
  run_phases(in_all_layouts({.max_tokens = 14, .hidden = 1024, .seed = 330}));
  run_phases({{.layout = Layout::ll_expert_major,
               .max_tokens = 14,
               .hidden = 1024,
               .scales = Scales{},
               .quant = UCCLEP_QUANT_FP8_128,
               .seed = 331}});
}

TEST_CASE("phases: weights that come with combine", "[phases][process][driver][nodes]") {
  for (const Weights weights : {Weights::with_combine, Weights::with_both}) {
    run_phases({{.layout = Layout::ll_expert_major, .top_k = 4, .weights = weights, .seed = 340}}, 2);
  }
}

TEST_CASE("phases: the backward pass", "[phases][process][driver][nodes]") {
  const Scenario shape{.top_k = 3, .max_tokens = 11, .hidden = 72, .alignment = 4, .rule = uniform(20), .seed = 350};
  for (const Scenario& scenario : in_all_layouts(shape)) {
    if (scenario.layout == Layout::ll_rank_major) continue;
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, scenario);
      phases_round_trip(rank, at.comm, at.handle, at.stream, scenario, scenario.seed);
      phases_round_trip(rank, at.comm, at.handle, at.stream, backward_of(scenario), scenario.seed);
      there_and_back(rank, at.comm, at.handle, at.stream, scenario, scenario.seed + 1);
    });
  }
}

// ---- Between the phases ----

// Handles of one group, with exchanges of their own.
struct Crew {
  Crew(const Rank& rank, const Scenario& scenario, int count, int in_flight = 0) : comm(rank), stream(comm) {
    ucclEpGroupConfig_t config = group_config({scenario});
    config.max_in_flight = in_flight;
    group = std::make_unique<Group>(make_group(comm, config));
    for (int i = 0; i < count; ++i) {
      handles.push_back(make_handle(*group, handle_config(scenario)));
      exchanges.push_back(std::make_unique<Exchange>(rank, comm, scenario, scenario.seed + static_cast<uint64_t>(i)));
      in_phases(*exchanges.back());
      update_forward(*exchanges.back(), handles.back(), stream);
    }
  }

  ucclEpHandle_t handle(int i) { return handles[static_cast<size_t>(i)]; }
  Exchange& exchange(int i) { return *exchanges[static_cast<size_t>(i)]; }
  void dispatch(int i) { exchange(i).dispatch(handle(i), stream); }
  void combine(int i) { exchange(i).combine(handle(i), stream); }
  void complete(int i) { test::complete(handle(i), stream); }
  void check(int i) {
    stream.synchronize();
    exchange(i).check_dispatch();
    exchange(i).check_combine();
  }

  Comm comm;
  Stream stream;
  std::unique_ptr<Group> group;
  std::vector<Handle> handles;
  std::vector<std::unique_ptr<Exchange>> exchanges;
};

Scenario medium(const Scenario& layout, uint64_t seed) {
  Scenario scenario = layout;
  scenario.max_tokens = 12;
  scenario.hidden = 96;
  scenario.seed = seed;
  return scenario;
}

TEST_CASE("phases: whole operations of other handles in between", "[phases][process][driver][nodes]") {
  for (const Scenario& layout : in_all_layouts({})) {
    run_ranks(4, [&](Rank& rank) {
      const Scenario scenario = medium(layout, 360);
      Crew crew(rank, scenario, 2);
      in_phases(crew.exchange(1), false);
      for (uint64_t round = 0; round < 3; ++round) {
        if (round > 0) crew.exchange(0).refresh(50 + round);
        if (round > 0) crew.exchange(1).refresh(60 + round);
        crew.dispatch(0);
        crew.dispatch(1);
        crew.combine(1);
        crew.complete(0);
        crew.check(1);
        crew.exchange(1).refresh(70 + round);
        crew.combine(0);
        crew.dispatch(1);
        crew.combine(1);
        crew.complete(0);
        crew.check(0);
        crew.check(1);
      }
      no_async_error(crew.comm);
    });
  }
}

// With one more handle than operations that may be in flight.
void fill_the_ring(Crew& crew, int in_flight) {
  const auto one_more = [&](bool combines) {
    for (const bool phases : {false, true}) {
      Exchange& exchange = crew.exchange(in_flight);
      in_phases(exchange, phases);
      refused(combines ? exchange.try_combine(crew.handle(in_flight), crew.stream)
                       : exchange.try_dispatch(crew.handle(in_flight), crew.stream),
              ucclEpInvalidUsage, combines ? "ucclEpCombine" : "ucclEpDispatch", {"max_in_flight"});
    }
  };
  std::vector<int> order(static_cast<size_t>(in_flight));
  std::iota(order.begin(), order.end(), 0);
  for (int round = 0; round < (reduced() ? 2 : 3); ++round) {
    for (int i = 0; i < in_flight; ++i) crew.dispatch(i);
    one_more(false);
    for (const int i : order) crew.complete(i);
    if (round == 0) crew.dispatch(in_flight);
    if (round == 0) crew.complete(in_flight);
    for (const int i : order) crew.combine(i);
    one_more(true);
    std::rotate(order.begin(), order.begin() + 1, order.end());
    if (round == 1) std::reverse(order.begin(), order.end());
    for (const int i : order) crew.complete(i);
    for (const int i : order) crew.check(i);
    for (const int i : order) crew.exchange(i).refresh(static_cast<uint64_t>(80 + 10 * round + i));
  }
  no_async_error(crew.comm);
}

TEST_CASE("phases: as many as may be in flight, completed in any order, and one more",
          "[phases][process][reduced][driver][nodes]") {
  for (const Scenario& layout : in_all_layouts({})) {
    for (const int in_flight : reduced() ? std::vector{4} : std::vector{2, 4}) {
      run_ranks(4, [&](Rank& rank) {
        Crew crew(rank, medium(layout, 370), in_flight + 1, in_flight);
        fill_the_ring(crew, in_flight);
      });
    }
  }
}

// Rank 0 goes on with a slot that the others have yet to read, though they have read the next: it waits for them.
// whole: it takes that operation in one piece.
void write_slot_again(const Scenario& scenario, bool whole) {
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Crew crew(rank, scenario, 2);
    crew.dispatch(0);
    crew.dispatch(1);
    crew.complete(1);
    if (rank.rank != 0) {
      rank.board.wait(0, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    crew.complete(0);
    crew.stream.synchronize();
    crew.exchange(0).check_dispatch();
    crew.exchange(0).refresh(76);
    if (rank.rank == 0 && whole) in_phases(crew.exchange(0), false);
    crew.dispatch(0);
    if (rank.rank == 0) rank.board.post(0);
    crew.complete(0);
    crew.stream.synchronize();
    crew.exchange(0).check_dispatch();
    crew.exchange(1).check_dispatch();
    no_async_error(crew.comm);
  });
}

TEST_CASE("phases: a slot is not written again before all have read it",
          "[phases][process][reduced][driver][nodes][modes]") {
  for (const Scenario& layout : in_all_layouts({})) write_slot_again(medium(layout, 375), false);
}

// By kernels whose warps wait for slots each for itself: of few tokens, and of more.
TEST_CASE("phases: nor by a whole dispatch, whose warps ask for themselves", "[phases][driver]") {
  const Scenario small{.layout = Layout::ll_expert_major, .experts = 12, .top_k = 3, .hidden = 8, .seed = 376};
  for (const std::vector<int64_t>& tokens : std::vector<std::vector<int64_t>>{{2, 2}, {7, 5}}) {
    for (const bool quantised : {false, true}) {
      Scenario scenario = small;
      scenario.ranks = 2;
      scenario.tokens = tokens;
      scenario.max_tokens = static_cast<int>(tokens.front());
      if (quantised) {
        scenario.hidden = 128;
        scenario.scales = Scales{};
        scenario.quant = UCCLEP_QUANT_FP8_128;
      }
      write_slot_again(scenario, true);
    }
  }
}

TEST_CASE("phases: of both kinds and modes at once", "[phases][process][driver][nodes]") {
  run_ranks(4, [&](Rank& rank) {
    const Scenario ll = medium({.layout = Layout::ll_expert_major}, 380), ht = medium({.layout = Layout::ht_flat}, 381);
    Comm comm(rank);
    Stream stream(comm);
    Group group = make_group(comm, group_config({ll, ht}));
    Handle of_ll = make_handle(group, handle_config(ll)), of_ht = make_handle(group, handle_config(ht));
    for (uint64_t round = 0; round < 3; ++round) {
      Exchange decode(rank, comm, ll, 90 + round), prefill(rank, comm, ht, 95 + round);
      in_phases(decode);
      in_phases(prefill);
      decode.update(of_ll, stream);
      prefill.update(of_ht, stream);
      decode.dispatch(of_ll, stream);
      prefill.dispatch(of_ht, stream);
      complete(of_ll, stream);
      decode.combine(of_ll, stream);
      complete(of_ht, stream);
      prefill.combine(of_ht, stream);
      complete(of_ht, stream);
      complete(of_ll, stream);
      stream.synchronize();
      for (Exchange* exchange : {&decode, &prefill}) {
        exchange->check_dispatch();
        exchange->check_combine();
      }
    }
  });
}

TEST_CASE("phases: ranks that take whole operations meet ranks that do not", "[phases][process][driver][nodes]") {
  for (const Scenario& layout : in_all_layouts({})) {
    run_ranks(4, [&](Rank& rank) {
      const Scenario scenario = medium(layout, 390);
      Crew crew(rank, scenario, 2);
      for (int round = 0; round < 4; ++round) {
        const bool phases = (rank.rank + round) % 3 != 0;
        in_phases(crew.exchange(0), phases);
        in_phases(crew.exchange(1), !phases || round == 3);
        if (round > 0) crew.exchange(0).refresh(static_cast<uint64_t>(20 + round));
        if (round > 0) crew.exchange(1).refresh(static_cast<uint64_t>(30 + round));
        crew.dispatch(0);
        crew.dispatch(1);
        crew.complete(1);
        crew.combine(1);
        crew.complete(0);
        crew.complete(1);
        crew.combine(0);
        crew.complete(0);
        crew.check(0);
        crew.check(1);
      }
    });
  }
}

TEST_CASE("phases: on two streams that events order", "[phases][process][driver]") {
  for (const Scenario& layout : in_all_layouts({})) {
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, medium(layout, 400));
      const Stream side(at.comm);
      const Event sent(at.comm), received(at.comm);
      Exchange exchange(rank, at.comm, medium(layout, 400));
      in_phases(exchange);
      update_forward(exchange, at.handle, at.stream);
      exchange.dispatch(at.handle, at.stream);
      ok(ucclEpEventRecord(at.comm, sent, at.stream), "ucclEpEventRecord");
      ok(ucclEpStreamWaitEvent(at.comm, side, sent), "ucclEpStreamWaitEvent");
      complete(at.handle, side);
      exchange.combine(at.handle, side);
      ok(ucclEpEventRecord(at.comm, received, side), "ucclEpEventRecord");
      ok(ucclEpStreamWaitEvent(at.comm, at.stream, received), "ucclEpStreamWaitEvent");
      complete(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
      exchange.check_combine();
    });
  }
}

// ---- What goes wrong ----

TEST_CASE("phases: calls out of order are refused, and nothing is lost", "[phases][process][reduced]") {
  for (const Scenario& layout : in_all_layouts({.ranks = 2, .experts = 4, .max_tokens = 4})) {
    run_ranks(2, [&](Rank& rank) {
      Session at(rank, layout);
      Exchange exchange(rank, at.comm, layout), other(rank, at.comm, layout, 2);
      const auto all_refused = [&](const char* pending) {
        refused(other.try_update(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpHandleUpdate",
                {pending, "pending", "ucclEpComplete"});
        refused(other.try_dispatch(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpDispatch",
                {pending, "pending", "ucclEpComplete"});
        refused(other.try_combine(at.handle, at.stream), ucclEpInvalidUsage, "ucclEpCombine",
                {pending, "pending", "ucclEpComplete"});
      };
      update_forward(exchange, at.handle, at.stream);
      exchange.dispatch_config.send_only = 2;
      refused(exchange.try_dispatch(at.handle, at.stream), ucclEpInvalidArgument, "ucclEpDispatch", {"send_only", "2"});
      in_phases(exchange);
      exchange.dispatch(at.handle, at.stream);
      all_refused("dispatch");
      complete(at.handle, at.stream);
      exchange.combine(at.handle, at.stream);
      all_refused("combine");
      complete(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_dispatch();
      exchange.check_combine();
      refused(ucclEpComplete(nullptr, at.stream), ucclEpInvalidArgument, "ucclEpComplete", {"handle"});
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("phases: ranks whose settings differ all say so, and go on", "[phases][process][nodes]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_flat}) {
    const Scenario scenario{.layout = layout, .hidden = 64};
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, scenario);
      Scenario own = scenario;
      if (rank.rank == 2) own.hidden = own.combine_hidden = 32;
      Exchange exchange(rank, at.comm, own);
      in_phases(exchange);
      exchange.update(at.handle, at.stream);
      exchange.dispatch(at.handle, at.stream);
      complete(at.handle, at.stream);
      at.stream.synchronize();
      exchange.check_untouched();
      require(async_error(at.comm).code == ucclEpInvalidArgument, "no rank was told that settings differ");
      rank.board.add(0);
      rank.board.wait(0, 4);
      ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
      phases_round_trip(rank, at.comm, at.handle, at.stream, scenario, 7);
    });
  }
}

// Rank 1 never begins.
TEST_CASE("phases: a peer that does not come is named", "[phases][process][nodes]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_expert_major}) {
    run_ranks(2, [&](Rank& rank) {
      const Scenario scenario{.layout = layout, .ranks = 2, .experts = 4};
      Session at(rank, scenario, 2000);
      Exchange exchange(rank, at.comm, scenario);
      in_phases(exchange);
      exchange.update(at.handle, at.stream);
      at.stream.synchronize();
      rank.board.add(0);
      rank.board.wait(0, 2);
      if (rank.rank == 0) {
        exchange.dispatch(at.handle, at.stream);
        complete(at.handle, at.stream);
        answered(ucclEpStreamSynchronize(at.comm, at.stream), ucclEpTimeout, at.comm, "ucclEpStreamSynchronize");
        const ucclEpAsyncError_t error = async_error(at.comm);
        require(error.peer == 1 && std::string(error.op).find("ispatch") != std::string::npos, error.text);
        require(ucclEpComplete(at.handle, at.stream) == ucclEpTimeout, "a later call was not refused");
      }
      rank.board.add(1);
      rank.board.wait(1, 2);
    });
  }
}

TEST_CASE("phases: abort ends a receive phase, and what is pending goes with its group",
          "[phases][process][reduced][driver]") {
  run_ranks(2, [&](Rank& rank) {
    const Scenario scenario{.layout = Layout::ll_rank_major, .ranks = 2, .experts = 4};
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    in_phases(exchange);
    exchange.update(at.handle, at.stream);
    if (rank.rank == 0) {
      exchange.dispatch(at.handle, at.stream);
      at.stream.synchronize();  // needs no peer
      complete(at.handle, at.stream);
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        ucclEpCommAbort(at.comm);
      });
      const ucclEpResult_t result = ucclEpStreamSynchronize(at.comm, at.stream);
      other.join();
      answered(result, ucclEpAborted, at.comm, "ucclEpStreamSynchronize");
    } else {
      rank.board.wait(0, 1);
    }
    rank.board.add(0);
    rank.board.wait(0, 1);
  });
}

TEST_CASE("phases: a handle that is destroyed with one keeps its slot", "[phases][process][reduced]") {
  for (const Scenario& layout : in_all_layouts({.ranks = 2, .experts = 4})) {
    run_ranks(2, [&](Rank& rank) {
      Crew crew(rank, layout, 2);
      crew.dispatch(0);
      ok(ucclEpHandleDestroy(crew.handles[0].release()), "ucclEpHandleDestroy");
      crew.dispatch(1);
      crew.complete(1);
      crew.combine(1);
      crew.complete(1);
      crew.check(1);
      refused(crew.exchange(1).try_dispatch(crew.handle(1), crew.stream), ucclEpInvalidUsage, "ucclEpDispatch",
              {"pending"});
    });
  }
}

}  // namespace
}  // namespace ucclep::test

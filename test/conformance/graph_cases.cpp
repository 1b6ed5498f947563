// SPDX-License-Identifier: Apache-2.0
// Operations captured from a stream into a graph, of the GPU's driver or of the host device: what may be captured, and
// replays that find new routing and new data in the same tensors.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "conformance/exchange.hpp"
#include "conformance/zero_copy.hpp"
#include "support/graph.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

Scenario scenario_of(Layout layout) {
  Scenario scenario{.layout = layout, .max_tokens = 16, .tokens = {16, 3, 0, 11}, .hidden = 512};
  scenario.fixed_capacity = scenario.ll() ? 0 : 160;  // all tokens to one rank, in zones of 16
  if (layout == Layout::ht_expert_major) scenario.alignment = 16;
  scenario.carried = scenario.ll();
  scenario.biases = 1;
  scenario.rule = uniform(20);
  return scenario;
}

// How far the ranks are, counted on the board.
class Milestones {
 public:
  explicit Milestones(const Rank& rank) : rank_(rank) {}
  // Every rank but `left_out` reaches it; all wait for them.
  void meet(int word, int left_out = -1) {
    if (rank_.rank != left_out) rank_.board.add(word);
    rank_.board.wait(word, reached_[word] += static_cast<uint32_t>(rank_.count - (left_out >= 0 ? 1 : 0)));
  }

 private:
  const Rank& rank_;
  uint32_t reached_[Board::words] = {};
};

void await_total_of_minus_one(const Exchange& exchange) {
  wait_until("-1 in recv_total_host", [&] { return exchange.total_on_host() == -1; });
}

int64_t waited_total(ucclEpHandle_t handle) {
  int64_t total = -1;
  ok(ucclEpHandleWaitCounts(handle, &total, nullptr), "ucclEpHandleWaitCounts");
  return total;
}

void is_expected_total(const Exchange& exchange, const Rank& rank, int64_t total) {
  const Scenario& scenario = exchange.scenario();
  const auto expected = reference::counters(exchange.contents().world(), scenario.shape(), rank.rank).recv_total;
  require(total == expected, "ucclEpHandleWaitCounts says " + std::to_string(total) +
                                 " rows after a replay, expected " + std::to_string(expected));
}

void in_phases(Exchange& exchange) {
  exchange.dispatch_config.send_only = exchange.combine_config.send_only = 1;
}

// Of phases both; of a whole operation Complete does nothing.
void enqueue_all(Exchange& exchange, Session& at) {
  if (!exchange.scenario().carried) exchange.update(at.handle, at.stream);
  exchange.dispatch(at.handle, at.stream);
  if (exchange.scenario().waves > 1) {
    exchange.combine(at.handle, at.stream);
    for (int wave = 0; wave < exchange.scenario().waves; ++wave) {
      ok(ucclEpCompleteWave(at.handle, wave, at.stream), "ucclEpCompleteWave");
      ok(ucclEpWaveDone(at.handle, wave, at.stream), "ucclEpWaveDone");
    }
    return ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
  }
  ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
  exchange.combine(at.handle, at.stream);
  ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
}

// In turn, one rank launches its replay when all others have seen that theirs waits for it.
void replay(const Rank& rank, Session& at, Exchange& exchange, const Graph& graph, Milestones& milestones, int late) {
  constexpr int ready = 1, waiting = 2;
  milestones.meet(ready);
  if (rank.rank == late) milestones.meet(waiting, late);
  graph.launch(at.stream);
  if (rank.rank != late) {
    await_total_of_minus_one(exchange);
    milestones.meet(waiting, late);
    if (!exchange.scenario().ll()) is_expected_total(exchange, rank, waited_total(at.handle));
  }
  at.stream.synchronize();
  if (!exchange.scenario().ll()) is_expected_total(exchange, rank, waited_total(at.handle));
}

// round: tokens of one; 0: all are in one.
void capture_and_replay(Layout layout, int replays, bool warm, bool phases = false, int round = 0, int waves = 0) {
  Scenario scenario = scenario_of(layout);
  scenario.round = round;
  scenario.waves = waves;
  if (waves > 1) scenario.experts = 20;
  run_ranks(scenario.ranks, {.seconds = 200}, [&](Rank& rank) {
    constexpr int before_capture = 3, after_capture = 4;
    Session at(rank, scenario);
    const auto capturing = Capturing::of(at.comm);
    Milestones milestones(rank);
    Exchange exchange(rank, at.comm, scenario);
    if (phases) in_phases(exchange);
    if (warm) {
      enqueue_all(exchange, at);
      at.stream.synchronize();
      exchange.check_all();
      exchange.reroute(2);
    }
    milestones.meet(before_capture);
    const Graph graph(*capturing, at.stream, [&] { enqueue_all(exchange, at); });
    milestones.meet(after_capture);
    require(exchange.total_on_host() == -1, "recv_total_host is not -1 after the captured call");
    for (int i = 0; i < replays; ++i) {
      exchange.reroute(100 + static_cast<uint64_t>(i));
      try {
        replay(rank, at, exchange, graph, milestones, i % rank.count);
        exchange.check_all();
      } catch (const Failure& failure) {
        throw Failure("replay " + std::to_string(i) + ": " + failure.what());
      }
    }
    // Operations of the same handle outside of any graph go on where the replays were.
    exchange.reroute(1000);
    enqueue_all(exchange, at);
    if (!scenario.ll()) is_expected_total(exchange, rank, waited_total(at.handle));
    at.stream.synchronize();
    exchange.check_all();
    no_async_error(at.comm);
  });
}

int replays() {
  return static_cast<int>(std::min(iterations(reduced() ? 5 : 25), 100u));
}

TEST_CASE("graph: HT update, dispatch and combine, replayed, FLAT", "[driver][process][graph]") {
  capture_and_replay(Layout::ht_flat, replays(), true);
}
TEST_CASE("graph: HT update, dispatch and combine, replayed, EXPERT_MAJOR", "[driver][process][graph]") {
  capture_and_replay(Layout::ht_expert_major, replays(), true);
}
TEST_CASE("graph: HT in rounds, whole and in phases, replayed", "[driver][process][graph][nodes]") {
  for (const bool phases : {false, true}) {
    capture_and_replay(Layout::ht_flat, replays(), true, phases, 3);
    capture_and_replay(Layout::ht_expert_major, replays(), false, phases, 3);
  }
}
TEST_CASE("graph: LL dispatch that routes, and combine, replayed, EXPERT_MAJOR", "[driver][process][graph]") {
  capture_and_replay(Layout::ll_expert_major, replays(), true);
}
TEST_CASE("graph: LL dispatch that routes, and combine, replayed, RANK_MAJOR", "[driver][process][graph]") {
  capture_and_replay(Layout::ll_rank_major, replays(), true);
}
TEST_CASE("graph: a handle's first operations are captured", "[driver][process][graph]") {
  capture_and_replay(Layout::ht_flat, 3, false);
  capture_and_replay(Layout::ll_expert_major, 3, false);
}

TEST_CASE("graph: operations in phases, replayed", "[driver][process][graph]") {
  for (const Layout layout : all_layouts) capture_and_replay(layout, reduced() ? 3 : 8, true, true);
  capture_and_replay(Layout::ll_rank_major, 3, false, true);
}

TEST_CASE("graph: wave by wave, there and back, replayed", "[driver][process][graph]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_expert_major}) {
    capture_and_replay(layout, replays() / 2, false, true, 0, 3);
  }
}
TEST_CASE("graph: phases of two handles around each other", "[driver][process][graph]") {
  for (const Layout layout : all_layouts) {
    const Scenario scenario = scenario_of(layout);
    run_ranks(scenario.ranks, {.seconds = 100}, [&](Rank& rank) {
      Session at(rank, scenario);
      const Handle second = make_handle(at.group, handle_config(scenario));
      const auto capturing = Capturing::of(at.comm);
      Milestones milestones(rank);
      Exchange one(rank, at.comm, scenario), other(rank, at.comm, scenario, 2);
      in_phases(one);
      const auto complete = [&](ucclEpHandle_t handle) { ok(ucclEpComplete(handle, at.stream), "ucclEpComplete"); };
      milestones.meet(1);
      const Graph graph(*capturing, at.stream, [&] {
        if (!scenario.carried) one.update(at.handle, at.stream);
        if (!scenario.carried) other.update(second, at.stream);
        one.dispatch(at.handle, at.stream);
        other.dispatch(second, at.stream);
        complete(at.handle);
        one.combine(at.handle, at.stream);
        other.combine(second, at.stream);
        complete(at.handle);
      });
      for (uint64_t i = 0; i < 5; ++i) {
        one.reroute(i + 2);
        other.reroute(i + 50);
        milestones.meet(1);
        graph.launch(at.stream);
        at.stream.synchronize();
        one.check_all();
        other.check_all();
      }
      no_async_error(at.comm);
    });
  }
}

// A half of one handle is pending while a graph replays a whole operation of a second one, and a third one follows when
// it is complete: never more than two are in flight. `late` is slow to complete, so what the others send next finds its
// slot unread unless they know that.
void replay_beside_a_phase(Layout layout, bool in_windows) {
  Scenario scenario = scenario_of(layout);
  scenario.carried = false;
  constexpr int late = 1;
  run_ranks(scenario.ranks, {.seconds = 100}, [&](Rank& rank) {
    Session at(rank, scenario);
    const Handle second = make_handle(at.group, handle_config(scenario)),
                 third = make_handle(at.group, handle_config(scenario));
    const auto capturing = Capturing::of(at.comm);
    Milestones milestones(rank);
    Exchange pending(rank, at.comm, scenario), replayed(rank, at.comm, scenario, 2), after(rank, at.comm, scenario, 3);
    std::optional<Windows> windows;
    if (in_windows) windows.emplace(rank, at.comm, replayed, [](int, Which) { return Exposed::whole; });
    in_phases(pending);
    pending.update(at.handle, at.stream);
    replayed.update(second, at.stream);
    after.update(third, at.stream);
    at.stream.synchronize();
    const auto go = [&](void (Exchange::*operation)(ucclEpHandle_t, ucclEpStream_t)) {
      milestones.meet(1);
      const Graph graph(*capturing, at.stream, [&] { (replayed.*operation)(second, at.stream); });
      milestones.meet(1);
      (pending.*operation)(at.handle, at.stream);
      graph.launch(at.stream);
      if (rank.rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(500));
      ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
      (after.*operation)(third, at.stream);
      at.stream.synchronize();
    };
    go(&Exchange::dispatch);
    go(&Exchange::combine);
    for (Exchange* exchange : {&pending, &replayed, &after}) exchange->check_all();
    no_async_error(at.comm);
  });
}

TEST_CASE("graph: whole operations are replayed beside a pending phase", "[driver][process][graph][schedules]") {
  for (const Layout layout : all_layouts) replay_beside_a_phase(layout, false);
}
TEST_CASE("graph: whole operations that expose tensors are replayed beside a pending phase",
          "[driver][process][graph][schedules]") {
  for (const Layout layout : {Layout::ht_flat, Layout::ht_expert_major}) replay_beside_a_phase(layout, true);
}

// With enable_mask one is all that may be in flight, which a replay cannot know.
TEST_CASE("graph: with masks a whole operation is not replayed beside a pending phase",
          "[driver][process][graph][masks][schedules]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_flat}) {
    Scenario scenario = scenario_of(layout);
    scenario.carried = false;
    scenario.masked = true;
    run_ranks(scenario.ranks, {.seconds = 100}, [&](Rank& rank) {
      Session at(rank, scenario);
      const Handle second = make_handle(at.group, handle_config(scenario));
      const auto capturing = Capturing::of(at.comm);
      Milestones milestones(rank);
      Exchange pending(rank, at.comm, scenario), replayed(rank, at.comm, scenario, 2);
      in_phases(pending);
      pending.update(at.handle, at.stream);
      replayed.update(second, at.stream);
      milestones.meet(1);
      const Graph graph(*capturing, at.stream, [&] { replayed.dispatch(second, at.stream); });
      milestones.meet(1);
      pending.dispatch(at.handle, at.stream);
      graph.launch(at.stream);
      at.stream.synchronize();
      const ucclEpAsyncError_t error = async_error(at.comm);
      require(error.code == ucclEpInvalidUsage &&
                  std::string(error.text).find("send_only was pending") != std::string::npos,
              std::string("the record of the replay says: ") + error.text);
      ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
      ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
      graph.launch(at.stream);
      for (Exchange* exchange : {&pending, &replayed}) {
        exchange->combine_config.send_only = 0;
        exchange->combine(exchange == &pending ? at.handle : second, at.stream);
        at.stream.synchronize();
        exchange->check_all();
      }
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("graph: a capture contains both phases", "[driver][process][graph]") {
  const Scenario scenario = scenario_of(Layout::ll_expert_major);
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    const auto capturing = Capturing::of(at.comm);
    const Stream side(at.comm);
    Milestones milestones(rank);
    Exchange exchange(rank, at.comm, scenario);
    in_phases(exchange);
    const auto not_here = [&](ucclEpStream_t stream) {
      refused(ucclEpComplete(at.handle, stream), ucclEpInvalidUsage, "ucclEpComplete", {"dispatch", "capture"});
    };
    exchange.dispatch(at.handle, at.stream);
    milestones.meet(1);
    const Graph first(*capturing, at.stream, [&] { not_here(at.stream); });
    ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
    exchange.combine(at.handle, at.stream);
    ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
    at.stream.synchronize();
    exchange.check_all();
    exchange.reroute(2);
    milestones.meet(1);
    const Graph second(*capturing, at.stream, [&] {
      exchange.dispatch(at.handle, at.stream);
      not_here(side);
      ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
      exchange.combine(at.handle, at.stream);
      ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
    });
    milestones.meet(1);
    second.launch(at.stream);
    at.stream.synchronize();
    exchange.check_all();
  });
}

TEST_CASE("graph: two captured handles and two streams joined by events", "[driver][process][graph]") {
  const Scenario ht = scenario_of(Layout::ht_flat);
  Scenario ll = scenario_of(Layout::ll_expert_major);
  ll.carried = false;
  run_ranks(ht.ranks, {.seconds = 100}, [&](Rank& rank) {
    Session at(rank, ht);
    const Handle second = make_handle(at.group, handle_config(ll));
    const Stream side(at.comm);
    const Event fork(at.comm), join(at.comm);
    const auto capturing = Capturing::of(at.comm);
    Milestones milestones(rank);
    Exchange one(rank, at.comm, ht), other(rank, at.comm, ll);
    milestones.meet(1);
    const Graph graph(*capturing, at.stream, [&] {
      enqueue_all(one, at);
      ok(ucclEpEventRecord(at.comm, fork, at.stream), "ucclEpEventRecord");
      ok(ucclEpStreamWaitEvent(at.comm, side, fork), "ucclEpStreamWaitEvent");
      other.update(second, side);
      other.dispatch(second, side);
      other.combine(second, side);
      ok(ucclEpEventRecord(at.comm, join, side), "ucclEpEventRecord");
      ok(ucclEpStreamWaitEvent(at.comm, at.stream, join), "ucclEpStreamWaitEvent");
    });
    milestones.meet(1);
    refused(ucclEpEventSynchronize(at.comm, join), ucclEpInvalidUsage, "ucclEpEventSynchronize", {"capture"});
    float ms = 0;
    refused(ucclEpEventElapsed(at.comm, fork, join, &ms), ucclEpInvalidUsage, "ucclEpEventElapsed", {"a ", "capture"});
    for (uint64_t i = 0; i < 10; ++i) {
      one.reroute(i + 2);
      other.reroute(i + 50);
      milestones.meet(1);
      graph.launch(at.stream);
      at.stream.synchronize();
      one.check_all();
      other.check_all();
    }
    ok(ucclEpEventRecord(at.comm, join, side), "ucclEpEventRecord");
    ok(ucclEpEventSynchronize(at.comm, join), "ucclEpEventSynchronize");
    no_async_error(at.comm);
  });
}

// Calls that cannot be part of a graph, and calls that can or do not matter to it; the capture survives all of them.
struct InCapture {
  Rank& rank;
  Session& at;
  Exchange& exchange;
  ucclEpEvent_t event;
  Handle& spare;

  void calls_that_are_refused() {
    const auto not_now = [](ucclEpResult_t result, const char* call) {
      refused(result, ucclEpInvalidUsage, call, {"being captured"});
    };
    void* pointer = nullptr;
    ucclEpStream_t stream = nullptr;
    ucclEpEvent_t made = nullptr;
    ucclEpGroup_t group = nullptr;
    ucclEpHandle_t handle = nullptr;
    int64_t total = 0;
    const ucclEpGroupConfig_t group_settings = group_config({exchange.scenario()});
    const ucclEpHandleConfig_t handle_settings = handle_config(exchange.scenario());
    not_now(ucclEpGroupCreate(&group, at.comm, &group_settings), "ucclEpGroupCreate");
    not_now(ucclEpGroupDestroy(at.group), "ucclEpGroupDestroy");
    not_now(ucclEpCommDestroy(at.comm), "ucclEpCommDestroy");
    not_now(ucclEpHandleCreate(&handle, at.group, &handle_settings), "ucclEpHandleCreate");
    not_now(ucclEpMemAlloc(at.comm, &pointer, 4096), "ucclEpMemAlloc");
    not_now(ucclEpMemAllocHost(at.comm, &pointer, 4096), "ucclEpMemAllocHost");
    not_now(ucclEpStreamCreate(at.comm, &stream), "ucclEpStreamCreate");
    not_now(ucclEpEventCreate(at.comm, &made), "ucclEpEventCreate");
    not_now(ucclEpStreamSynchronize(at.comm, at.stream), "ucclEpStreamSynchronize");
    not_now(ucclEpEventSynchronize(at.comm, event), "ucclEpEventSynchronize");
    not_now(ucclEpHandleWaitCounts(at.handle, &total, nullptr), "ucclEpHandleWaitCounts");
    require(!pointer && !stream && !made && !group && !handle && total == 0, "a refused call has written its result");
  }

  void calls_that_are_not(Tensor& copy, Tensor& counts, void* memory) {
    ok(ucclEpHandleDestroy(spare.release()), "ucclEpHandleDestroy");
    ok(ucclEpMemFree(at.comm, memory), "ucclEpMemFree");
    ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
    const ucclEpGroupConfig_t settings = group_config({exchange.scenario()});
    ok(ucclEpGroupQuery(at.comm, &settings, &limits), "ucclEpGroupQuery");
    int count = 0;
    ok(ucclEpCommCount(at.comm, &count), "ucclEpCommCount");
    ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
    ok(ucclEpCommGetInfo(at.comm, &info), "ucclEpCommGetInfo");
    no_async_error(at.comm);
    ok(ucclEpComplete(at.handle, at.stream), "ucclEpComplete");
    ucclEpRoutingCounts_t wanted = UCCLEP_ROUTING_COUNTS_INIT;
    wanted.tokens_per_rank = counts.get();
    ok(ucclEpGetRoutingCounts(at.group, exchange.topk_idx().get(), &wanted, at.stream), "ucclEpGetRoutingCounts");
    ok(ucclEpMemcpy(at.comm, copy.get()->data, counts.get()->data, 4 * static_cast<size_t>(rank.count), at.stream),
       "ucclEpMemcpy");
    ok(ucclEpEventRecord(at.comm, event, at.stream), "ucclEpEventRecord");
    ok(ucclEpStreamWaitEvent(at.comm, at.stream, event), "ucclEpStreamWaitEvent");
  }
};

// The map is part of one graph, which reads its tensors at each replay, and the routing of the other.
TEST_CASE("graph: an expert map, captured before its routing and set between replays",
          "[driver][process][graph][nodes]") {
  for (const Layout layout : {Layout::ht_flat, Layout::ll_expert_major}) {
    Scenario scenario = scenario_of(layout);
    const Scenario physical = scenario;
    scenario.maps = some_maps(scenario, 5);
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, physical);
      ucclEpGroupConfig_t config = group_config({scenario});
      const Group group = make_group(at.comm, config);
      const Handle handle = make_handle(group, handle_config(scenario));
      const auto capturing = Capturing::of(at.comm);
      Milestones milestones(rank);
      const auto enqueue = [&](Exchange& exchange) {
        if (!exchange.scenario().carried) exchange.update(handle, at.stream);
        exchange.dispatch(handle, at.stream);
        exchange.combine(handle, at.stream);
      };
      MapTensors map(at.comm, reference::ExpertMap(5, std::vector<int64_t>(4)));  // room for any
      Exchange none(rank, at.comm, physical), later(rank, at.comm, scenario);
      const Graph alone(*capturing, at.stream, [&] { enqueue(none); });
      const Graph with_map(*capturing, at.stream, [&] {
        map.set(group, at.stream);
        enqueue(later);
      });
      const auto replay = [&](const Graph& graph, Exchange& exchange) {
        milestones.meet(1);
        graph.launch(at.stream);
        at.stream.synchronize();
        exchange.check_all();
      };
      replay(alone, none);
      std::vector<reference::ExpertMap> maps;
      for (uint64_t seed = 2; seed < 5; ++seed) {
        maps = some_maps(scenario, 5, seed);
        map.fill(maps[static_cast<size_t>(rank.rank)]);
        later.remap(maps, seed);
        replay(with_map, later);
      }
      none.remap(maps, 5);
      replay(alone, none);
      ok(ucclEpGroupSetExpertMap(group, nullptr, nullptr, at.stream), "ucclEpGroupSetExpertMap");
      none.remap({}, 6);
      replay(alone, none);
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("graph: what a capture refuses, and what it does not", "[driver][process][graph]") {
  const Scenario scenario = scenario_of(Layout::ht_flat);
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    const auto capturing = Capturing::of(at.comm);
    Milestones milestones(rank);
    Exchange exchange(rank, at.comm, scenario);
    const Event event(at.comm);
    ok(ucclEpEventRecord(at.comm, event, at.stream), "ucclEpEventRecord");
    at.stream.synchronize();
    Handle spare = make_handle(at.group, handle_config(scenario));
    void* memory = nullptr;
    ok(ucclEpMemAlloc(at.comm, &memory, 4096), "ucclEpMemAlloc");
    Tensor counts(at.comm, "tokens_per_rank", ucclEpInt32, {rank.count});
    Tensor copy(at.comm, "its copy", ucclEpInt32, {rank.count});
    milestones.meet(1);
    const Graph graph(*capturing, at.stream, [&] {
      InCapture calls{rank, at, exchange, event, spare};
      enqueue_all(exchange, at);
      calls.calls_that_are_refused();
      calls.calls_that_are_not(copy, counts, memory);
    });
    milestones.meet(1);
    for (uint64_t i = 0; i < 3; ++i) {
      exchange.reroute(i + 2);
      counts.poison();
      copy.poison();
      milestones.meet(1);
      graph.launch(at.stream);
      at.stream.synchronize();
      exchange.check_all();
      const auto expected = reference::routing_counts(exchange.contents().world(), rank.rank).tokens_per_rank;
      counts.set_integers(expected);
      copy.set_integers(expected);
      counts.verify(rank.rank);
      copy.verify(rank.rank);
    }
  });
}

}  // namespace
}  // namespace ucclep::test

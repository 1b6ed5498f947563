// SPDX-License-Identifier: Apache-2.0
// Graphs of the host device: arguments and order of the calls, and what may go while a graph lives or runs.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "conformance/exchange.hpp"
#include "support/graph.hpp"

namespace ucclep::test {
namespace {

Scenario small(Layout layout) {
  Scenario scenario{.layout = layout, .max_tokens = 6, .hidden = 32};
  scenario.fixed_capacity = scenario.ll() ? 0 : 48;
  scenario.carried = scenario.ll();
  return scenario;
}

void enqueue_all(Exchange& exchange, ucclEpHandle_t handle, ucclEpStream_t stream) {
  if (!exchange.scenario().carried) exchange.update(handle, stream);
  exchange.dispatch(handle, stream);
  exchange.combine(handle, stream);
}

void begin(ucclEpComm_t comm, ucclEpStream_t stream) {
  ok(ucclEpStreamBeginCapture(comm, stream), "ucclEpStreamBeginCapture");
}

ucclEpGraph_t end(ucclEpComm_t comm, ucclEpStream_t stream) {
  ucclEpGraph_t graph = nullptr;
  ok(ucclEpStreamEndCapture(comm, stream, &graph), "ucclEpStreamEndCapture");
  return graph;
}

void launch(ucclEpComm_t comm, ucclEpGraph_t graph, ucclEpStream_t stream) {
  ok(ucclEpGraphLaunch(comm, graph, stream), "ucclEpGraphLaunch");
}

// All ranks are here; only then may one rewrite what others' operations read.
void meet(const Rank& rank, int word) {
  rank.board.add(word);
  rank.board.wait(word, static_cast<uint32_t>(rank.count));
}

TEST_CASE("host graph: two graphs are launched in a row on another stream, and destroyed at once",
          "[host][process][graph]") {
  for (const Layout layout : {Layout::ht_flat, Layout::ll_expert_major}) {
    const Scenario scenario = small(layout);
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Session at(rank, scenario);
      const Handle second = make_handle(at.group, handle_config(scenario));
      Stream other(at.comm);
      Exchange one(rank, at.comm, scenario, 1), two(rank, at.comm, scenario, 2), three(rank, at.comm, scenario, 3);
      begin(at.comm, at.stream);
      enqueue_all(one, at.handle, at.stream);
      enqueue_all(two, second, at.stream);
      const ucclEpGraph_t first = end(at.comm, at.stream);
      begin(at.comm, at.stream);
      enqueue_all(three, at.handle, at.stream);
      const ucclEpGraph_t last = end(at.comm, at.stream);
      for (Exchange* exchange : {&one, &two, &three}) exchange->check_untouched();
      for (const ucclEpGraph_t graph : {first, last}) launch(at.comm, graph, other);
      for (const ucclEpGraph_t graph : {first, last}) ok(ucclEpGraphDestroy(at.comm, graph), "ucclEpGraphDestroy");
      if (!scenario.ll()) {
        int64_t total = -1;
        ok(ucclEpHandleWaitCounts(second, &total, nullptr), "ucclEpHandleWaitCounts");
        const auto expected = reference::counters(two.contents().world(), scenario.shape(), rank.rank).recv_total;
        require(total == expected, "HandleWaitCounts after a replay says " + std::to_string(total));
      }
      other.synchronize();
      for (Exchange* exchange : {&one, &two, &three}) exchange->check_all();
      meet(rank, 1 + static_cast<int>(layout));
      round_trip(rank, at.comm, at.handle, at.stream, scenario, 4);
      no_async_error(at.comm);
    });
  }
}

TEST_CASE("host graph: group and communicator go while a replay is in flight, the graph alive",
          "[host][process][graph]") {
  const Scenario scenario = small(Layout::ht_flat);
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    begin(at.comm, at.stream);
    enqueue_all(exchange, at.handle, at.stream);
    const ucclEpGraph_t graph = end(at.comm, at.stream);
    launch(at.comm, graph, at.stream);
    at.handle.release();
    ok(ucclEpGroupDestroy(at.group.release()), "ucclEpGroupDestroy");  // waits for the replay
    exchange.check_all();
    refused(ucclEpGraphLaunch(at.comm, graph, at.stream), ucclEpInvalidUsage, "ucclEpGraphLaunch",
            {"a group that was destroyed"});
    Group group = make_group(at.comm, group_config({scenario}));
    const Handle handle = make_handle(group, handle_config(scenario));
    exchange.reroute(2);
    meet(rank, 1);
    begin(at.comm, at.stream);
    enqueue_all(exchange, handle, at.stream);
    launch(at.comm, end(at.comm, at.stream), at.stream);
    at.stream.synchronize();
    exchange.check_all();
    no_async_error(at.comm);
  });  // CommDestroy takes both graphs with it
}

// What a group takes by its alloc_fn.
struct Taken {
  std::map<void*, size_t> parts;
  size_t bytes = 0;

  static int alloc(void** ptr, size_t size, void* ctx) {
    auto& self = *static_cast<Taken*>(ctx);
    *ptr = std::calloc(1, size);
    self.parts[*ptr] = size;
    self.bytes += size;
    return 0;
  }
  static int free(void* ptr, void* ctx) {
    auto& self = *static_cast<Taken*>(ctx);
    self.bytes -= self.parts.at(ptr);
    self.parts.erase(ptr);
    std::free(ptr);
    return 0;
  }
};

TEST_CASE("host graph: a handle's memory goes when both itself and all of its graphs are gone",
          "[host][process][graph]") {
  for (const Layout layout : {Layout::ht_flat, Layout::ll_expert_major}) {
    const Scenario scenario = small(layout);
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Comm comm(rank);
      Stream stream(comm);
      Taken taken;
      ucclEpGroupConfig_t config = group_config({scenario});
      config.alloc_fn = Taken::alloc, config.free_fn = Taken::free, config.alloc_ctx = &taken;
      Group group = make_group(comm, config);
      const size_t before = taken.bytes;
      for (const bool graph_first : {true, false}) {
        Exchange exchange(rank, comm, scenario);
        Handle handle = make_handle(group, handle_config(scenario));
        begin(comm, stream);
        enqueue_all(exchange, handle, stream);
        ucclEpGraph_t graph = end(comm, stream);
        begin(comm, stream);
        launch(comm, graph, stream);
        const ucclEpGraph_t outer = end(comm, stream);  // has the operations of the other one
        launch(comm, outer, stream);
        stream.synchronize();
        exchange.check_combine();
        ok(ucclEpGraphDestroy(comm, graph), "ucclEpGraphDestroy");
        if (graph_first) ok(ucclEpGraphDestroy(comm, outer), "ucclEpGraphDestroy");
        require(taken.bytes > before, "the memory of a handle that lives was freed");
        handle.reset();
        if (!graph_first) {
          require(taken.bytes > before, "the memory of a graph that lives was freed");
          meet(rank, 1 + static_cast<int>(layout));
          launch(comm, outer, stream);
          stream.synchronize();
          exchange.check_combine();
          ok(ucclEpGraphDestroy(comm, outer), "ucclEpGraphDestroy");
        }
        require(taken.bytes == before, std::to_string(taken.bytes - before) + " bytes stay");
      }
      no_async_error(comm);
    });
  }
}

// Of one handle: the host's last Update is the eager one, the memory has what was replayed.
void combine_after_replay(const Rank& rank, const Scenario& few, const Scenario& many) {
  Session at(rank, many);
  Exchange replayed(rank, at.comm, many), known(rank, at.comm, few);
  const auto dispatch = [&](Exchange& exchange) {
    if (!many.carried) exchange.update(at.handle, at.stream);
    exchange.dispatch(at.handle, at.stream);
  };
  begin(at.comm, at.stream);
  dispatch(replayed);
  const ucclEpGraph_t graph = end(at.comm, at.stream);
  dispatch(known);
  launch(at.comm, graph, at.stream);
  Tensor& result = known.combined();
  replayed.combine_out.tokens = result.get();
  replayed.combine(at.handle, at.stream);
  at.stream.synchronize();
  replayed.check_dispatch();
  const std::vector<float> expected = replayed.contents().combined(rank.rank);
  const int64_t tokens = few.tokens_of(rank.rank), hidden = many.combined_hidden();
  for (int64_t i = 0; i < tokens * hidden; ++i) {
    reference::store(many.combine_dtype, result.element(i / hidden, i % hidden), expected[static_cast<size_t>(i)]);
  }
  result.verify(rank.rank);
  const ucclEpAsyncError_t error = async_error(at.comm);
  require(error.code == ucclEpInvalidArgument && std::string(error.phase) == "tokens", error.text);
  ok(ucclEpCommClearAsyncError(at.comm), "ucclEpCommClearAsyncError");
  meet(rank, 1);
  round_trip(rank, at.comm, at.handle, at.stream, many, 4);
  no_async_error(at.comm);
}

TEST_CASE("host graph: a replay leaves other tokens than the host knows of", "[host][process][graph]") {
  for (const Layout layout : all_layouts) {
    const Scenario many = small(layout);
    Scenario few = many;
    few.tokens = {0, 2, 5, 3};
    run_ranks(many.ranks, [&](Rank& rank) { combine_after_replay(rank, few, many); });
  }
}

TEST_CASE("host graph: bad arguments and calls out of order", "[host][graph]") {
  Scenario scenario = small(Layout::ll_expert_major);
  scenario.ranks = 1;
  scenario.tokens = {6};
  run_ranks(1, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    ucclEpGraph_t graph = nullptr;
    const auto no_begin = [&](ucclEpStream_t stream, ucclEpResult_t code, const char* word) {
      refused(ucclEpStreamBeginCapture(at.comm, stream), code, "ucclEpStreamBeginCapture", {word});
    };
    const auto no_end = [&](ucclEpStream_t stream, ucclEpResult_t code, const char* word) {
      refused(ucclEpStreamEndCapture(at.comm, stream, &graph), code, "ucclEpStreamEndCapture", {word});
    };
    const auto foreign = reinterpret_cast<ucclEpStream_t>(&scenario);
    const auto foreign_graph = reinterpret_cast<ucclEpGraph_t>(&scenario);
    no_begin(nullptr, ucclEpInvalidArgument, "stream is NULL");
    no_begin(foreign, ucclEpInvalidArgument, "stream");
    no_end(at.stream, ucclEpInvalidUsage, "not being captured");
    begin(at.comm, at.stream);
    no_begin(at.stream, ucclEpInvalidUsage, "already");
    refused(ucclEpStreamEndCapture(at.comm, at.stream, nullptr), ucclEpInvalidArgument, "ucclEpStreamEndCapture",
            {"graph is NULL"});
    refused(ucclEpStreamDestroy(at.comm, at.stream), ucclEpInvalidUsage, "ucclEpStreamDestroy", {"being captured"});
    enqueue_all(exchange, at.handle, at.stream);
    require(graph == nullptr, "a refused call has written its result");
    graph = end(at.comm, at.stream);
    refused(ucclEpGraphLaunch(at.comm, nullptr, at.stream), ucclEpInvalidArgument, "ucclEpGraphLaunch",
            {"graph is NULL"});
    refused(ucclEpGraphLaunch(at.comm, foreign_graph, at.stream), ucclEpInvalidArgument, "ucclEpGraphLaunch",
            {"graph", "was not made"});
    refused(ucclEpGraphLaunch(at.comm, graph, foreign), ucclEpInvalidArgument, "ucclEpGraphLaunch", {"stream"});
    refused(ucclEpGraphDestroy(at.comm, foreign_graph), ucclEpInvalidArgument, "ucclEpGraphDestroy", {"was not made"});
    ok(ucclEpGraphDestroy(at.comm, nullptr), "ucclEpGraphDestroy of NULL");
    launch(at.comm, graph, nullptr);
    ok(ucclEpStreamSynchronize(at.comm, nullptr), "ucclEpStreamSynchronize");
    exchange.check_all();
    ok(ucclEpGraphDestroy(at.comm, graph), "ucclEpGraphDestroy");
    refused(ucclEpGraphDestroy(at.comm, graph), ucclEpInvalidArgument, "ucclEpGraphDestroy", {"was not made"});
  });
}

TEST_CASE("host graph: after an abort nothing is launched, and a capture can be ended", "[host][graph]") {
  Scenario scenario = small(Layout::ht_flat);
  scenario.ranks = 1;
  scenario.tokens = {6};
  run_ranks(1, [&](Rank& rank) {
    Session at(rank, scenario);
    Exchange exchange(rank, at.comm, scenario);
    begin(at.comm, at.stream);
    exchange.update(at.handle, at.stream);
    const ucclEpGraph_t graph = end(at.comm, at.stream);
    begin(at.comm, at.stream);
    ok(ucclEpCommAbort(at.comm), "ucclEpCommAbort");
    ucclEpGraph_t none = nullptr;
    require(exchange.try_update(at.handle, at.stream) == ucclEpAborted, "an update was captured after the abort");
    require(ucclEpStreamEndCapture(at.comm, at.stream, &none) == ucclEpAborted && none == nullptr, "EndCapture");
    require(ucclEpGraphLaunch(at.comm, graph, at.stream) == ucclEpAborted, "GraphLaunch after the abort");
    ok(ucclEpGraphDestroy(at.comm, graph), "ucclEpGraphDestroy");
  });
}

}  // namespace
}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// Handles on memory of the caller's: what one has filled, another one goes on with.
#include <catch2/catch.hpp>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

size_t memory_size(ucclEpGroup_t group, const Scenario& scenario) {
  const ucclEpHandleConfig_t config = handle_config(scenario);
  size_t bytes = 0;
  ok(ucclEpHandleMemSize(group, &config, &bytes), "ucclEpHandleMemSize");
  return bytes;
}

Tensor memory_for(ucclEpComm_t comm, ucclEpGroup_t group, const Scenario& scenario) {
  return Tensor(comm, "handle_mem", ucclEpUint8, {static_cast<int64_t>(memory_size(group, scenario))});
}

Handle handle_on(ucclEpGroup_t group, const Scenario& scenario, const Tensor& memory) {
  ucclEpHandleConfig_t config = handle_config(scenario);
  config.handle_mem = memory.get();
  return make_handle(group, config);
}

const Scenario kept{.top_k = 3, .max_tokens = 9, .rule = uniform(10), .seed = 91};

TEST_CASE("handle_mem: the backward pass has a handle of its own on the saved memory",
          "[process][reduced][driver][checked][nodes][modes]") {
  for (const Scenario& scenario : trained(kept)) {
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Comm comm(rank);
      Stream stream(comm);
      Group group = make_group(comm, group_config({scenario}));
      const Tensor memory = memory_for(comm, group, scenario), other = memory_for(comm, group, scenario);
      for (uint64_t step = 0; step < (reduced() ? 2u : 3u); ++step) {  // the memory is filled anew in each
        const uint64_t seed = scenario.seed + step;
        {
          Handle forward = handle_on(group, scenario, memory), elsewhere = handle_on(group, scenario, other);
          round_trip(rank, comm, forward, stream, scenario, seed);
          round_trip(rank, comm, elsewhere, stream, scenario, seed + 100);
        }
        Handle backward = handle_on(group, scenario, memory);
        Exchange gradients(rank, comm, backward_of(scenario), seed);
        gradients.refresh(seed + 1000);
        gradients.dispatch(backward, stream);
        stream.synchronize();
        gradients.check_dispatch();
        Handle later = handle_on(group, scenario, memory);  // while another one is there
        gradients.combine(later, stream);
        stream.synchronize();
        gradients.check_combine();
      }
      no_async_error(comm);
    });
  }
}

// Groups number their operations alike, and memory goes from one to the other as it is.
TEST_CASE("handle_mem: memory that a handle of another group has filled", "[process][reduced][modes]") {
  for (Scenario scenario : in_all_layouts({.top_k = 3, .max_tokens = 70, .rule = uniform(10), .seed = 17})) {
    run_ranks(scenario.ranks, [&](Rank& rank) {
      Comm comm(rank);
      Stream stream(comm);
      Group groups[] = {make_group(comm, group_config({scenario})), make_group(comm, group_config({scenario}))};
      const Tensor memory = memory_for(comm, groups[0], scenario);
      for (uint64_t step = 0; step < 4; ++step) {
        Handle handle = handle_on(groups[step % 2], scenario, memory);
        round_trip(rank, comm, handle, stream, scenario, scenario.seed + step);
      }
      no_async_error(comm);
    });
  }
}

TEST_CASE("handle_mem: counts of HT can be waited for again", "[process]") {
  Scenario scenario = kept;
  scenario.layout = Layout::ht_flat;
  run_ranks(scenario.ranks, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    Group group = make_group(comm, group_config({scenario}));
    const Tensor memory = memory_for(comm, group, scenario);
    for (uint64_t step = 0; step < 3; ++step) {
      Exchange exchange(rank, comm, scenario, scenario.seed + step);
      int64_t rows = -1, again = -1;
      {
        Handle forward = handle_on(group, scenario, memory);
        exchange.update(forward, stream);
        ok(ucclEpHandleWaitCounts(forward, &rows, nullptr), "ucclEpHandleWaitCounts");
      }
      Handle handle = handle_on(group, scenario, memory);
      ok(ucclEpHandleWaitCounts(handle, &again, nullptr), "ucclEpHandleWaitCounts");
      stream.synchronize();
      exchange.check_counters();
      require(rows == exchange.total_on_host() && again == rows, "counts differ");
    }
  });
}

TEST_CASE("handle_mem: what others filled is nothing to go on with") {
  for (const Scenario& scenario : trained({.ranks = 1, .experts = 4})) {
    run_ranks(1, [&](Rank& rank) {
      Comm comm(rank);
      Stream stream(comm);
      Group group = make_group(comm, group_config({scenario})), other = make_group(comm, group_config({scenario}));
      const Tensor memory = memory_for(comm, group, scenario);
      Handle filled = handle_on(group, scenario, memory);
      round_trip(rank, comm, filled, stream, scenario);
      Exchange exchange(rank, comm, backward_of(scenario));
      const auto empty = [&](ucclEpGroup_t of, const Scenario& as) {
        Handle handle = handle_on(of, as, memory);
        refused(exchange.try_dispatch(handle, stream), ucclEpInvalidUsage, "ucclEpDispatch", {"has no routing"});
      };
      empty(other, scenario);
      Scenario global = scenario;
      global.global_ids = true;
      empty(group, global);
      empty(group, scenario);  // the one before has taken it over
    });
  }
}

// By the caller, or by a handle of another group.
void go_on_with_lost_memory(const Scenario& scenario, bool other_group) {
  run_ranks(1, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm);
    Group group = make_group(comm, group_config({scenario})), other = make_group(comm, group_config({scenario}));
    Tensor memory = memory_for(comm, group, scenario);
    Handle forward = handle_on(group, scenario, memory);
    round_trip(rank, comm, forward, stream, scenario);
    if (other_group) {
      round_trip(rank, comm, handle_on(other, scenario, memory), stream, scenario);
    } else {
      memory.poison();
    }
    Handle backward = handle_on(group, scenario, memory);
    Exchange gradients(rank, comm, backward_of(scenario));
    if (scenario.ll()) {
      gradients.combine(backward, stream);
    } else {
      gradients.dispatch(backward, stream);
    }
    stream.synchronize();
    gradients.check_untouched();
    ucclEpAsyncError_t error = UCCLEP_ASYNC_ERROR_INIT;
    ok(ucclEpCommGetAsyncError(comm, &error), "ucclEpCommGetAsyncError");
    require(error.code == ucclEpInvalidArgument && std::string(error.text).find("handle_mem") != std::string::npos,
            error.text);
    ok(ucclEpCommClearAsyncError(comm), "ucclEpCommClearAsyncError");
    round_trip(rank, comm, backward, stream, scenario);  // an Update makes it good
  });
}

TEST_CASE("handle_mem: memory that was written to meanwhile is told, and no row goes by it", "[reduced]") {
  for (const Scenario& scenario : trained({.ranks = 1, .experts = 4})) {
    for (const bool other_group : {false, true}) go_on_with_lost_memory(scenario, other_group);
  }
}

TEST_CASE("handle_mem: what it has to be") {
  run_ranks(1, [&](Rank& rank) {
    Comm comm(rank);
    Group group = make_group(comm, group_config({kept}));
    ucclEpHandleConfig_t config = handle_config(kept);
    size_t bytes = 0;
    refused(ucclEpHandleMemSize(nullptr, &config, &bytes), ucclEpInvalidArgument, "ucclEpHandleMemSize", {"group"});
    refused(ucclEpHandleMemSize(group, &config, nullptr), ucclEpInvalidArgument, "ucclEpHandleMemSize", {"bytes"});
    config.layout = 0;
    refused(ucclEpHandleMemSize(group, &config, &bytes), ucclEpInvalidArgument, "ucclEpHandleMemSize", {"layout"});
    config = handle_config(kept);
    const auto size = static_cast<int64_t>(memory_size(group, kept));
    const Tensor few(comm, "few", ucclEpUint8, {size - 1}), words(comm, "words", ucclEpInt32, {size}),
        enough(comm, "enough", ucclEpUint8, {size});
    ucclEpHandle_t handle = nullptr;
    config.handle_mem = few.get();
    refused(ucclEpHandleCreate(&handle, group, &config), ucclEpInvalidArgument, "ucclEpHandleCreate",
            {"config.handle_mem", "ucclEpHandleMemSize"});
    config.handle_mem = words.get();
    refused(ucclEpHandleCreate(&handle, group, &config), ucclEpInvalidArgument, "ucclEpHandleCreate",
            {"config.handle_mem", "dtype"});
  });
}

}  // namespace
}  // namespace ucclep::test

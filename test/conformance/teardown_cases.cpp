// SPDX-License-Identifier: Apache-2.0
// The end of objects: in every order, while work is in flight, and of what could not be made.
#include <malloc.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

Scenario brief(Layout layout) {
  return {.layout = layout, .max_tokens = 6, .hidden = 32};
}

// Is told when the group frees memory, which no kernel may use any more then.
struct FreedMemory {
  ucclEpComm_t comm = nullptr;
  int parts = 0;
  bool too_early = false;
  char* last = nullptr;
  size_t last_bytes = 0;

  static int alloc(void** ptr, size_t bytes, void* ctx) {
    *ptr = std::calloc(1, bytes);
    auto& self = *static_cast<FreedMemory*>(ctx);
    self.last = static_cast<char*>(*ptr), self.last_bytes = bytes;
    return *ptr == nullptr ? 1 : 0;
  }
  static int free(void* ptr, void* ctx) {
    auto& self = *static_cast<FreedMemory*>(ctx);
    ++self.parts;
    self.too_early = self.too_early || async_error(self.comm).code != ucclEpTimeout;
    std::free(ptr);
    return 0;
  }
};

// Routing counts are no operation, so no event orders them: they end long before the Update, which waits for a rank
// that does not come, and whose record says that it has ended.
TEST_CASE("a group that is destroyed waits for its work on every stream", "[host][process]") {
  Scenario scenario = brief(Layout::ht_flat);
  scenario.ranks = 2;
  run_ranks(2, [&](Rank& rank) {
    Comm comm(rank);
    Stream stream(comm), other(comm);
    FreedMemory freed{comm};
    ucclEpGroupConfig_t config = group_config({scenario});
    config.timeout_ms = 1500;
    config.alloc_fn = FreedMemory::alloc, config.free_fn = FreedMemory::free, config.alloc_ctx = &freed;
    Group group = make_group(comm, config);
    if (rank.rank == 0) {
      Handle handle = make_handle(group, handle_config(scenario));
      Exchange exchange(rank, comm, scenario);
      exchange.update(handle, stream);
      Tensor counts(comm, "tokens_per_expert", ucclEpInt32, {scenario.experts});
      ucclEpRoutingCounts_t out = UCCLEP_ROUTING_COUNTS_INIT;
      out.tokens_per_expert = counts.get();
      ok(ucclEpGetRoutingCounts(group, exchange.topk_idx().get(), &out, other), "ucclEpGetRoutingCounts");
      other.synchronize();
      handle.reset();
      group.reset();
      require(freed.parts > 0 && !freed.too_early, "memory was freed while the Update used it");
    }
  });
}

// The default stream waits in an Update, longer than the other group's limit, and with it the copy of zeros to a new
// handle. What is freed meanwhile is not zero any more.
TEST_CASE("a copy to a handle that could not be made uses no freed memory", "[host][process]") {
  Scenario scenario = brief(Layout::ht_flat);
  scenario.ranks = 2;
  mallopt(M_PERTURB, 0x55);
  run_ranks(2, [&](Rank& rank) {
    FreedMemory freed;
    {
      Comm comm(rank);
      freed.comm = comm;
      ucclEpGroupConfig_t config = group_config({scenario});
      config.timeout_ms = 1500;
      Group waits = make_group(comm, config);
      config.timeout_ms = 200;
      config.alloc_fn = FreedMemory::alloc, config.free_fn = FreedMemory::free, config.alloc_ctx = &freed;
      Group group = make_group(comm, config);
      if (rank.rank != 0) return;
      Handle handle = make_handle(waits, handle_config(scenario));
      Exchange exchange(rank, comm, scenario);
      ok(ucclEpHandleUpdate(handle, exchange.topk_idx().get(), nullptr, nullptr), "ucclEpHandleUpdate");
      const ucclEpHandleConfig_t asked = handle_config(scenario);
      ucclEpHandle_t refused = nullptr;
      const ucclEpResult_t result = ucclEpHandleCreate(&refused, group, &asked);
      require(result == ucclEpTimeout, ucclEpGetLastError(comm));
      require(freed.parts == 0, "memory was freed while a copy to it waited");
    }
    require(std::all_of(freed.last, freed.last + freed.last_bytes, [](char byte) { return byte == 0; }),
            "the copy read memory that was freed");
  });
  mallopt(M_PERTURB, 0);
}

TEST_CASE("destroyed in every order, and objects left to their owners", "[process]") {
  const Scenario scenario = brief(Layout::ht_flat);
  run_ranks(2, {.communicators = 3}, [&](Rank& rank) {
    Scenario two = scenario;
    two.ranks = 2;
    for (int id = 0; id < 3; ++id) {
      ucclEpCommConfig_t config = comm_config(rank);
      ucclEpComm_t comm = nullptr;
      ok(ucclEpCommInitRank(&comm, 2, rank.ids[id], rank.rank, &config), "ucclEpCommInitRank");
      const ucclEpGroupConfig_t shape = group_config({two});
      const ucclEpHandleConfig_t routing = handle_config(two);
      ucclEpGroup_t group = nullptr;
      ok(ucclEpGroupCreate(&group, comm, &shape), "ucclEpGroupCreate");
      ucclEpHandle_t handle = nullptr;
      ok(ucclEpHandleCreate(&handle, group, &routing), "ucclEpHandleCreate");
      void* memory = nullptr;
      ok(ucclEpMemAlloc(comm, &memory, 4096), "ucclEpMemAlloc");
      if (id == 0) ok(ucclEpHandleDestroy(handle), "ucclEpHandleDestroy");
      if (id <= 1) ok(ucclEpGroupDestroy(group), "ucclEpGroupDestroy");
      ok(ucclEpCommDestroy(comm), "ucclEpCommDestroy");
    }
    ok(ucclEpHandleDestroy(nullptr), "ucclEpHandleDestroy(NULL)");
    ok(ucclEpGroupDestroy(nullptr), "ucclEpGroupDestroy(NULL)");
    ok(ucclEpCommDestroy(nullptr), "ucclEpCommDestroy(NULL)");
  });
}

TEST_CASE("a handle is destroyed while its operations are in flight", "[process][reduced][driver]") {
  for (const Layout layout : {Layout::ll_expert_major, Layout::ht_expert_major}) {
    const Scenario scenario = brief(layout);
    run_ranks(4, [&](Rank& rank) {
      Session at(rank, scenario);
      for (uint64_t round = 0; round < 5; ++round) {
        Handle handle = make_handle(at.group, handle_config(scenario));
        Exchange exchange(rank, at.comm, scenario, round);
        exchange.update(handle, at.stream);
        exchange.dispatch(handle, at.stream);
        exchange.combine(handle, at.stream);
        handle.reset();
        at.stream.synchronize();
        exchange.check_dispatch();
        exchange.check_combine();
      }
    });
  }
}

}  // namespace
}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// Groups whose ranks are in several (virtual) nodes: what they own of the network, and how it comes and goes.
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "conformance/exchange.hpp"
#include "conformance/nodes.hpp"
#include "support/test_env.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep::test {
namespace {

using Clock = std::chrono::steady_clock;
// Ten times what is promised: the machine may be slow.
constexpr std::chrono::seconds prompt{10};

ucclEpGroupConfig_t some_group(int ranks) {
  return group_config({Scenario{.layout = Layout::ll_expert_major, .ranks = ranks, .experts = 2 * ranks}});
}

// Threads of this process that are proxies.
int proxy_threads() {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* task = readdir(tasks)) {
    std::ifstream comm(std::string("/proc/self/task/") + task->d_name + "/comm");
    std::string name;
    if (comm >> name && name.rfind("ucclep-proxy", 0) == 0) ++count;
  }
  closedir(tasks);
  return count;
}

TEST_CASE("network: proxies come with the first group, and go with the communicator", "[driver][network][reduced]") {
  run_ranks(4, {.processes = true}, [](Rank& rank) {
    ucclEpCommConfig_t config = in_nodes_of(rank, 2);
    config.proxy_threads = 2;
    {
      Comm comm(rank, config);
      require(proxy_threads() == 0, "there are proxies before the first group");
      {
        const Group first = make_group(comm, some_group(4)), second = make_group(comm, some_group(4));
        // A thread gives itself its name.
        const auto begin = Clock::now();
        while (proxy_threads() != 2 && Clock::now() - begin < prompt)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        require(proxy_threads() == 2, std::to_string(proxy_threads()) + " proxies for two groups");
      }
      const Group third = make_group(comm, some_group(4));
      const ucclEpStats_t stats = stats_of(comm);
      require(stats.commands == 0 && stats.bytes_sent == 0, "groups without operations have sent something");
    }
    require(proxy_threads() == 0, "there are proxies after the communicator");
  });
}

TEST_CASE("network: a group within a domain has none of it", "[driver][network][reduced]") {
  run_ranks(2, {.processes = true}, [](Rank& rank) {
    Comm comm(rank, in_nodes_of(rank, 2));
    const Group group = make_group(comm, some_group(2));
    require(proxy_threads() == 0, "there are proxies");
    const ucclEpStats_t stats = stats_of(comm);
    require(stats.commands == 0 && stats.messages == 0, "there are statistics");
    refused(ucclEpCommGetStats(comm, nullptr), ucclEpInvalidArgument, "ucclEpCommGetStats", {"stats is NULL"});
  });
}

TEST_CASE("network: what a rank lacks for it, all ranks hear, and nothing is left", "[driver][network][reduced]") {
  if (dlopen("libfabric.so.1", RTLD_LAZY) == nullptr) return skip_case("libfabric is not here");
  run_ranks(3, {.processes = true}, [](Rank& rank) {
    Comm comm(rank, in_nodes_of(rank, 1, "ofi:nosuch"));
    const ucclEpGroupConfig_t config = some_group(3);
    ucclEpGroup_t group = nullptr;
    refused(ucclEpGroupCreate(&group, comm, &config), ucclEpNotSupported, "ucclEpGroupCreate", {"rank 0", "nosuch"});
    require(group == nullptr, "the out-parameter was written");
  });
}

int refuse_memory(void**, size_t, void*) {
  return 17;
}
int free_nothing(void*, void*) {
  return 0;
}

TEST_CASE("network: a rank without memory ends the creation on all ranks, and the next one works",
          "[driver][network][process]") {
  run_ranks(4, [](Rank& rank) {
    Comm comm(rank, in_nodes_of(rank, 1));
    ucclEpGroupConfig_t config = some_group(4);
    if (rank.rank == 2) {
      config.alloc_fn = refuse_memory;
      config.free_fn = free_nothing;
    }
    ucclEpGroup_t none = nullptr;
    refused(ucclEpGroupCreate(&none, comm, &config), ucclEpOutOfMemory, "ucclEpGroupCreate", {"rank 2", "17"});
    const Group group = make_group(comm, some_group(4));
  });
}

int die(void**, size_t, void*) {
  kill(getpid(), SIGKILL);
  return 0;
}

TEST_CASE("network: a rank that dies in the middle of a creation ends it on the others",
          "[driver][network][process][killed]") {
  run_ranks(4, {.processes = true, .killed = {1}}, [](Rank& rank) {
    Comm comm(rank, in_nodes_of(rank, 1));
    ucclEpGroupConfig_t config = some_group(4);
    if (rank.rank == 1) {
      config.alloc_fn = die;
      config.free_fn = free_nothing;
    }
    ucclEpGroup_t group = nullptr;
    refused(ucclEpGroupCreate(&group, comm, &config), ucclEpRemoteError, "ucclEpGroupCreate", {"rank 1"});
  });
}

// Rank 3 never begins the operation that the others wait in.
void be_aborted(Rank& rank) {
  const Scenario scenario{.layout = Layout::ll_rank_major, .ranks = 4, .experts = 8};
  Comm comm(rank, in_nodes_of(rank, 2));
  const Group group = make_group(comm, group_config({scenario}));
  const Handle handle = make_handle(group, handle_config(scenario));
  Stream stream(comm);
  Exchange exchange(rank, comm, scenario);
  exchange.update(handle, stream);
  if (rank.rank != 3) exchange.dispatch(handle, stream);
  rank.board.add(0);
  rank.board.wait(0, 4);
  const auto begin = Clock::now();
  if (rank.rank == 3) ok(ucclEpCommAbort(comm), "ucclEpCommAbort");
  while (async_error(comm).code == ucclEpSuccess && Clock::now() - begin < prompt)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // Rank 3 stays until all have heard of the abort: who first sees that its endpoint is closed says that instead.
  rank.board.add(1);
  rank.board.wait(1, 4);
  const ucclEpResult_t expected = rank.rank == 3 ? ucclEpAborted : ucclEpRemoteError;
  refused(exchange.try_dispatch(handle, stream), expected, "ucclEpDispatch", {"rank 3", "bort"});
  refused(ucclEpStreamSynchronize(comm, stream), expected, "ucclEpStreamSynchronize", {"rank 3", "bort"});
}

TEST_CASE("network: an abort ends operations and groups on all ranks", "[driver][network][process][reduced]") {
  run_ranks(4, [](Rank& rank) {
    const auto begin = Clock::now();
    be_aborted(rank);
    require(Clock::now() - begin < prompt, "the end took long");
  });
}

TEST_CASE("network: ucclEpGroupQuery says what a group takes of the host", "[driver][network][process][reduced]") {
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank, in_nodes_of(rank, 1));
    const ucclEpGroupConfig_t config = some_group(2);
    ucclEpGroupLimits_t across = UCCLEP_GROUP_LIMITS_INIT, within = UCCLEP_GROUP_LIMITS_INIT;
    ok(ucclEpGroupQuery(comm, &config, &across), "ucclEpGroupQuery");
    ucclEpGroupConfig_t dry = config;
    dry.nranks = 2;
    ok(ucclEpGroupQuery(nullptr, &dry, &within), "ucclEpGroupQuery");
    require(across.host_bytes > 0 && within.host_bytes == 0, "host_bytes");
  });
}

// ---- Statistics ----

// Of a dispatch and a combine: a header and a write for each 32 KiB, to each rank of other nodes, each way.
TEST_CASE("network: few messages, and their bytes are counted", "[driver][network][process][reduced]") {
  run_ranks(4, [](Rank& rank) {
    const Scenario scenario{
        .layout = Layout::ll_rank_major, .ranks = 4, .experts = 4, .top_k = 4, .max_tokens = 16, .hidden = 7168};
    Comm comm(rank, in_nodes_of(rank, 2));
    const Group group = make_group(comm, group_config({scenario}));
    const Handle handle = make_handle(group, handle_config(scenario));
    Stream stream(comm);
    round_trip(rank, comm, handle, stream, scenario);
    rank.board.add(0);
    rank.board.wait(0, 4);
    const ucclEpStats_t stats = stats_of(comm);
    constexpr uint64_t row = 7168 * 2, peers = 2, rows = 16, words = 2 + 2 * 8;  // consumed, credits
    require(stats.bytes_sent >= 2 * peers * rows * row, std::to_string(stats.bytes_sent) + " bytes were sent");
    require(stats.bytes_sent < 2 * peers * rows * row * 11 / 10, std::to_string(stats.bytes_sent) + " bytes are many");
    // Rows and headers: nobody has waited for the proxy to read that the last rows were consumed.
    require(stats.bytes_received > 0, "no bytes were received");
    require(stats.commands >= 2 * peers * (rows + 1), std::to_string(stats.commands) + " commands");
    require(stats.messages <= 2 * peers * (2 + rows * row / 32768) + peers * words,
            std::to_string(stats.messages) + " messages");
  });
}

}  // namespace
}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// Groups whose ranks are in several (virtual) nodes: what they own of the network, and how it comes and goes.
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <set>
#include <string>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"
#include "ucclep/device/objects.hpp"

namespace ucclep::test {
namespace {

// Nodes of so many ranks each, the last one of what is left.
ucclEpCommConfig_t in_nodes(const Rank& rank, int size, const char* transport = nullptr) {
  ucclEpCommConfig_t config = comm_config(rank);
  config.ranks_per_node = size;
  config.transport = transport;
  return config;
}

ucclEpGroupConfig_t some_group(int ranks) {
  return group_config({Scenario{.layout = Layout::ll_expert_major, .ranks = ranks, .experts = 2 * ranks}});
}

ucclEpStats_t stats_of(ucclEpComm_t comm) {
  ucclEpStats_t stats = UCCLEP_STATS_INIT;
  ok(ucclEpCommGetStats(comm, &stats), "ucclEpCommGetStats");
  return stats;
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

TEST_CASE("network: proxies come with the first group, and go with the communicator", "[host][reduced]") {
  run_ranks(4, {.processes = true}, [](Rank& rank) {
    ucclEpCommConfig_t config = in_nodes(rank, 2);
    config.proxy_threads = 2;
    {
      Comm comm(rank, config);
      require(proxy_threads() == 0, "there are proxies before the first group");
      {
        const Group first = make_group(comm, some_group(4)), second = make_group(comm, some_group(4));
        require(proxy_threads() == 2, std::to_string(proxy_threads()) + " proxies for two groups");
      }
      const Group third = make_group(comm, some_group(4));
      const ucclEpStats_t stats = stats_of(comm);
      require(stats.commands == 0 && stats.bytes_sent == 0, "groups without operations have sent something");
    }
    require(proxy_threads() == 0, "there are proxies after the communicator");
  });
}

TEST_CASE("network: a group within a domain has none of it", "[host][reduced]") {
  run_ranks(2, {.processes = true}, [](Rank& rank) {
    Comm comm(rank, in_nodes(rank, 2));
    const Group group = make_group(comm, some_group(2));
    require(proxy_threads() == 0, "there are proxies");
    const ucclEpStats_t stats = stats_of(comm);
    require(stats.commands == 0 && stats.messages == 0, "there are statistics");
    refused(ucclEpCommGetStats(comm, nullptr), ucclEpInvalidArgument, "ucclEpCommGetStats", {"stats is NULL"});
  });
}

TEST_CASE("network: what a rank lacks for it, all ranks hear, and nothing is left", "[host][reduced]") {
  if (dlopen("libfabric.so.1", RTLD_LAZY) == nullptr) return skip_case("libfabric is not here");
  run_ranks(3, {.processes = true}, [](Rank& rank) {
    Comm comm(rank, in_nodes(rank, 1, "ofi:nosuch"));
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

TEST_CASE("network: a rank without memory ends the creation on all ranks, and the next one works", "[host][process]") {
  run_ranks(4, [](Rank& rank) {
    Comm comm(rank, in_nodes(rank, 1));
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

TEST_CASE("network: a rank that dies in the middle of a creation ends it on the others", "[host][process]") {
  run_ranks(4, {.processes = true, .killed = {1}}, [](Rank& rank) {
    Comm comm(rank, in_nodes(rank, 1));
    ucclEpGroupConfig_t config = some_group(4);
    if (rank.rank == 1) {
      config.alloc_fn = die;
      config.free_fn = free_nothing;
    }
    ucclEpGroup_t group = nullptr;
    refused(ucclEpGroupCreate(&group, comm, &config), ucclEpRemoteError, "ucclEpGroupCreate", {"rank 1"});
  });
}

TEST_CASE("network: an abort ends groups at once", "[host][process][reduced]") {
  run_ranks(4, [](Rank& rank) {
    Comm comm(rank, in_nodes(rank, 2));
    const Group group = make_group(comm, some_group(4));
    rank.board.add(0);
    rank.board.wait(0, 4);
    if (rank.rank == 3) ok(ucclEpCommAbort(comm), "ucclEpCommAbort");
  });
}

TEST_CASE("network: what does not go across domains yet says so", "[host][process][reduced]") {
  run_ranks(4, [](Rank& rank) {
    Comm comm(rank, in_nodes(rank, 2));
    const Group group = make_group(comm, some_group(4));
    ucclEpDeviceGroup device;
    refused(ucclEpGroupGetDevice(group, &device), ucclEpNotSupported, "ucclEpGroupGetDevice", {"one domain only"});
  });
}

TEST_CASE("network: ucclEpGroupQuery says what a group takes of the host", "[host][process][reduced]") {
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank, in_nodes(rank, 1));
    const ucclEpGroupConfig_t config = some_group(2);
    ucclEpGroupLimits_t across = UCCLEP_GROUP_LIMITS_INIT, within = UCCLEP_GROUP_LIMITS_INIT;
    ok(ucclEpGroupQuery(comm, &config, &across), "ucclEpGroupQuery");
    ucclEpGroupConfig_t dry = config;
    dry.nranks = 2;
    ok(ucclEpGroupQuery(nullptr, &dry, &within), "ucclEpGroupQuery");
    require(across.host_bytes > 0 && within.host_bytes == 0, "host_bytes");
  });
}

// ---- Faults ----

using Clock = std::chrono::steady_clock;

// Pairs of dispatch and combine until something goes wrong. A limit of ten times what is promised: the machine may be
// slow.
ucclEpAsyncError_t first_fault(Rank& rank, const char* transport, int timeout_ms) {
  const Scenario scenario{.layout = Layout::ll_rank_major, .ranks = rank.count, .experts = 2 * rank.count};
  Comm comm(rank, in_nodes(rank, 1, transport));
  ucclEpGroupConfig_t config = group_config({scenario});
  config.timeout_ms = timeout_ms;
  const Group group = make_group(comm, config);
  const Handle handle = make_handle(group, handle_config(scenario));
  Stream stream(comm);
  Exchange exchange(rank, comm, scenario);
  exchange.update(handle, stream);
  stream.synchronize();
  rank.board.add(0);
  rank.board.wait(0, static_cast<uint32_t>(rank.count));
  const auto begin = Clock::now();
  ucclEpResult_t result = ucclEpSuccess;
  while (result == ucclEpSuccess && Clock::now() - begin < std::chrono::seconds(15)) {
    result = exchange.try_dispatch(handle, stream);
    if (result == ucclEpSuccess) result = exchange.try_combine(handle, stream);
    if (result == ucclEpSuccess) result = ucclEpStreamSynchronize(comm, stream);
  }
  require(result != ucclEpSuccess, "nothing went wrong");
  const ucclEpAsyncError_t error = async_error(comm);
  require(error.code == result, "the record's code is " + std::to_string(error.code));
  require(Clock::now() - begin < std::chrono::seconds(10), "it took longer than 10 s");
  rank.board.add(1);
  rank.board.wait(1, static_cast<uint32_t>(rank.count));
  return error;
}

// The peer of a rank whose connection broke need not hear of it: its time is up then.
TEST_CASE("network: a connection that breaks ends operations, with peer and chunk", "[host][reduced]") {
  run_ranks(2, [](Rank& rank) {
    const ucclEpAsyncError_t error = first_fault(rank, "faulty:delay=0,withhold=0,repeat=0,break=9:loopback", 5000);
    const std::string text = error.text;
    require(error.peer == 1 - rank.rank, "the peer: " + text);
    const bool broken = std::string(error.phase) == "network";
    if (broken) {
      require(error.code == ucclEpRemoteError, "the code: " + text);
      require(text.find("has lost its connection to rank") != std::string::npos, text);
      require(text.find("broke at operation 9") != std::string::npos, text);
      rank.board.post(2, 1);
    }
    rank.board.add(3);
    rank.board.wait(3, 2);
    rank.board.wait(2, 1, 0.1);  // at least one of them
  });
}

TEST_CASE("network: a NIC that dies ends operations on all ranks", "[host][reduced]") {
  run_ranks(2, [](Rank& rank) {
    const ucclEpAsyncError_t error = first_fault(rank, "faulty:delay=0,withhold=0,repeat=0,kill=9:loopback", 3000);
    require(error.code != ucclEpSuccess && error.peer == 1 - rank.rank, "code or peer: " + std::string(error.text));
  });
}

// ---- Statistics ----

// Of a dispatch and a combine: a header and a write for each 32 KiB, to each rank of other nodes, each way.
TEST_CASE("network: few messages, and their bytes are counted", "[host][process][reduced]") {
  run_ranks(4, [](Rank& rank) {
    const Scenario scenario{
        .layout = Layout::ll_rank_major, .ranks = 4, .experts = 4, .top_k = 4, .max_tokens = 16, .hidden = 7168};
    Comm comm(rank, in_nodes(rank, 2));
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
    require(stats.bytes_received > 0 && stats.commands >= 2 * peers * (rows + 2), "commands or bytes_received");
    require(stats.messages <= 2 * peers * (2 + rows * row / 32768) + peers * words,
            std::to_string(stats.messages) + " messages");
  });
}

}  // namespace
}  // namespace ucclep::test

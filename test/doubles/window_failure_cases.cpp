// SPDX-License-Identifier: Apache-2.0
// A driver that does not let one rank map what another one offers, or pin what NICs are to write.
#include <catch2/catch.hpp>

#include "conformance/exchange.hpp"
#include "conformance/windows.hpp"
#include "doubles/support.hpp"

namespace ucclep::test {
namespace {

TEST_CASE("windows: a rank that cannot map a peer's memory is every rank's error", "[driver][process]") {
  // In processes of their own: the environment belongs to all threads.
  run_ranks(3, {.processes = true}, [](Rank& rank) {
    Comm comm(rank);
    Meeting together(rank);
    const Block block(comm, page);
    ucclEpWindow_t window = nullptr;
    if (rank.rank == 1) setenv("UCCLEP_DOUBLE_FAIL", "allocation_import:999", 1);
    refused(ucclEpWindowRegister(comm, block.data(), page, &window), ucclEpUnhandledDeviceError, "ucclEpWindowRegister",
            {"rank 1: memory of rank 0", "importing", "code 999"});
    require(window == nullptr, "a refused call wrote its out-parameter");
    unsetenv("UCCLEP_DOUBLE_FAIL");
    window = registered(comm, block.data(), page);
    exchange_through(rank, together, comm, window, block.data());
    deregister(comm, window);
  });
}

TEST_CASE("network: a rank that cannot pin its window is every rank's error", "[driver][process]") {
  run_ranks(3, {.processes = true}, [](Rank& rank) {
    ucclEpCommConfig_t in_nodes = comm_config(rank);
    in_nodes.ranks_per_node = 1;
    Comm comm(rank, in_nodes);
    const Scenario scenario{.layout = Layout::ll_rank_major, .ranks = 3, .experts = 6};
    const ucclEpGroupConfig_t config = group_config({scenario});
    ucclEpGroup_t none = nullptr;
    if (rank.rank == 2) setenv("UCCLEP_DOUBLE_FAIL", "host_register:2", 1);
    refused(ucclEpGroupCreate(&none, comm, &config), ucclEpOutOfMemory, "ucclEpGroupCreate",
            {"rank 2", "pinning", "bytes of window memory", "out of memory"});
    require(none == nullptr, "a refused call wrote its out-parameter");
    unsetenv("UCCLEP_DOUBLE_FAIL");
    Stream stream(comm);
    const Group group = make_group(comm, config);
    const Handle handle = make_handle(group, handle_config(scenario));
    round_trip(rank, comm, handle, stream, scenario);
  });
}

// Windows of GPUs that NICs write lie in host memory, and count as such; those of peers count as the GPU's.
TEST_CASE("network: ucclEpGroupQuery counts a window as the host's and one as the device's", "[driver]") {
  run_ranks(2, [](Rank& rank) {
    ucclEpCommConfig_t in_nodes = comm_config(rank);
    in_nodes.ranks_per_node = 1;
    Comm comm(rank, in_nodes);
    ucclEpGroupConfig_t config = group_config({Scenario{.layout = Layout::ll_rank_major, .ranks = 2, .experts = 4}});
    config.max_tokens_per_rank = 4096;  // windows that are large beside what is rounded up
    ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
    ok(ucclEpGroupQuery(comm, &config, &limits), "ucclEpGroupQuery");
    const Group group = make_group(comm, config);
    ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
    ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
    const auto windows = static_cast<int64_t>(info.window_bytes);
    require(limits.device_bytes < windows && limits.host_bytes < windows, "both windows are in one place");
    require(limits.device_bytes + limits.host_bytes > windows, "a window is not among the bytes");
  });
}

}  // namespace
}  // namespace ucclep::test

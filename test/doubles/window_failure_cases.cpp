// SPDX-License-Identifier: Apache-2.0
// A driver that does not let one rank map what another one offers.
#include <catch2/catch.hpp>

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

}  // namespace
}  // namespace ucclep::test

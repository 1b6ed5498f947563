// SPDX-License-Identifier: Apache-2.0
// A kernel that is compiled for the CPU, on a communicator of a GPU.
#include "ucclep/host_launch.hpp"

#include <catch2/catch.hpp>

#include "support/ep.hpp"

namespace ucclep::test {
namespace {

void nothing(const void*) {}

TEST_CASE("a GPU's communicator refuses kernels that are compiled for the CPU", "[driver][reduced]") {
  run_ranks(1, [](Rank& rank) {
    const Comm comm(rank);
    refused(ucclEpHostLaunch(comm, &nothing, 1, 1, 0, nullptr, 0, nullptr), ucclEpNotSupported, "ucclEpHostLaunch",
            {"only the host device runs kernels that are compiled for the CPU"});
    no_async_error(comm);
  });
}

}  // namespace
}  // namespace ucclep::test

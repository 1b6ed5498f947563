// SPDX-License-Identifier: Apache-2.0
// Where host memory lies that GPUs, proxies and NICs share: near the GPU. Over a double of a driver, which is asked
// which NUMA node the threads prefer that have it allocate and pin.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "base/near_node.hpp"
#include "conformance/exchange.hpp"
#include "conformance/nodes.hpp"
#include "doubles/platform.hpp"

namespace ucclep::test {
namespace {

// Of all that the machine has, the first GPU is near this node, one of the first 32. Nothing is known of the others.
std::string machine_of_node(unsigned node) {
  std::string text = topology_with({"efa_0", "efa_1"});
  replace_all(text, R"(pci_busid="0000:00:02.0" pci_type="0300 [8086:a7a0])",
              R"(pci_busid="0000:10:00.0" pci_type="0302 [10de:2335])");
  replace_all(text, R"(nodeset="0x00000001")", fmt::format(R"(nodeset="{:#010x}")", 1u << node));
  replace_all(text, R"("NUMANode" os_index="0")", fmt::format(R"("NUMANode" os_index="{}")", node));
  return text;
}

void run_two_nodes() {
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank, in_nodes_of(rank, 1, "loopback"));
    Stream stream(comm);
    const Scenario scenario{.layout = Layout::ht_flat, .ranks = 2, .nodes = {1, 1}};
    const Group group = make_group(comm, group_config({scenario}));
    const Handle handle = make_handle(group, handle_config(scenario));
    round_trip(rank, comm, handle, stream, scenario);
    no_async_error(comm);
  });
}

TEST_CASE("host memory: what GPUs, proxies and NICs share lies near the GPU", "[memory]") {
  const bool may_choose = NearNode(0).prefers();
  if (!may_choose) WARN("the kernel lets nobody choose");
  const Platform platform({}, machine_of_node(0));
  const auto before = platform.driver().host_memory_near(0);
  run_two_nodes();
  const auto after = platform.driver().host_memory_near(0);
  CHECK((after.allocated > before.allocated) == may_choose);
  CHECK((after.pinned > before.pinned) == may_choose);
  CHECK(platform.said("is near NUMA node 0").size() == 1);  // of rank 0
  CHECK(platform.said("host memory is allocated there").size() == (may_choose ? 1 : 0));
}

TEST_CASE("host memory: all goes on where the kernel has no such node", "[memory]") {
  REQUIRE(!NearNode(31).prefers());
  const Platform platform({}, machine_of_node(31));
  run_two_nodes();
  CHECK(platform.said("is near NUMA node 31, but host memory is not allocated there: ").size() == 1);
}

}  // namespace
}  // namespace ucclep::test

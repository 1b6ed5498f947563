// SPDX-License-Identifier: Apache-2.0
#include "topology/text.hpp"

#include <catch2/catch.hpp>

#include "fleet.hpp"
#include "topology/words.hpp"

using namespace ucclep::topology;
using namespace ucclep::test;
using Catch::Matchers::Contains;

TEST_CASE("numbers as ranges", "[topology]") {
  CHECK(ranges({}).empty());
  CHECK(ranges({7}) == "7");
  CHECK(ranges({3, 1, 2, 8, 9, 11}) == "1-3,8-9,11");
  CHECK(ranges({5, 5, 6}) == "5-6");
}

TEST_CASE("links in words", "[topology]") {
  CHECK(links_text({}) == "no links");
  CHECK(links_text({"nvlink", "0", ""}) == "NVLink island 0");
  CHECK(links_text({"nvlink", "0", "rack/1"}) == "NVLink fabric rack/1");
  CHECK(links_text({"xgmi", "8b", ""}) == "xGMI island 8b");
}

TEST_CASE("a plan as text", "[topology]") {
  Machine machine = machine_with({0, 5}, {0, 5, 5});
  machine.nics[2].up = false;
  machine.nics.push_back({{}, "veth0", {}, false, true, 10});
  auto ranks = ranks_on(std::make_shared<const Machine>(machine), 2);
  for (RankFacts& facts : ranks) facts.proxy_threads = 2;
  CHECK(to_text(ranks, make_plan(ranks)) ==
        R"(machine 0: drawn, 2 NUMA nodes, 2 GPUs, 4 NICs
  NUMA node 0: 16 cores, CPUs 0-15,32-47
    0000:01:00.0 GPU  0: GPU, NVLink island 0
    0000:09:00.0 NIC  nic0          400 Gb/s  rail 0
  NUMA node 1: 16 cores, CPUs 16-31,48-63
    0000:52:00.0 GPU  1: GPU, NVLink island 0
    0000:5a:00.0 NIC  nic1          400 Gb/s  rail 1
    0000:5b:00.0 NIC  nic2          400 Gb/s  down  not used
  near no NUMA node in particular
    -            NIC  veth0         10 Gb/s  no RDMA  not used
plan: 2 ranks on 1 node
  domain 0: ranks 0-1 (nvlink, stores of 128 bytes arrive whole)
 rank  node  domain  GPU  proxies on   path         NICs
    0     0       0    0  14-15        PCIe switch  nic0
    1     0       0    1  30-31        PCIe switch  nic1
)");
}

TEST_CASE("a rank's place in one line", "[topology]") {
  auto ranks = ranks_on(std::make_shared<const Machine>(machine_with({0, 5}, {0, 5, 5})), 4);
  for (RankFacts& facts : ranks) facts.proxy_threads = 1;
  ranks[3].gpu = -1;
  const Plan plan = make_plan(ranks, {2, 2});
  CHECK(place_text(ranks, plan, 0) ==
        "node 0 of 2, domain 0 of 2 (ranks 0-1, nvlink), GPU 0000:01:00.0, nic0 (rail 0, same PCIe switch), proxies on "
        "15");
  CHECK_THAT(place_text(ranks, plan, 3), Contains("node 1 of 2, domain 1 of 2 (ranks 2-3, memory), no GPU, "));
  const auto laptop = ranks_on(std::make_shared<const Machine>(machine_with({}, {})), 1);
  CHECK_THAT(place_text(laptop, make_plan(laptop), 0), Contains("no GPU, no NIC, proxies on "));
}

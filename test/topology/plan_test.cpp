// SPDX-License-Identifier: Apache-2.0
// The plans of the saved machines, and the rules that they follow.
#include "topology/plan.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "base/error.hpp"
#include "fleet.hpp"
#include "machines.hpp"
#include "topology/json.hpp"

using namespace ucclep;
using namespace ucclep::topology;
using namespace ucclep::test;
using Catch::Matchers::Contains;
using Lists = std::vector<std::string>;

namespace {

std::vector<RankFacts> operator+(std::vector<RankFacts> ranks, const std::vector<RankFacts>& more) {
  ranks.insert(ranks.end(), more.begin(), more.end());
  return ranks;
}

std::shared_ptr<const Machine> shared(const Machine& machine) {
  return std::make_shared<const Machine>(machine);
}

std::string refusal(const std::vector<RankFacts>& ranks, const std::vector<int>& node_sizes = {}) {
  try {
    make_plan(ranks, node_sizes);
  } catch (const Error& error) {
    CHECK(error.code() == ucclEpInvalidArgument);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("plan: 8 H100 with 8 ConnectX-7", "[topology][build-tree]") {
  const auto ranks = ranks_on(saved_machine("h100-cx7"), 8);
  const Plan plan = make_plan(ranks);
  CHECK(summary(ranks, plan, 0) == "0 0 0: mlx5_0 | 55 54 53 52");
  CHECK(summary(ranks, plan, 1) == "0 1 0: mlx5_3 | 51 50 49 48");
  CHECK(summary(ranks, plan, 2) == "0 2 0: mlx5_4 | 47 46 45 44");
  CHECK(summary(ranks, plan, 3) == "0 3 0: mlx5_5 | 43 42 41 40");
  CHECK(summary(ranks, plan, 4) == "0 4 0: mlx5_6 | 111 110 109 108");
  CHECK(summary(ranks, plan, 5) == "0 5 0: mlx5_9 | 107 106 105 104");
  CHECK(summary(ranks, plan, 6) == "0 6 0: mlx5_10 | 103 102 101 100");
  CHECK(summary(ranks, plan, 7) == "0 7 0: mlx5_11 | 99 98 97 96");
  REQUIRE(plan.domains.size() == 1);
  CHECK(plan.domains[0].kind == "nvlink");
  CHECK(plan.domains[0].whole_bytes == 128);
  CHECK(plan.machines[0].rails ==
        Lists{"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"});  // not eno3
  for (const RankPlan& rank : plan.ranks) CHECK(rank.nics[0].path == Path::pcie_switch);
}

TEST_CASE("plan: p5en, two EFA for each GPU", "[topology][build-tree]") {
  const auto ranks = ranks_on(saved_machine("p5en"), 8);
  const Plan plan = make_plan(ranks);
  CHECK(nics_of_ranks(ranks, plan) == Lists{"rdmap85s0 rdmap86s0", "rdmap87s0 rdmap88s0", "rdmap110s0 rdmap111s0",
                                            "rdmap112s0 rdmap113s0", "rdmap135s0 rdmap136s0", "rdmap137s0 rdmap138s0",
                                            "rdmap160s0 rdmap161s0", "rdmap162s0 rdmap163s0"});
  CHECK(summary(ranks, plan, 7) == "0 7 0: rdmap162s0 rdmap163s0 | 83 82 81 80");
  const std::vector<Proxy>& proxies = plan.ranks[7].proxies;  // four threads for two NICs
  CHECK(proxies[0].nics == std::vector<int>{0});
  CHECK(proxies[1].nics == std::vector<int>{1});
  CHECK(proxies[2].nics == std::vector<int>{0});
  CHECK(plan.ranks[7].nics[0].rail == 14);
  CHECK(plan.domains[0].kind == "nvlink");
}

TEST_CASE("plan: p5, four EFA for each GPU", "[topology][build-tree]") {
  const auto ranks = ranks_on(saved_machine("p5"), 8);
  const Plan plan = make_plan(ranks);
  const int first_bus[] = {79, 96, 113, 130, 147, 164, 181, 198};
  for (size_t rank = 0; rank < 8; ++rank) {
    std::string expected;
    for (int i = 0; i < 4; ++i) expected += (i ? " rdmap" : "rdmap") + std::to_string(first_bus[rank] + i) + "s0";
    CHECK(nics_of_ranks(ranks, plan)[rank] == expected);
    CHECK(plan.ranks[rank].nics[3].rail == static_cast<int>(4 * rank + 3));
    CHECK(plan.ranks[rank].proxies.size() == 4);
  }
}

TEST_CASE("plan: 8 MI300X with 8 Thor-2", "[topology][build-tree]") {
  const auto ranks = ranks_on(saved_machine("mi300x-thor2"), 8);
  const Plan plan = make_plan(ranks);
  CHECK(nics_of_ranks(ranks, plan) ==
        Lists{"bnxt_re0", "bnxt_re1", "bnxt_re2", "bnxt_re3", "bnxt_re4", "bnxt_re5", "bnxt_re6", "bnxt_re7"});
  CHECK(summary(ranks, plan, 4) == "0 4 0: bnxt_re4 | 127 126 125 124");
  CHECK(plan.domains[0].kind == "xgmi");
  CHECK(plan.domains[0].whole_bytes == 8);
}

TEST_CASE("plan: GPUs on PCIe only share the NIC of their socket", "[topology][build-tree]") {
  const auto ranks = ranks_on(saved_machine("pcie-only"), 4);
  const Plan plan = make_plan(ranks);
  CHECK(summary(ranks, plan, 0) == "0 0 0: mlx5_0 | 31 30 29 28");
  CHECK(summary(ranks, plan, 1) == "0 1 0: mlx5_0 | 27 26 25 24");
  CHECK(summary(ranks, plan, 2) == "0 2 0: mlx5_1 | 63 62 61 60");
  CHECK(summary(ranks, plan, 3) == "0 3 0: mlx5_1 | 59 58 57 56");
  CHECK(plan.domains[0].kind == "pcie");
  CHECK(plan.domains[0].whole_bytes == 16);
  CHECK(plan.ranks[0].nics[0].path == Path::numa_node);
}

TEST_CASE("plan: stores are as wide as the slowest way between two ranks keeps whole", "[topology][build-tree]") {
  const auto all = ranks_on(saved_machine("h100-cx7"), 8);
  REQUIRE(make_plan(all).whole_bytes() == 128);
  const auto without_link = [&](size_t rank) {
    Machine machine = *all[rank].machine;
    machine.gpus[static_cast<size_t>(all[rank].gpu)].links = {};
    auto ranks = all;
    ranks[rank].machine = shared(machine);  // what one rank sees is no less true than what all others see
    return ranks;
  };
  for (size_t rank = 0; rank < all.size(); ++rank) CHECK(make_plan(without_link(rank)).whole_bytes() == 16);

  // Of several domains the slowest counts, for the ranks of all are in one group.
  const Plan two = make_plan(all + ranks_on(saved_machine("pcie-only"), 4, "b"));
  REQUIRE(two.domains.size() == 2);
  CHECK(two.domains[0].whole_bytes == 128);
  CHECK(two.domains[1].whole_bytes == 16);
  CHECK(two.whole_bytes() == 16);

  // Ranks of one GPU need no link.
  auto one_gpu = ranks_on(saved_machine("pcie-only"), 4);
  for (RankFacts& facts : one_gpu) facts.gpu = 2;
  CHECK(make_plan(one_gpu).whole_bytes() == 128);

  auto on_cpus = ranks_on(saved_machine("laptop"), 3);
  CHECK(make_plan(on_cpus).whole_bytes() == 16);
  on_cpus[1].whole_bytes = 8;
  CHECK(make_plan(on_cpus).whole_bytes() == 8);
}

TEST_CASE("plan: a laptop has ranks on the CPU, and no NIC", "[topology][build-tree]") {
  const auto ranks = ranks_on(saved_machine("laptop"), 2);
  const Plan plan = make_plan(ranks);
  CHECK(summary(ranks, plan, 0) == "0 0 0:  | 7 6");
  CHECK(summary(ranks, plan, 1) == "0 1 0:  | 5 4");
  CHECK(plan.ranks[0].proxies[0].nics.empty());
  CHECK(plan.domains[0].kind == "memory");
  CHECK(plan.machines[0].rails.empty());
}

TEST_CASE("plan: two machines of a kind pair their NICs rail by rail", "[topology][build-tree]") {
  const auto machine = saved_machine("p5en");
  const auto ranks = ranks_on(machine, 8, "a") + ranks_on(machine, 8, "b");
  const Plan plan = make_plan(ranks);
  CHECK(plan.nodes.size() == 2);
  CHECK(plan.domains.size() == 2);
  CHECK(plan.machines[0].rails == plan.machines[1].rails);
  for (int rank = 0; rank < 8; ++rank) {  // the same place on the other machine
    CHECK(connections(plan, rank, rank + 8) == std::vector<std::pair<int, int>>{{0, 0}, {1, 1}});
    CHECK(plan.ranks[static_cast<size_t>(rank)].nics[1].rail == plan.ranks[static_cast<size_t>(rank) + 8].nics[1].rail);
  }
  CHECK(connections(plan, 0, 9) == std::vector<std::pair<int, int>>{{0, 0}, {1, 1}});  // no rail in common
}

TEST_CASE("plan: connections of ranks with different numbers of NICs", "[topology]") {
  const auto many = shared(machine_with({0}, {0, 0, 0})), few = shared(machine_with({0}, {0}));
  const Plan plan =
      make_plan(ranks_on(many, 1, "a") + ranks_on(few, 1, "b") + ranks_on(shared(machine_with({0}, {})), 1, "c"));
  CHECK(connections(plan, 0, 1) == std::vector<std::pair<int, int>>{{0, 0}});  // they have rail 0 in common
  CHECK(connections(plan, 0, 2).empty());
  auto ranks = ranks_on(shared(machine_with({0, 1}, {0, 0, 1})), 2, "a") +
               ranks_on(shared(machine_with({0}, {5, 5, 0})), 1, "b");
  const Plan crossed = make_plan(ranks);
  CHECK(nics_of_ranks(ranks, crossed) == Lists{"nic0 nic1", "nic2", "nic2"});
  CHECK(connections(crossed, 0, 2) == std::vector<std::pair<int, int>>{{0, 0}, {1, 0}});
  CHECK(connections(crossed, 2, 0) == std::vector<std::pair<int, int>>{{0, 0}, {0, 1}});
  CHECK(connections(crossed, 1, 2) == std::vector<std::pair<int, int>>{{0, 0}});
}

TEST_CASE("plan: GPUs without a NIC of their own share fairly", "[topology]") {
  const auto nics_with = [](const std::vector<int>& gpus, const std::vector<int>& nics) {
    const auto ranks = ranks_on(shared(machine_with(gpus, nics)), static_cast<int>(gpus.size()));
    return nics_of_ranks(ranks, make_plan(ranks));
  };
  // A switch with two GPUs and three NICs: one each, and the third for both.
  CHECK(nics_with({0, 0}, {0, 0, 0}) == Lists{"nic0 nic2", "nic1 nic2"});
  // Two GPUs have a NIC, two have none nearby.
  CHECK(nics_with({0, 1, 2, 3}, {0, 1}) == Lists{"nic0", "nic1", "nic0", "nic1"});
  // Those on the other socket take both NICs in turn.
  CHECK(nics_with({4, 5, 6, 7}, {0, 1}) == Lists{"nic0", "nic1", "nic0", "nic1"});
  // Not the NIC that another GPU has beside it, while one is free.
  CHECK(nics_with({0, 1}, {0, 2}) == Lists{"nic0", "nic1"});
  CHECK(nics_with({0, 1, 2}, {}) == Lists{"", "", ""});
}

TEST_CASE("plan: NICs by name are a choice, in the order of rails", "[topology][build-tree]") {
  auto ranks = ranks_on(saved_machine("h100-cx7"), 8);
  for (RankFacts& facts : ranks) facts.nics = {"mlx5_11", "mlx5_0", "ibp64s0"};
  const Plan plan = make_plan(ranks);
  CHECK(plan.machines[0].rails == Lists{"mlx5_11", "mlx5_0", "mlx5_3"});
  // Beside GPU 0, 1 and 7; the others take what is on their socket.
  CHECK(nics_of_ranks(ranks, plan) ==
        Lists{"mlx5_0", "mlx5_3", "mlx5_0", "mlx5_3", "mlx5_11", "mlx5_11", "mlx5_11", "mlx5_11"});
  ranks[5].nics = {"mlx5_0", "mlx5_12"};
  CHECK(refusal(ranks) ==
        "UCCLEP_NICS of rank 5: the NIC mlx5_12 does not exist on dgx-h100, which has eno3, mlx5_0, mlx5_3, mlx5_4, "
        "mlx5_5, mlx5_6, mlx5_9, mlx5_10, mlx5_11");
  ranks[5].nics = {"mlx5_0", "ibp24s0"};
  CHECK(refusal(ranks) == "UCCLEP_NICS of rank 5: mlx5_0 is named twice: name each NIC once");
  auto on_laptop = ranks_on(saved_machine("laptop"), 1);
  on_laptop[0].nics = {"eth0"};
  CHECK(refusal(on_laptop) == "UCCLEP_NICS of rank 0: the NIC eth0 does not exist on laptop, which has no NIC");
}

TEST_CASE("plan: a libfabric domain of provider efa goes by the name of its NIC", "[topology][build-tree]") {
  auto ranks = ranks_on(saved_machine("p5"), 1);
  ranks[0].nics = {"rdmap80s0-rdm"};
  CHECK(nics_of_ranks(ranks, make_plan(ranks)) == Lists{"rdmap80s0"});
}

TEST_CASE("plan: without names the machine's best NICs are used", "[topology]") {
  Machine machine = machine_with({0}, {0, 0, 0, 0});
  const auto chosen = [&] {
    const auto ranks = ranks_on(shared(machine), 1);
    return nics_of_ranks(ranks, make_plan(ranks))[0];
  };
  machine.nics[0].gigabits = 25;
  CHECK(chosen() == "nic1 nic2 nic3");  // one of 25 Gb/s beside 400 is for something else
  machine.nics[1].up = false;
  CHECK(chosen() == "nic2 nic3");
  machine.nics[2].rdma = false;
  CHECK(chosen() == "nic3");
  machine.nics[3].rdma = machine.nics[0].rdma = false;
  CHECK(chosen() == "nic2 nic3");  // Ethernet, where there is no RDMA
  machine.nics[2].up = machine.nics[3].up = machine.nics[0].up = false;
  CHECK(chosen().empty());
  machine.nics.push_back({{}, "veth0", {}, false, true, 10});
  CHECK(chosen() == "veth0");
}

TEST_CASE("plan: containers share the NICs and cores of their machine, not its memory", "[topology]") {
  const auto machine = shared(machine_with({0, 1, 2, 3}, {0, 1, 2, 3}));
  auto ranks = ranks_on(machine, 4);
  ranks[2].node = ranks[3].node = node_id("a", 2);
  const Plan plan = make_plan(ranks);
  CHECK(plan.machines.size() == 1);
  CHECK(plan.nodes == std::vector<std::vector<int>>{{0, 1}, {2, 3}});
  CHECK(plan.domains.size() == 2);
  CHECK(plan.ranks[3].local_rank == 1);
  std::set<int> cpus;
  for (const RankPlan& rank : plan.ranks) {
    for (const Proxy& proxy : rank.proxies) CHECK(cpus.insert(proxy.cpu).second);
  }
}

TEST_CASE("plan: ranks may see different parts of a machine", "[topology]") {
  // The second container has GPU 1 and NIC 1 only, both with index 0, and eight cores.
  const Machine whole = machine_with({0, 0}, {0, 0});
  Machine part = whole;
  part.gpus.erase(part.gpus.begin());
  part.nics.erase(part.nics.begin());
  part.numa_nodes.pop_back();
  part.numa_nodes[0].cores.resize(8);
  auto ranks = ranks_on(shared(whole), 1) + ranks_on(shared(part), 1);
  ranks[1].node = node_id("a", 2);
  const Plan plan = make_plan(ranks);
  CHECK(nics_of_ranks(ranks, plan) == Lists{"nic0", "nic1"});
  CHECK(plan.machines[0].rails == Lists{"nic0", "nic1"});
  CHECK(summary(ranks, plan, 1) == "1 0 1: nic1 | 7 6");
}

TEST_CASE("plan: ranks in any order of machines", "[topology]") {
  const auto machine = shared(machine_with({0, 1}, {0, 1}));
  auto ranks = ranks_on(machine, 2, "a") + ranks_on(machine, 2, "b");
  std::swap(ranks[1], ranks[2]);
  const Plan plan = make_plan(ranks);
  CHECK(plan.nodes == std::vector<std::vector<int>>{{0, 2}, {1, 3}});
  CHECK(plan.ranks[2].local_rank == 1);
}

TEST_CASE("plan: virtual nodes and domains", "[topology]") {
  const auto machine = shared(machine_with({0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}));
  auto ranks = ranks_on(machine, 8);
  const std::vector<std::vector<int>> expected = {{0, 1, 2}, {3, 4, 5, 6, 7}};
  CHECK(make_plan(ranks, {3, 5}).nodes == expected);
  CHECK(make_plan(ranks, {3, 5}).domains[1].ranks == expected[1]);
  for (size_t rank = 0; rank < 8; ++rank) ranks[rank].ranks_per_node = rank < 3 ? 3 : 5;
  CHECK(make_plan(ranks).nodes == expected);
  CHECK(nics_of_ranks(ranks, make_plan(ranks))[7] == "nic7");
  for (RankFacts& facts : ranks) facts.ranks_per_domain = 2;
  const Plan divided = make_plan(ranks);
  REQUIRE(divided.domains.size() == 5);
  CHECK(divided.domains[0].ranks == std::vector<int>{0, 1});
  CHECK(divided.domains[1].ranks == std::vector<int>{2});
  CHECK(divided.domains[4].ranks == std::vector<int>{7});
  CHECK(divided.ranks[6].domain == 3);

  CHECK(refusal(ranks, {3, 4}) == "the sizes of UCCLEP_NODES add up to 7 ranks, but the communicator has 8");
  CHECK(refusal(ranks, {INT32_MAX, INT32_MAX}) ==
        "the sizes of UCCLEP_NODES add up to 4294967294 ranks, but the communicator has 8");
  CHECK(refusal(ranks, {8, 0}) == "a node has 0 ranks, expected at least 1");
  ranks[4].ranks_per_domain = 4;
  CHECK(refusal(ranks) == "ranks_per_domain of rank 4 is 4, but rank 3 of the same node gave 2");
  ranks[1].ranks_per_node = 5;
  CHECK(refusal(ranks) == "ranks_per_node of rank 1 is 5, but rank 0 of the same node gave 3");
  ranks[1].ranks_per_node = 0;
  CHECK(refusal(ranks) == "ranks_per_node of rank 1 is 0, but other ranks have set it: set it on all ranks or on none");
  CHECK(refusal(ranks_on(machine, 1, "a") + ranks_on(machine, 1, "b"), {2}) ==
        "ranks 0 and 1 would be in one virtual node, but do not share a machine and its memory: choose other sizes of "
        "nodes");
}

TEST_CASE("plan: a fabric joins the nodes of a rack into one domain", "[topology]") {
  Machine tray = machine_with({0, 4}, {0, 4});
  for (Gpu& gpu : tray.gpus) gpu.links = {"nvlink", "", "rack/1"};
  Machine other = tray;
  for (Gpu& gpu : other.gpus) gpu.links.fabric = "rack/2";
  auto ranks = ranks_on(shared(tray), 2, "a") + ranks_on(shared(other), 2, "b") + ranks_on(shared(tray), 2, "c");
  const Plan plan = make_plan(ranks);
  CHECK(plan.nodes.size() == 3);
  REQUIRE(plan.domains.size() == 2);
  CHECK(plan.domains[0].ranks == std::vector<int>{0, 1, 4, 5});
  CHECK(plan.domains[0].kind == "nvlink");
  CHECK(plan.domains[1].ranks == std::vector<int>{2, 3});
  CHECK(make_plan(ranks, {2, 2, 2}).domains.size() == 3);
}

TEST_CASE("plan: facts that cannot be", "[topology]") {
  const auto machine = shared(machine_with({0, 1}, {0}));
  auto ranks = ranks_on(machine, 2);
  ranks[1].gpu = 2;
  CHECK(refusal(ranks) == "rank 1: GPU 2 does not exist, drawn has 2 GPUs");
  ranks[1].gpu = 1;
  ranks[1].proxy_threads = -1;
  CHECK(refusal(ranks) == "proxy_threads of rank 1 is -1, expected 0 or more");
  ranks[1].proxy_threads = INT32_MAX;
  CHECK(refusal(ranks) == "proxy_threads of rank 1 is 2147483647, expected at most 256");
}

TEST_CASE("plan: proxy threads as many as asked for, on cores of their own while there are some", "[topology]") {
  const auto machine = shared(machine_with({0, 0}, {0, 0, 0}));
  auto ranks = ranks_on(machine, 1);
  ranks[0].proxy_threads = 2;  // three NICs for two threads
  const Plan two = make_plan(ranks);
  CHECK(two.ranks[0].proxies[0].nics == std::vector<int>{0, 2});
  CHECK(two.ranks[0].proxies[1].nics == std::vector<int>{1});
  ranks[0].proxy_threads = 40;  // 16 cores of two threads are near the NIC
  const Plan many = make_plan(ranks);
  std::map<int, int> threads_of_core;
  for (const Proxy& proxy : many.ranks[0].proxies) ++threads_of_core[proxy.cpu % 32];
  CHECK(threads_of_core.size() == 16);
  for (const auto& [core, threads] : threads_of_core) CHECK((threads == 2 || threads == 3));
}

TEST_CASE("plan: random machines are shared out evenly, and everybody computes the same", "[topology]") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto count = [&](unsigned most) { return static_cast<size_t>(random() % (most + 1)); };
    std::vector<int> gpus(1 + count(7)), nics(1 + count(15));
    for (int& place : gpus) place = static_cast<int>(count(7));
    for (int& place : nics) place = static_cast<int>(count(7));
    const auto machine = shared(machine_with(gpus, nics));
    const auto ranks =
        ranks_on(machine, static_cast<int>(gpus.size()), "a") + ranks_on(machine, static_cast<int>(gpus.size()), "b");
    const Plan plan = make_plan(ranks);

    // What another rank received and unpacked gives the same plan.
    std::vector<RankFacts> received = ranks;
    for (RankFacts& facts : received) facts.machine = shared(parse_machine(pack(*facts.machine)));
    CHECK(to_json(ranks, plan) == to_json(received, make_plan(received)));

    for (size_t a = 0; a < gpus.size(); ++a) {
      const RankPlan& mine = plan.ranks[a];
      REQUIRE_FALSE(mine.nics.empty());
      for (const NicUse& use : mine.nics) {  // of the nearest ones
        for (const Nic& nic : machine->nics) {
          CHECK(distance(machine->gpus[a].place, nic.place) >=
                distance(machine->gpus[a].place, machine->nics[static_cast<size_t>(use.nic)].place));
        }
      }
      for (size_t b = 0; b < a; ++b) {
        if (gpus[a] != gpus[b]) continue;
        const auto difference = static_cast<int>(mine.nics.size()) - static_cast<int>(plan.ranks[b].nics.size());
        CHECK(difference == 0);  // GPUs of one switch are alike
      }
      const auto there = static_cast<int>(a + gpus.size());  // its like on the other machine
      CHECK(connections(plan, static_cast<int>(a), there).size() == mine.nics.size());
    }
  }
}

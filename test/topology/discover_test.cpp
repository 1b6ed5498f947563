// SPDX-License-Identifier: Apache-2.0
#include "topology/discover.hpp"

#include <sched.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "machines.hpp"
#include "topology/driver_gpus.hpp"

using namespace ucclep::topology;
using ucclep::test::nearest_nics;
using ucclep::test::saved_machine;

namespace {

size_t cores_of(const Machine& machine) {
  size_t cores = 0;
  for (const NumaNode& node : machine.numa_nodes) cores += node.cores.size();
  return cores;
}

}  // namespace

TEST_CASE("discovery: 8 H100 with 8 ConnectX-7", "[topology][build-tree]") {
  const auto machine = saved_machine("h100-cx7");
  CHECK(machine->name == "dgx-h100");
  REQUIRE(machine->numa_nodes.size() == 2);
  CHECK(machine->numa_nodes[1].cores.size() == 56);
  CHECK(machine->numa_nodes[1].cores[0] == std::vector<int>{56, 168});
  REQUIRE(machine->gpus.size() == 8);
  CHECK(machine->gpus[0].place.address.text() == "0000:1b:00.0");
  CHECK(machine->gpus[0].model == "H100 SXM5 80GB");
  CHECK(machine->gpus[3].place.numa == 0);
  CHECK(machine->gpus[4].place.numa == 1);
  for (const Gpu& gpu : machine->gpus)
    CHECK(gpu.links == GpuLinks{"nvlink", "nvswitch", ""});  // four of them are in the tree
  const char* nearest[] = {"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"};
  for (size_t gpu = 0; gpu < 8; ++gpu) CHECK(nearest_nics(*machine, gpu) == nearest[gpu]);
  REQUIRE(machine->nics.size() == 9);
  CHECK(machine->nics[0].name == "eno3");
  CHECK_FALSE(machine->nics[0].rdma);
  CHECK(machine->nics[1].interfaces == std::vector<std::string>{"ibp24s0"});
  CHECK(machine->nics[1].gigabits == 400);
  CHECK(machine->nics[1].rdma);
  CHECK(machine->nics[1].up);
}

TEST_CASE("discovery: p5en, 8 H200 with 16 EFA", "[topology][build-tree]") {
  const auto machine = saved_machine("p5en");
  REQUIRE(machine->gpus.size() == 8);
  CHECK(machine->nics.size() == 16);
  CHECK(machine->gpus[0].links == GpuLinks{"nvlink", "0", ""});
  CHECK(nearest_nics(*machine, 0) == "rdmap85s0 rdmap86s0 rdmap87s0 rdmap88s0");
  CHECK(nearest_nics(*machine, 1) == nearest_nics(*machine, 0));
  CHECK(nearest_nics(*machine, 7) == "rdmap160s0 rdmap161s0 rdmap162s0 rdmap163s0");
}

TEST_CASE("discovery: p5, 8 H100 with 32 EFA", "[topology][build-tree]") {
  const auto machine = saved_machine("p5");
  REQUIRE(machine->gpus.size() == 8);
  CHECK(machine->nics.size() == 32);
  CHECK(cores_of(*machine) == 96);
  CHECK(nearest_nics(*machine, 0) == "rdmap79s0 rdmap80s0 rdmap81s0 rdmap82s0");
  CHECK(nearest_nics(*machine, 7) == "rdmap198s0 rdmap199s0 rdmap200s0 rdmap201s0");
}

TEST_CASE("discovery: 8 MI300X with 8 Thor-2", "[topology][build-tree]") {
  const auto machine = saved_machine("mi300x-thor2");
  REQUIRE(machine->gpus.size() == 8);
  CHECK(machine->gpus[2].model == "AMD Instinct MI300X OAM");
  CHECK(machine->gpus[2].links == GpuLinks{"xgmi", "8b5ee5a1d27b0a3c", ""});
  for (size_t gpu = 0; gpu < 8; ++gpu) CHECK(nearest_nics(*machine, gpu) == "bnxt_re" + std::to_string(gpu));
}

TEST_CASE("discovery: GPUs on PCIe only", "[topology][build-tree]") {
  const auto machine = saved_machine("pcie-only");
  REQUIRE(machine->gpus.size() == 4);
  for (const Gpu& gpu : machine->gpus) CHECK(gpu.links == GpuLinks{});
  for (size_t gpu = 0; gpu < 4; ++gpu) CHECK(nearest_nics(*machine, gpu) == (gpu < 2 ? "mlx5_0" : "mlx5_1"));
  CHECK(distance(machine->gpus[0].place, machine->nics[0].place).path == Path::numa_node);
}

TEST_CASE("discovery: a laptop has no GPU that computes and no NIC", "[topology][build-tree]") {
  const auto machine = saved_machine("laptop");
  CHECK(machine->gpus.empty());
  CHECK(machine->nics.empty());
  REQUIRE(machine->numa_nodes.size() == 1);
  CHECK(machine->numa_nodes[0].cores[7] == std::vector<int>{7, 15});
}

TEST_CASE("discovery: what the driver says of links wins", "[topology][build-tree]") {
  const GpuLinks rack{"nvlink", "", "2f1c0a7e/3"};
  Machine machine = read_topology_file(ucclep::test::topology_path("p5"));
  const PciAddress first{0, 0x53, 0, 0}, unseen{0, 0x54, 0, 0};
  REQUIRE(machine.gpus[0].place.address == first);
  const Gpu second = machine.gpus[1];
  add_driver_gpus({{first, "NVIDIA", "H100", rack}, {second.place.address, "NVIDIA", "H100", {}}}, machine);
  CHECK(machine.gpus[0].links == rack);
  CHECK(machine.gpus[1] == second);  // of one that it sees alone it knows nothing
  // A GPU that is there, and that neither hwloc nor the file shows.
  add_driver_gpus({{unseen, "NVIDIA", "H100", rack}}, machine);
  REQUIRE(machine.gpus.size() == 9);
  CHECK(machine.gpus[1].place.address == unseen);
  CHECK(machine.gpus[1].model == "H100");
  CHECK(machine.gpus[1].links == rack);
  CHECK(machine.gpus[1].place.numa == -1);
  CHECK(machine.gpus[2] == second);
}

TEST_CASE("discovery: without hwloc CPUs and NICs are known", "[topology]") {
  const Machine machine = discover_without_hwloc(), whole = discover();
  REQUIRE(machine.numa_nodes.size() == 1);
  cpu_set_t allowed;
  REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  CHECK(cores_of(machine) == static_cast<size_t>(CPU_COUNT(&allowed)));
  CHECK(machine.name == whole.name);
  CHECK(machine.gpus.empty());
  CHECK(machine.nics.size() == whole.nics.size());
  for (const Nic& nic : whole.nics) CHECK(std::ranges::count(machine.nics, nic.name, &Nic::name) == 1);
}

TEST_CASE("discovery: this machine", "[topology]") {
  const Machine machine = discover();
  CHECK_FALSE(machine.name.empty());
  cpu_set_t allowed;
  REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  size_t cpus = 0;
  for (const NumaNode& node : machine.numa_nodes) {
    for (const auto& core : node.cores) cpus += core.size();
  }
  CHECK(cpus >= static_cast<size_t>(CPU_COUNT(&allowed)));  // an affinity, unlike a cgroup, takes no CPU away
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    CHECK(std::ranges::count(machine.nics, device.path().filename().string(), &Nic::name) == 1);
  }
  CHECK(std::ranges::count(machine.nics, "lo", &Nic::name) == 0);
}

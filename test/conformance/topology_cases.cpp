// SPDX-License-Identifier: Apache-2.0
// Where ranks are and what joins them: what ucclEpCommGetInfo and ucclEpCommGetTopology say, virtual nodes and domains,
// and the names of transports, NICs and topology files.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/exchange.hpp"
#include "support/test_env.hpp"
#include "ucclep/device/layout/objects.hpp"

namespace ucclep::test {
namespace {

using Json = nlohmann::json;

Json topology_of(ucclEpComm_t comm) {
  size_t bytes = 0;
  ok(ucclEpCommGetTopology(comm, nullptr, &bytes), "ucclEpCommGetTopology");
  std::string text(bytes, '#');
  ok(ucclEpCommGetTopology(comm, text.data(), &bytes), "ucclEpCommGetTopology");
  require(bytes == text.size() && text.back() == '\0', "the length of the text");
  text.pop_back();
  Json json = Json::parse(text, nullptr, false);
  require(!json.is_discarded(), "this is no JSON: " + text);
  return json;
}

ucclEpCommInfo_t info_of(ucclEpComm_t comm) {
  ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
  ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
  return info;
}

void expect(const Json& given, const Json& expected, const std::string& what) {
  require(given == expected, what + " is " + given.dump() + ", expected " + expected.dump());
}

// The names of a rank's NICs, as ucclEpCommInfo_t has them.
std::string nics_of(const Json& topology, int rank) {
  std::string names;
  for (const Json& nic : topology["ranks"][static_cast<size_t>(rank)]["nics"]) {
    names += (names.empty() ? "" : ",") + nic["name"].get<std::string>();
  }
  return names;
}

// By the links of the GPUs that the ranks use.
std::string kind_by_links(const Json& topology) {
  std::string kind, island;
  for (const Json& rank : topology["ranks"]) {
    if (rank["gpu"].is_null()) return "memory";
    const Json& links = topology["machines"][rank["machine"].get<size_t>()]["gpus"][rank["gpu"].get<size_t>()]["links"];
    if (!kind.empty() && (links["kind"] != kind || links["island"] != island)) return "pcie";
    kind = links["kind"];
    island = links["island"];
    if (kind.empty()) return "pcie";
  }
  return kind;
}

void same_on_all(Rank& rank, const Json& topology) {
  const auto hash = static_cast<uint32_t>(std::hash<Json>{}(topology)) | 1;
  if (rank.rank == 0) {
    rank.board.post(1, ~hash);
    rank.board.post(0, hash);
  }
  rank.board.wait(0, 1);
  rank.board.wait(0, hash, 0.1);  // at least, and at most
  rank.board.wait(1, ~hash, 0.1);
}

TEST_CASE("topology: JSON and info say where the ranks of one machine are", "[process][reduced][driver]") {
  run_ranks(4, [](Rank& rank) {
    Comm comm(rank);
    const Json topology = topology_of(comm);
    expect(topology["version"], 1, "the version");
    expect(topology["nodes"], Json::parse("[[0, 1, 2, 3]]"), "nodes");
    const std::string kind = kind_by_links(topology);
    require(topology["domains"].size() == 1, "the number of domains");
    const Json& domain = topology["domains"][0];
    require(domain["kind"] == kind && domain["ranks"] == Json::parse("[0, 1, 2, 3]"), "the domain");
    require(topology["ranks"].size() == 4, "the number of ranks");
    const Json& machine = topology["machines"][0];
    require(!machine["numa_nodes"].empty(), "a NUMA node");
    const ucclEpCommInfo_t info = info_of(comm);
    require(machine["name"] == info.node_name, "the machine's name");
    require(info.node == 0 && info.num_nodes == 1 && info.domain_size == 4, "node, num_nodes or domain_size");
    require(std::string(info.transport) == "shared memory" && info.proxy_threads == 0, "transport or proxy_threads");
    require(info.nics == nics_of(topology, rank.rank).substr(0, sizeof info.nics - 1), "nics");
    const Json& own = topology["ranks"][static_cast<size_t>(rank.rank)];
    require(own["gpu"].is_null() == (test_gpus() == 0), "the rank's GPU");
    if (test_gpus() > 0 && machine["gpus"][own["gpu"].get<size_t>()]["model"] == "double") {
      require(kind == (info.device == UCCLEP_DEVICE_HIP ? "xgmi" : "nvlink"), "the doubles have links");
    }
    same_on_all(rank, topology);
  });
}

// What is promised of that way.
int64_t whole_bytes_by(const std::string& kind, int device) {
  if (device == UCCLEP_DEVICE_HIP) return 8;
  if (device == UCCLEP_DEVICE_CUDA) return kind == "pcie" ? 16 : 128;
  const char* mode = std::getenv("UCCLEP_HOST_MODE");
  const std::string modes = mode == nullptr ? "" : mode;
  return modes.find("torn") != std::string::npos && modes.find("torn=16") == std::string::npos ? 8 : 16;
}

TEST_CASE("topology: groups know how much of a store arrives whole between all ranks",
          "[process][reduced][driver][links]") {
  run_ranks(4, [](Rank& rank) {
    Comm comm(rank);
    const Json topology = topology_of(comm);
    const std::string kind = kind_by_links(topology);
    const int64_t whole = whole_bytes_by(kind, info_of(comm).device);
    int64_t least = INT64_MAX;
    for (const Json& domain : topology["domains"]) least = std::min(least, domain["whole_bytes"].get<int64_t>());
    expect(least, whole, "what arrives whole by " + kind);

    const Scenario scenario{.ranks = 4};
    const ucclEpGroupConfig_t config = group_config({scenario});
    ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
    ok(ucclEpGroupQuery(comm, &config, &limits), "ucclEpGroupQuery");
    expect(limits.whole_bytes, whole, "whole_bytes of ucclEpGroupQuery");
    ucclEpGroup_t group = nullptr;
    ok(ucclEpGroupCreate(&group, comm, &config), "ucclEpGroupCreate");
    ucclEpDeviceGroup device;
    ok(ucclEpGroupGetDevice(group, &device), "ucclEpGroupGetDevice");
    ok(ucclEpGroupDestroy(group), "ucclEpGroupDestroy");
    expect(device.shape.whole_bytes, whole, "whole_bytes of the group");
    require(device.shape.line_capacity == 0 || device.shape.line_bytes <= whole, "rows travel as lines in parts");
  });
}

// Nobody asks for virtual nodes here; two_machines.sh has two machines. Without a name the ranks choose what crosses.
TEST_CASE("topology: machines are nodes of their own, and ranks choose what crosses", "[nodes][machines]") {
  run_ranks(4, [](Rank& rank) {
    const bool two = std::getenv("UCCLEP_TEST_SECOND_MACHINE") != nullptr;
    ucclEpCommConfig_t config = comm_config(rank);
    config.ranks_per_node = 0;
    config.transport = nullptr;
    Comm comm(rank, config);
    const ucclEpCommInfo_t info = info_of(comm);
    expect(info.num_nodes, two ? 2 : 1, "num_nodes");
    if (!two) return;
    const char* const named = std::getenv("UCCLEP_TRANSPORT");
    expect(std::string(info.transport), std::string(named != nullptr ? named : "ofi:tcp"), "transport");
    const Group group = make_group(comm, group_config({Scenario{.ranks = 4}}));
  });
}

TEST_CASE("topology: the call returns the text's length", "[process]") {
  run_ranks(2, [](Rank& rank) {
    Comm comm(rank);
    size_t bytes = 0;
    ok(ucclEpCommGetTopology(comm, nullptr, &bytes), "ucclEpCommGetTopology");
    std::string text(bytes, '#');
    size_t less = bytes - 1;
    refused(ucclEpCommGetTopology(comm, text.data(), &less), ucclEpInvalidArgument, "ucclEpCommGetTopology",
            {"*len is " + std::to_string(bytes - 1)});
    require(less == bytes && text == std::string(bytes, '#'), "a refused call wrote, or told no length");
    refused(ucclEpCommGetTopology(comm, text.data(), nullptr), ucclEpInvalidArgument, "ucclEpCommGetTopology", {"len"});
    refused(ucclEpCommGetTopology(nullptr, text.data(), &bytes), ucclEpInvalidArgument, "ucclEpCommGetTopology",
            {"comm"});
  });
}

// ---- Virtual nodes and domains ----

struct Division {
  std::function<void(int rank, ucclEpCommConfig_t&)> ask;
  const char *nodes, *domains;  // lists of ranks
};

void check_division(Rank& rank, const Division& division, int id) {
  ucclEpCommConfig_t config = comm_config(rank);
  division.ask(rank.rank, config);
  Comm comm(rank, config, id);
  const Json topology = topology_of(comm);
  const Json nodes = Json::parse(division.nodes);
  expect(topology["nodes"], nodes, "nodes");
  Json domains;
  for (const Json& domain : topology["domains"]) domains.push_back(domain["ranks"]);
  expect(domains, Json::parse(division.domains), "domains");
  const Json& own = topology["ranks"][static_cast<size_t>(rank.rank)];
  const ucclEpCommInfo_t info = info_of(comm);
  expect(info.node, own["node"], "node");
  expect(info.num_nodes, nodes.size(), "num_nodes");
  expect(info.domain_size, domains[own["domain"].get<size_t>()].size(), "domain_size");
  expect(info.proxy_threads, own["proxies"].size(), "proxy_threads");
  expect(info.transport, "loopback", "transport");  // all ranks are on one machine

  const ucclEpGroupConfig_t group_asked = group_config({Scenario{.ranks = rank.count}});
  ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
  const Group group = make_group(comm, group_asked);
  ok(ucclEpGroupQuery(comm, &group_asked, &limits), "ucclEpGroupQuery");
}

TEST_CASE("topology: virtual nodes and domains are as asked for", "[process][reduced][driver]") {
  const std::vector<Division> divisions{
      {[](int, ucclEpCommConfig_t& config) { config.ranks_per_node = 2; }, "[[0, 1], [2, 3]]", "[[0, 1], [2, 3]]"},
      {[](int rank, ucclEpCommConfig_t& config) { config.ranks_per_node = rank == 0 ? 1 : 3; }, "[[0], [1, 2, 3]]",
       "[[0], [1, 2, 3]]"},
      {[](int, ucclEpCommConfig_t& config) { config.ranks_per_domain = 2; }, "[[0, 1, 2, 3]]", "[[0, 1], [2, 3]]"},
      {[](int, ucclEpCommConfig_t& config) {
         config.ranks_per_node = 3;
         config.ranks_per_domain = 2;
       },
       "[[0, 1, 2], [3]]", "[[0, 1], [2], [3]]"}};
  run_ranks(4, {.communicators = static_cast<int>(divisions.size())}, [&](Rank& rank) {
    for (size_t i = 0; i < divisions.size(); ++i) check_division(rank, divisions[i], static_cast<int>(i));
  });
}

TEST_CASE("topology: a node or domain that holds all ranks divides nothing", "[process]") {
  const Scenario scenario{.ranks = 2};
  run_ranks(2, [&](Rank& rank) {
    ucclEpCommConfig_t config = comm_config(rank);
    config.ranks_per_node = 2;
    config.ranks_per_domain = 8;
    Comm comm(rank, config);
    require(info_of(comm).num_nodes == 1 && info_of(comm).domain_size == 2, "num_nodes or domain_size");
    Group group = make_group(comm, group_config({scenario}));
    Handle handle = make_handle(group, handle_config(scenario));
    Stream stream(comm);
    round_trip(rank, comm, handle, stream, scenario);
  });
}

TEST_CASE("topology: UCCLEP_NODES gives the sizes of virtual nodes", "[process]") {
  run_ranks(4, {.communicators = 3, .processes = true}, [](Rank& rank) {
    setenv("UCCLEP_NODES", "3,1", 1);
    {
      Comm comm(rank);
      expect(topology_of(comm)["nodes"], Json::parse("[[0, 1, 2], [3]]"), "nodes");
    }
    const auto refuse = [&](int id, const char* sizes, const std::vector<std::string>& words) {
      setenv("UCCLEP_NODES", sizes, 1);
      const ucclEpCommConfig_t config = comm_config(rank);
      ucclEpComm_t comm = nullptr;
      refused(ucclEpCommInitRank(&comm, 4, rank.ids[id], rank.rank, &config), ucclEpInvalidArgument,
              "ucclEpCommInitRank", words);
    };
    refuse(1, "3,2", {"the sizes of UCCLEP_NODES add up to 5 ranks, but the communicator has 4"});
    refuse(2, rank.rank == 2 ? "1,3" : "3,1", {"UCCLEP_NODES differs between ranks: rank 2 gave 1,3"});
  });
}

// ---- Names ----

struct Mistake {
  std::function<void(int rank, ucclEpCommConfig_t&)> ask;
  std::vector<std::string> words;
};

void check_mistakes(const std::vector<Mistake>& mistakes) {
  for (const Mistake& mistake : mistakes) {
    run_ranks(3, [&](Rank& rank) {
      ucclEpCommConfig_t config = comm_config(rank);
      mistake.ask(rank.rank, config);
      ucclEpComm_t comm = nullptr;
      refused(ucclEpCommInitRank(&comm, 3, rank.ids[0], rank.rank, &config), ucclEpInvalidArgument,
              "ucclEpCommInitRank", mistake.words);
      require(comm == nullptr, "the out-parameter was written");
    });
  }
}

TEST_CASE("topology: settings that do not fit together name the rank, on all ranks", "[process]") {
  check_mistakes({{[](int rank, ucclEpCommConfig_t& config) { config.ranks_per_node = rank == 1 ? 2 : 3; },
                   {"ranks_per_node of rank 1 is 2, but rank 0 of the same node gave 3"}},
                  {[](int rank, ucclEpCommConfig_t& config) { config.ranks_per_node = rank == 2 ? 0 : 2; },
                   {"ranks_per_node of rank 2 is 0"}},
                  {[](int rank, ucclEpCommConfig_t& config) { config.ranks_per_domain = rank == 1 ? 2 : 1; },
                   {"ranks_per_domain of rank 1 is 2"}},
                  {[](int rank, ucclEpCommConfig_t& config) { config.ranks_per_node = rank == 2 ? -1 : 0; },
                   {"rank 2", "config.ranks_per_node is -1"}}});
}

TEST_CASE("topology: a NIC that is not there is refused with those that are", "[process]") {
  check_mistakes({{[](int rank, ucclEpCommConfig_t& config) { config.nics = rank == 1 ? "nosuch0" : nullptr; },
                   {"rank 1: config.nics: the NIC nosuch0 does not exist on ", ", which has "}},
                  {[](int rank, ucclEpCommConfig_t& config) { config.nics = rank == 2 ? "a,,b" : nullptr; },
                   {"rank 2: config.nics is \"a,,b\", expected names separated by commas"}},
                  {[](int rank, ucclEpCommConfig_t& config) { config.nics = rank == 0 ? "" : nullptr; },
                   {"rank 0: config.nics is \"\""}}});
}

TEST_CASE("topology: a NIC by name is the one that the rank uses", "[process]") {
  run_ranks(2, {.communicators = 2}, [](Rank& rank) {
    std::string name;
    {
      Comm comm(rank);
      const Json topology = topology_of(comm);
      const Json& nics = topology["machines"][0]["nics"];
      if (!nics.empty()) name = nics.back()["name"];
    }
    ucclEpCommConfig_t config = comm_config(rank);
    if (!name.empty()) config.nics = name.c_str();  // a container may have none
    Comm comm(rank, config, 1);
    expect(info_of(comm).nics, name, "nics");
  });
}

TEST_CASE("topology: a transport that is not there is refused with those that are", "[process]") {
  check_mistakes(
      {{[](int rank, ucclEpCommConfig_t& config) { config.transport = rank == 1 ? "nosuch" : nullptr; },
        {"rank 1: config.transport: the transport 'nosuch' does not exist", "faulty, loopback, ofi, verbs",
         "libucclep_transport_nosuch.so"}},
       {[](int, ucclEpCommConfig_t& config) { config.transport = "../x"; },
        {"config.transport: '../x' is not the name of a transport", "faulty, loopback, ofi, verbs"}},
       {[](int, ucclEpCommConfig_t& config) { config.transport = "loopback:eth0"; }, {"config.transport", "argument"}},
       {[](int rank, ucclEpCommConfig_t& config) { config.transport = rank == 2 ? "loopback" : nullptr; },
        {"transport differs between ranks: rank 2 gave loopback, ranks 0 and 1 gave nothing"}}});
}

TEST_CASE("topology: variables win over the config, and are named", "[process]") {
  run_ranks(2, {.communicators = 3, .processes = true}, [](Rank& rank) {
    ucclEpCommConfig_t config = comm_config(rank);
    config.nics = "nosuch0";
    config.transport = "nosuch";
    const auto refuse = [&](int id, const std::vector<std::string>& words) {
      ucclEpComm_t comm = nullptr;
      refused(ucclEpCommInitRank(&comm, 2, rank.ids[id], rank.rank, &config), ucclEpInvalidArgument,
              "ucclEpCommInitRank", words);
    };
    setenv("UCCLEP_TRANSPORT", "none_either", 1);
    refuse(0, {"UCCLEP_TRANSPORT: the transport 'none_either' does not exist"});
    setenv("UCCLEP_TRANSPORT", "faulty:seed=1:loopback", 1);
    setenv("UCCLEP_NICS", "nosuch1", 1);
    refuse(1, {"UCCLEP_NICS: the NIC nosuch1 does not exist"});
    config.nics = nullptr;
    config.ranks_per_node = 1;
    unsetenv("UCCLEP_NICS");
    Comm comm(rank, config, 2);
    expect(info_of(comm).transport, "faulty:seed=1:loopback", "transport");
  });
}

TEST_CASE("topology: a transport may be a plugin's", "[process][plugin]") {
  const char* plugin = std::getenv("UCCLEP_TEST_PLUGIN");
  if (plugin == nullptr) return skip_case("UCCLEP_TEST_PLUGIN names no plugin");
  run_ranks(2, [&](Rank& rank) {
    ucclEpCommConfig_t config = comm_config(rank);
    config.transport = plugin;
    config.ranks_per_node = 1;
    Comm comm(rank, config);
    expect(info_of(comm).transport, plugin, "transport");
  });
}

// ---- Topology files ----

std::string saved(const std::string& name) {
  return UCCLEP_TEST_TOPOLOGIES "/" + name + ".xml";
}

TEST_CASE("topology: nodes of two kinds, from files", "[process]") {
  if (!std::filesystem::exists(saved("p5en"))) return skip_case("the source tree is not here");
  run_ranks(4, {.processes = true}, [](Rank& rank) {
    setenv("UCCLEP_TOPO_FILE", saved(rank.rank < 2 ? "p5en" : "h100-cx7").c_str(), 1);
    setenv("UCCLEP_DEVICE", "host", 1);
    ucclEpCommConfig_t config = comm_config(rank);
    config.ranks_per_node = 2;
    config.proxy_threads = 1;
    config.nics = rank.rank < 2 ? "rdmap86s0-rdm,rdmap85s0" : "ibp24s0";
    Comm comm(rank, config);
    const Json topology = topology_of(comm);
    const Json& machines = topology["machines"];
    require(machines.size() == 2, "the number of machines");
    expect(machines[0]["name"], "p5en.48xlarge", "the first machine's name");
    expect(machines[1]["name"], "dgx-h100", "the second machine's name");
    expect(machines[0]["gpus"].size(), 8, "GPUs");
    expect(machines[1]["nics"].size(), 9, "NICs");
    expect(machines[0]["ranks"], Json::parse("[0, 1]"), "the first machine's ranks");
    expect(machines[1]["ranks"], Json::parse("[2, 3]"), "the second machine's ranks");
    // They have one boot id, and with it one list of NICs.
    expect(machines[1]["rails"], Json::parse(R"(["rdmap86s0", "rdmap85s0", "mlx5_0"])"), "rails");
    const char* const expected[] = {"rdmap86s0", "rdmap85s0", "mlx5_0", "mlx5_0"};
    for (int other = 0; other < 4; ++other) expect(nics_of(topology, other), expected[other], "NICs of a rank");
    expect(info_of(comm).nics, nics_of(topology, rank.rank), "nics");
    expect(topology["ranks"][2]["machine"], 1, "a rank's machine");
    expect(topology["ranks"][2]["gpu"], nullptr, "a rank's GPU");
    expect(topology["ranks"][3]["proxies"].size(), 1, "proxies");
  });
}

TEST_CASE("topology: a file that is not there or no topology is refused", "[process]") {
  run_ranks(2, {.communicators = 2, .processes = true}, [](Rank& rank) {
    const auto refuse = [&](int id, const char* file, const std::vector<std::string>& words) {
      setenv("UCCLEP_TOPO_FILE", file, 1);
      const ucclEpCommConfig_t config = comm_config(rank);
      ucclEpComm_t comm = nullptr;
      refused(ucclEpCommInitRank(&comm, 2, rank.ids[id], rank.rank, &config), ucclEpInvalidArgument,
              "ucclEpCommInitRank", words);
    };
    refuse(0, "/no/such/file.xml", {"UCCLEP_TOPO_FILE: cannot read the topology file /no/such/file.xml"});
    refuse(1, "/proc/self/cmdline", {"UCCLEP_TOPO_FILE: the topology file /proc/self/cmdline is not XML"});
  });
}

}  // namespace
}  // namespace ucclep::test

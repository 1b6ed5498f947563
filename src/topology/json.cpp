// SPDX-License-Identifier: Apache-2.0
#include "topology/json.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace ucclep::topology {
namespace {

using Json = nlohmann::ordered_json;

PciAddress address_from(const Json& json) {
  const std::string text = json.get<std::string>();
  const auto address = PciAddress::parse(text);
  if (!address) fail(ucclEpInternalError, "a rank's topology has the PCI address {}, which cannot be parsed", text);
  return *address;
}

void add_place(const PciPlace& place, Json& json) {
  json["pci"] = place.address.text();
  json["numa"] = place.numa;
  json["host_bridge"] = place.host_bridge;
  json["bridges"] = Json::array();
  for (const PciAddress& bridge : place.bridges) json["bridges"].push_back(bridge.text());
}

PciPlace place_from(const Json& json) {
  PciPlace place{address_from(json.at("pci")), json.at("numa"), json.at("host_bridge"), {}};
  for (const Json& bridge : json.at("bridges")) place.bridges.push_back(address_from(bridge));
  return place;
}

Json gpu_json(const Gpu& gpu) {
  Json json = {{"vendor", gpu.vendor}, {"model", gpu.model}};
  add_place(gpu.place, json);
  json["links"] = {{"kind", gpu.links.kind}, {"island", gpu.links.island}, {"fabric", gpu.links.fabric}};
  return json;
}

Gpu gpu_from(const Json& json) {
  const Json& links = json.at("links");
  return {place_from(json),
          json.at("vendor"),
          json.at("model"),
          {links.at("kind"), links.at("island"), links.at("fabric")}};
}

Json nic_json(const Nic& nic) {
  Json json = {{"name", nic.name},
               {"interfaces", nic.interfaces},
               {"rdma", nic.rdma},
               {"up", nic.up},
               {"gigabits", nic.gigabits}};
  add_place(nic.place, json);
  return json;
}

Nic nic_from(const Json& json) {
  return {place_from(json), json.at("name"), json.at("interfaces"),
          json.at("rdma"),  json.at("up"),   json.at("gigabits")};
}

Json machine_json(const Machine& machine) {
  Json json = {{"name", machine.name}, {"numa_nodes", Json::array()}, {"gpus", Json::array()}, {"nics", Json::array()}};
  for (const NumaNode& node : machine.numa_nodes) {
    json["numa_nodes"].push_back({{"number", node.number}, {"cores", node.cores}});
  }
  for (const Gpu& gpu : machine.gpus) json["gpus"].push_back(gpu_json(gpu));
  for (const Nic& nic : machine.nics) json["nics"].push_back(nic_json(nic));
  return json;
}

// Names may hold any bytes; JSON holds UTF-8 only.
std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Of what lies beyond the range of an int nothing here can be, and reading it as one means nothing.
bool is_sane(int, Json::parse_event_t event, const Json& value) {
  if (event != Json::parse_event_t::value || !value.is_number_float()) return true;
  if (std::abs(value.get<double>()) < 0x1p31) return true;
  fail(ucclEpInternalError, "a rank's topology has the number {}, which is out of range", value.dump());
}

template <class Read>
auto parse(const std::string& text, Read&& read) {
  try {
    return read(Json::parse(text, is_sane));
  } catch (const Json::exception& error) {
    fail(ucclEpInternalError, "cannot parse a rank's topology: {}", error.what());
  }
}

// Ranks in containers may see different parts of one machine: those that see the same.
std::vector<std::vector<int>> group_by_view(const std::vector<RankFacts>& ranks, const std::vector<int>& members) {
  std::vector<std::vector<int>> groups;
  const auto view = [&](int rank) -> const Machine& { return *ranks[static_cast<size_t>(rank)].machine; };
  for (const int rank : members) {
    const auto same = std::ranges::find_if(groups, [&](const auto& group) {
      return &view(group.front()) == &view(rank) || view(group.front()) == view(rank);
    });
    if (same != groups.end()) {
      same->push_back(rank);
    } else {
      groups.push_back({rank});
    }
  }
  return groups;
}

Json rank_json(const RankFacts& facts, const RankPlan& plan, size_t machine) {
  Json json = {{"machine", machine},
               {"node", plan.node},
               {"local_rank", plan.local_rank},
               {"domain", plan.domain},
               {"gpu", Json()}};
  if (facts.gpu >= 0) json["gpu"] = facts.gpu;
  json["nics"] = Json::array();
  for (const NicUse& use : plan.nics) {
    const Nic& nic = facts.machine->nics[static_cast<size_t>(use.nic)];
    json["nics"].push_back({{"name", nic.name}, {"rail", use.rail}, {"path", name(use.path)}});
  }
  json["proxies"] = Json::array();
  for (const Proxy& proxy : plan.proxies) {
    Json nics = Json::array();
    for (const int index : proxy.nics) nics.push_back(json["nics"][static_cast<size_t>(index)]["name"]);
    json["proxies"].push_back({{"cpu", proxy.cpu}, {"nics", nics}});
  }
  return json;
}

}  // namespace

std::string pack(const Machine& machine) {
  return dump(machine_json(machine));
}

Machine parse_machine(const std::string& text) {
  return parse(text, [](const Json& json) {
    Machine machine;
    machine.name = json.at("name");
    for (const Json& node : json.at("numa_nodes")) machine.numa_nodes.push_back({node.at("number"), node.at("cores")});
    for (const Json& gpu : json.at("gpus")) machine.gpus.push_back(gpu_from(gpu));
    for (const Json& nic : json.at("nics")) machine.nics.push_back(nic_from(nic));
    return machine;
  });
}

std::string pack(const RankFacts& facts) {
  const Json json = {{"gpu", facts.gpu},
                     {"nics", facts.nics},
                     {"ranks_per_node", facts.ranks_per_node},
                     {"ranks_per_domain", facts.ranks_per_domain},
                     {"proxy_threads", facts.proxy_threads},
                     {"whole_bytes", facts.whole_bytes}};
  return dump(json);
}

RankFacts parse_facts(const std::string& text) {
  return parse(text, [](const Json& json) {
    RankFacts facts;
    facts.gpu = json.at("gpu");
    facts.nics = json.at("nics");
    facts.ranks_per_node = json.at("ranks_per_node");
    facts.ranks_per_domain = json.at("ranks_per_domain");
    facts.proxy_threads = json.at("proxy_threads");
    facts.whole_bytes = json.at("whole_bytes");
    return facts;
  });
}

std::string to_json(const std::vector<RankFacts>& ranks, const Plan& plan) {
  Json json = {{"version", 1}};
  std::vector<size_t> machine_of_rank(ranks.size());
  for (const MachinePlan& machine : plan.machines) {
    for (const std::vector<int>& seers : group_by_view(ranks, machine.ranks)) {
      for (const int rank : seers) machine_of_rank[static_cast<size_t>(rank)] = json["machines"].size();
      Json facts = machine_json(*ranks[static_cast<size_t>(seers.front())].machine);
      facts["ranks"] = seers;
      facts["rails"] = machine.rails;
      json["machines"].push_back(facts);
    }
  }
  json["nodes"] = plan.nodes;
  for (const Domain& domain : plan.domains) {
    json["domains"].push_back({{"kind", domain.kind}, {"ranks", domain.ranks}, {"whole_bytes", domain.whole_bytes}});
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    json["ranks"].push_back(rank_json(ranks[rank], plan.ranks[rank], machine_of_rank[rank]));
  }
  return dump(json, 2);
}

}  // namespace ucclep::topology

// SPDX-License-Identifier: Apache-2.0
#include "topology/text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "topology/words.hpp"

namespace ucclep::topology {
namespace {

std::string nic_text(const Nic& nic, const std::vector<std::string>& rails) {
  std::string text =
      fmt::format("{:<12} NIC  {:<12}", nic.place.host_bridge < 0 ? "-" : nic.place.address.text(), nic.name);
  if (nic.gigabits > 0) text += fmt::format("  {:g} Gb/s", nic.gigabits);
  if (!nic.rdma) text += "  no RDMA";
  if (!nic.up) text += "  down";
  const auto rail = std::ranges::find(rails, nic.name);
  return text + (rail == rails.end() ? "  not used" : fmt::format("  rail {}", rail - rails.begin()));
}

std::string device_lines(const Machine& machine, int numa, const std::vector<std::string>& rails) {
  std::string text;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const Gpu& gpu = machine.gpus[i];
    if (gpu.place.numa != numa) continue;
    text += fmt::format("    {:<12} GPU  {}: {}, {}\n", gpu.place.address.text(), i, gpu.model, links_text(gpu.links));
  }
  for (const Nic& nic : machine.nics) {
    if (nic.place.numa == numa) text += fmt::format("    {}\n", nic_text(nic, rails));
  }
  return text;
}

std::string machine_text(size_t number, const Machine& machine, const MachinePlan& plan) {
  std::string text =
      fmt::format("machine {}: {}, {}, {}, {}\n", number, machine.name, plural(machine.numa_nodes.size(), "NUMA node"),
                  plural(machine.gpus.size(), "GPU"), plural(machine.nics.size(), "NIC"));
  for (size_t i = 0; i < machine.numa_nodes.size(); ++i) {
    const NumaNode& node = machine.numa_nodes[i];
    std::vector<int> cpus;
    for (const std::vector<int>& core : node.cores) cpus.insert(cpus.end(), core.begin(), core.end());
    text += fmt::format("  NUMA node {}: {}, CPUs {}\n", node.number, plural(node.cores.size(), "core"), ranges(cpus));
    text += device_lines(machine, static_cast<int>(i), plan.rails);
  }
  const std::string elsewhere = device_lines(machine, -1, plan.rails);
  return elsewhere.empty() ? text : text + "  near no NUMA node in particular\n" + elsewhere;
}

std::string cpus_text(const RankPlan& plan) {
  std::vector<int> cpus;
  cpus.reserve(plan.proxies.size());
  for (const Proxy& proxy : plan.proxies) cpus.push_back(proxy.cpu);
  return ranges(cpus);
}

std::string rank_line(size_t rank, const RankFacts& facts, const RankPlan& plan) {
  std::vector<std::string> nics;
  Path farthest = Path::pcie_switch;
  for (const NicUse& use : plan.nics) {
    nics.push_back(facts.machine->nics[static_cast<size_t>(use.nic)].name);
    farthest = std::max(farthest, use.path);
  }
  return fmt::format("{:>5} {:>5} {:>7} {:>4}  {:<12} {:<12} {}\n", rank, plan.node, plan.domain,
                     facts.gpu < 0 ? "-" : std::to_string(facts.gpu), cpus_text(plan),
                     nics.empty() ? "-" : name(farthest), nics.empty() ? "-" : join(nics, " "));
}

}  // namespace

std::string links_text(const GpuLinks& links) {
  if (links.kind.empty()) return "no links";
  const std::string kind = links.kind == "nvlink" ? "NVLink" : links.kind == "xgmi" ? "xGMI" : links.kind;
  return links.fabric.empty() ? fmt::format("{} island {}", kind, links.island)
                              : fmt::format("{} fabric {}", kind, links.fabric);
}

std::string place_text(const std::vector<RankFacts>& ranks, const Plan& plan, int rank) {
  const RankFacts& facts = ranks[static_cast<size_t>(rank)];
  const RankPlan& own = plan.ranks[static_cast<size_t>(rank)];
  const Domain& domain = plan.domains[static_cast<size_t>(own.domain)];
  std::vector<std::string> nics;
  for (const NicUse& use : own.nics) {
    const std::string& nic = facts.machine->nics[static_cast<size_t>(use.nic)].name;
    nics.push_back(fmt::format("{} (rail {}, same {})", nic, use.rail, name(use.path)));
  }
  const std::string gpu =
      facts.gpu < 0 ? "no GPU" : "GPU " + facts.machine->gpus[static_cast<size_t>(facts.gpu)].place.address.text();
  return fmt::format("node {} of {}, domain {} of {} (ranks {}, {}), {}, {}, proxies on {}", own.node,
                     plan.nodes.size(), own.domain, plan.domains.size(), ranges(domain.ranks), domain.kind, gpu,
                     nics.empty() ? "no NIC" : join(nics, ", "), cpus_text(own));
}

std::string to_text(const std::vector<RankFacts>& ranks, const Plan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.machines.size(); ++i) {
    const MachinePlan& machine = plan.machines[i];
    text += machine_text(i, *ranks[static_cast<size_t>(machine.ranks.front())].machine, machine);
  }
  text += fmt::format("plan: {} on {}\n", plural(ranks.size(), "rank"), plural(plan.nodes.size(), "node"));
  for (size_t i = 0; i < plan.domains.size(); ++i) {
    const Domain& domain = plan.domains[i];
    text +=
        fmt::format("  domain {}: {} {} ({}, stores of {} bytes arrive whole)\n", i,
                    domain.ranks.size() == 1 ? "rank" : "ranks", ranges(domain.ranks), domain.kind, domain.whole_bytes);
  }
  text += fmt::format("{:>5} {:>5} {:>7} {:>4}  {:<12} {:<12} {}\n", "rank", "node", "domain", "GPU", "proxies on",
                      "path", "NICs");
  for (size_t rank = 0; rank < ranks.size(); ++rank) text += rank_line(rank, ranks[rank], plan.ranks[rank]);
  return text;
}

}  // namespace ucclep::topology

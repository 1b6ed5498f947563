// SPDX-License-Identifier: Apache-2.0
#include "topology/svg_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "topology/words.hpp"

namespace ucclep::topology {
namespace {

constexpr double margin = 16, padding = 14, gap = 14;
constexpr double title_height = 34, links_height = 40, numa_footer = 60;
constexpr double endpoint_width = 142, endpoint_height = 70, arrows_height = 46;
constexpr double nic_width = 102, nic_height = 34, nic_gap = 5, lane = 5;
constexpr double min_numa_width = 270, letter_of_title = 9;

const RankFacts& of(const std::vector<RankFacts>& ranks, int rank) {
  return ranks[static_cast<size_t>(rank)];
}

int numa_of_cpu(const Machine& machine, int cpu) {
  for (size_t i = 0; i < machine.numa_nodes.size(); ++i) {
    for (const std::vector<int>& core : machine.numa_nodes[i].cores) {
      if (std::ranges::find(core, cpu) != core.end()) return static_cast<int>(i);
    }
  }
  return -1;
}

std::vector<Endpoint> endpoints_of(const std::vector<RankFacts>& ranks, const Plan& plan, const MachinePlan& members) {
  const Machine& machine = *of(ranks, members.ranks.front()).machine;
  std::vector<Endpoint> endpoints;
  for (size_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    Endpoint endpoint{static_cast<int>(gpu), {}, machine.gpus[gpu].place.numa, {}};
    for (const int rank : members.ranks) {
      if (of(ranks, rank).gpu == endpoint.gpu) endpoint.ranks.push_back(rank);
    }
    endpoints.push_back(endpoint);
  }
  for (const int rank : members.ranks) {
    if (of(ranks, rank).gpu >= 0) continue;
    const int cpu = plan.ranks[static_cast<size_t>(rank)].proxies.front().cpu;
    endpoints.push_back({-1, {rank}, numa_of_cpu(machine, cpu), {}});
  }
  return endpoints;
}

std::vector<NicStack> stacks_of(const Machine& machine, const Plan& plan, const std::vector<Endpoint>& endpoints) {
  std::map<int, std::vector<int>> users;  // of each NIC
  for (size_t i = 0; i < endpoints.size(); ++i) {
    for (const int rank : endpoints[i].ranks) {
      for (const NicUse& use : plan.ranks[static_cast<size_t>(rank)].nics) {
        std::vector<int>& known = users[use.nic];
        if (known.empty() || known.back() != static_cast<int>(i)) known.push_back(static_cast<int>(i));
      }
    }
  }
  std::map<std::pair<int, std::vector<int>>, NicStack> stacks;
  for (size_t nic = 0; nic < machine.nics.size(); ++nic) {
    const int numa = machine.nics[nic].place.numa;
    const std::vector<int>& mine = users[static_cast<int>(nic)];
    NicStack& stack = stacks[{numa, mine}];
    stack.numa = numa;
    stack.endpoints = mine;
    stack.nics.push_back(static_cast<int>(nic));
  }
  std::vector<NicStack> list;
  list.reserve(stacks.size());
  for (const auto& [key, stack] : stacks) list.push_back(stack);
  return list;
}

// The mean of its users in this NUMA node; infinity when there is none.
double wanted_centre(const NicStack& stack, const std::vector<Endpoint>& endpoints) {
  double sum = 0;
  int count = 0;
  for (const int user : stack.endpoints) {
    const Endpoint& endpoint = endpoints[static_cast<size_t>(user)];
    if (endpoint.numa != stack.numa) continue;
    sum += endpoint.box.centre();
    ++count;
  }
  return count > 0 ? sum / count : std::numeric_limits<double>::infinity();
}

// Lanes for the arrows stand left of a stack with several NICs.
double lanes_of(const NicStack& stack) {
  return stack.nics.size() > 1 ? lane * static_cast<double>(stack.nics.size() + 1) : 0;
}

std::string title_of(const Plan& plan, const MachinePlan& members, const Machine& machine) {
  std::vector<int> nodes;
  nodes.reserve(members.ranks.size());
  for (const int rank : members.ranks) nodes.push_back(plan.ranks[static_cast<size_t>(rank)].node);
  return fmt::format("{}: {} {}, {} {}", machine.name, nodes.front() == nodes.back() ? "node" : "nodes", ranges(nodes),
                     members.ranks.size() == 1 ? "rank" : "ranks", ranges(members.ranks));
}

Box lay_out_numa(int numa, double left, double top, MachineLayout& layout) {
  const double inner = left + padding;
  double x = inner;
  for (Endpoint& endpoint : layout.endpoints) {
    if (endpoint.numa != numa) continue;
    endpoint.box = {x, top + padding, endpoint_width, endpoint_height};
    x += endpoint_width + gap;
  }
  std::vector<std::pair<double, NicStack*>> order;
  for (NicStack& stack : layout.stacks) {
    if (stack.numa == numa) order.emplace_back(wanted_centre(stack, layout.endpoints), &stack);
  }
  std::ranges::sort(order, {}, [](const auto& each) { return std::pair(each.first, each.second->nics.front()); });
  double next = inner, lowest = top + padding + endpoint_height;
  for (const auto& [centre, stack] : order) {
    const double stack_x = std::max(std::isinf(centre) ? 0 : centre - nic_width / 2, next + lanes_of(*stack));
    double y = top + padding + endpoint_height + arrows_height;
    for (size_t i = 0; i < stack->nics.size(); ++i) {
      stack->boxes.push_back({stack_x, y, nic_width, nic_height});
      y += nic_height + nic_gap;
    }
    lowest = std::max(lowest, y - nic_gap);
    next = stack_x + nic_width + gap;
  }
  const double width = std::max(min_numa_width, std::max(x, next) - gap + padding - left);
  return {left, top, width, lowest + numa_footer - top};
}

}  // namespace

MachineLayout lay_out(const std::vector<RankFacts>& ranks, const Plan& plan, const MachinePlan& machine, double top) {
  const Machine& facts = *of(ranks, machine.ranks.front()).machine;
  MachineLayout layout;
  layout.endpoints = endpoints_of(ranks, plan, machine);
  layout.stacks = stacks_of(facts, plan, layout.endpoints);
  layout.title = title_of(plan, machine, facts);
  layout.links_top = top + title_height;
  const bool linked = std::ranges::any_of(facts.gpus, [](const Gpu& gpu) { return !gpu.links.kind.empty(); });
  const double numa_top = layout.links_top + (linked ? links_height : 0);
  double x = margin + padding, bottom = numa_top;
  const auto add = [&](int numa) {
    layout.numa_boxes.push_back(lay_out_numa(numa, x, numa_top, layout));
    x = layout.numa_boxes.back().right() + gap;
    bottom = std::max(bottom, layout.numa_boxes.back().bottom());
  };
  for (size_t numa = 0; numa < facts.numa_nodes.size(); ++numa) add(static_cast<int>(numa));
  const auto nowhere = [](const auto& each) { return each.numa < 0; };
  if (std::ranges::any_of(layout.endpoints, nowhere) || std::ranges::any_of(layout.stacks, nowhere)) add(-1);
  for (Box& numa : layout.numa_boxes) numa.height = bottom - numa.y;
  const double title_width = 2 * padding + letter_of_title * static_cast<double>(layout.title.size());
  layout.box = {margin, top, std::max(x - gap + padding - margin, title_width), bottom + padding - top};
  return layout;
}

}  // namespace ucclep::topology

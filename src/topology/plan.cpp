// SPDX-License-Identifier: Apache-2.0
#include "topology/plan.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "topology/nic_deal.hpp"
#include "topology/nic_list.hpp"
#include "topology/nodes.hpp"
#include "topology/proxies.hpp"

namespace ucclep::topology {
namespace {

// More than any machine has use for, and few enough for every rank to plan those of all.
constexpr int max_proxy_threads = 256;

void check(const std::vector<RankFacts>& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankFacts& facts = ranks[rank];
    if (facts.machine == nullptr) fail(ucclEpInternalError, "rank {} sent no topology of its machine", rank);
    const auto gpus = static_cast<int>(facts.machine->gpus.size());
    if (facts.gpu < -1 || facts.gpu >= gpus) {
      fail(ucclEpInvalidArgument, "rank {}: GPU {} does not exist, {} has {} GPUs", rank, facts.gpu,
           facts.machine->name, gpus);
    }
    for (auto [field, value] : {std::pair{"ranks_per_node", facts.ranks_per_node},
                                {"ranks_per_domain", facts.ranks_per_domain},
                                {"proxy_threads", facts.proxy_threads}}) {
      if (value < 0) fail(ucclEpInvalidArgument, "{} of rank {} is {}, expected 0 or more", field, rank, value);
    }
    if (facts.proxy_threads > max_proxy_threads) {
      fail(ucclEpInvalidArgument, "proxy_threads of rank {} is {}, expected at most {}", rank, facts.proxy_threads,
           max_proxy_threads);
    }
  }
}

std::vector<int> allowed_nics(const RankFacts& facts, int rank) {
  if (facts.nics.empty()) return best_nics(*facts.machine);
  return nics_by_name(*facts.machine, facts.nics, fmt::format("UCCLEP_NICS of rank {}", rank));
}

// A rail is the place in the list that the user gave, or in the machine's. Ranks with lists of their own add what is
// new.
std::vector<std::string> rails_of(const std::vector<Seat>& seats) {
  std::vector<std::string> rails;
  for (const Seat& seat : seats) {
    for (const int index : seat.nics) {
      const std::string& nic = seat.machine->nics[static_cast<size_t>(index)].name;
      if (std::ranges::find(rails, nic) == rails.end()) rails.push_back(nic);
    }
  }
  return rails;
}

std::vector<NicUse> uses_of(const Seat& seat, const std::vector<int>& dealt, const std::vector<std::string>& rails) {
  std::vector<NicUse> uses;
  for (const int index : dealt) {
    const Nic& nic = seat.machine->nics[static_cast<size_t>(index)];
    const auto rail = static_cast<int>(std::ranges::find(rails, nic.name) - rails.begin());
    uses.push_back({index, rail, distance_to(seat, index).path});
  }
  std::ranges::sort(uses, {}, &NicUse::rail);
  return uses;
}

MachinePlan plan_machine(const std::vector<RankFacts>& ranks, const std::vector<int>& members, Plan& plan) {
  std::vector<Seat> seats;
  seats.reserve(members.size());
  for (const int rank : members) {
    seats.push_back(
        {facts_of(ranks, rank).machine.get(), facts_of(ranks, rank).gpu, allowed_nics(facts_of(ranks, rank), rank)});
  }
  MachinePlan machine{members, rails_of(seats)};
  const std::vector<std::vector<int>> dealt = deal_nics(seats);
  ProxyPlanner proxies(members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    RankPlan& rank = plan.ranks[static_cast<size_t>(members[i])];
    rank.nics = uses_of(seats[i], dealt[i], machine.rails);
    rank.proxies = proxies.plan(facts_of(ranks, members[i]), rank.nics);
  }
  return machine;
}

}  // namespace

Plan make_plan(const std::vector<RankFacts>& ranks, const std::vector<int>& node_sizes) {
  check(ranks);
  const bool virtual_nodes = !node_sizes.empty() || (!ranks.empty() && ranks.front().ranks_per_node > 0);
  Plan plan;
  plan.ranks.resize(ranks.size());
  plan.nodes = group_by_node(ranks, node_sizes);
  plan.domains = group_by_domain(ranks, plan.nodes, virtual_nodes);
  for (size_t node = 0; node < plan.nodes.size(); ++node) {
    for (size_t i = 0; i < plan.nodes[node].size(); ++i) {
      RankPlan& rank = plan.ranks[static_cast<size_t>(plan.nodes[node][i])];
      rank.node = static_cast<int>(node);
      rank.local_rank = static_cast<int>(i);
    }
  }
  for (size_t domain = 0; domain < plan.domains.size(); ++domain) {
    for (const int rank : plan.domains[domain].ranks)
      plan.ranks[static_cast<size_t>(rank)].domain = static_cast<int>(domain);
  }
  for (const std::vector<int>& members : group_by_machine(ranks))
    plan.machines.push_back(plan_machine(ranks, members, plan));
  return plan;
}

std::vector<std::pair<int, int>> connections(const Plan& plan, int a, int b) {
  const auto& x = plan.ranks.at(static_cast<size_t>(a)).nics;
  const auto& y = plan.ranks.at(static_cast<size_t>(b)).nics;
  std::vector<std::pair<int, int>> pairs;
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < y.size(); ++j) {
      if (x[i].rail == y[j].rail) pairs.emplace_back(i, j);
    }
  }
  if (!pairs.empty() || x.empty() || y.empty()) return pairs;
  for (size_t i = 0; i < std::max(x.size(), y.size()); ++i) pairs.emplace_back(i % x.size(), i % y.size());
  return pairs;
}

}  // namespace ucclep::topology

// SPDX-License-Identifier: Apache-2.0
#include "topology/nodes.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "device/whole_stores.hpp"

namespace ucclep::topology {
namespace {

// Groups of ranks with the same key, in the order of their first ones.
template <class KeyOf>
std::vector<std::vector<int>> group_by(const std::vector<RankFacts>& ranks, KeyOf key_of) {
  std::vector<std::vector<int>> groups;
  std::map<decltype(key_of(0)), size_t> index;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const auto [found, is_new] = index.try_emplace(key_of(rank), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(rank);
  }
  return groups;
}

// A virtual node passes memory on as a real one does.
void check_one_node(const std::vector<RankFacts>& ranks, const std::vector<int>& members) {
  for (const int rank : members) {
    if (facts_of(ranks, rank).node == facts_of(ranks, members.front()).node) continue;
    fail(ucclEpInvalidArgument,
         "ranks {} and {} would be in one virtual node, but do not share a machine and its memory: choose other sizes "
         "of nodes",
         members.front(), rank);
  }
}

std::vector<std::vector<int>> nodes_of_sizes(const std::vector<RankFacts>& ranks,
                                             const std::vector<int>& size_of_rank) {
  std::vector<std::vector<int>> nodes;
  const auto count = static_cast<int>(ranks.size());
  for (int first = 0; first < count;) {
    const int size = size_of_rank[static_cast<size_t>(first)];
    std::vector<int>& members = nodes.emplace_back();
    for (int rank = first; rank < count && rank - first < size; ++rank) {
      const int own = size_of_rank[static_cast<size_t>(rank)];
      if (own != size) {
        fail(ucclEpInvalidArgument, "ranks_per_node of rank {} is {}, but rank {} of the same node gave {}", rank, own,
             first, size);
      }
      members.push_back(rank);
    }
    check_one_node(ranks, members);
    first += static_cast<int>(members.size());
  }
  return nodes;
}

std::vector<int> expand(const std::vector<int>& node_sizes, size_t ranks) {
  int64_t sum = 0;
  for (const int size : node_sizes) {
    if (size < 1) fail(ucclEpInvalidArgument, "a node has {} ranks, expected at least 1", size);
    sum += size;
  }
  if (sum != static_cast<int64_t>(ranks)) {
    fail(ucclEpInvalidArgument, "the sizes of UCCLEP_NODES add up to {} ranks, but the communicator has {}", sum,
         ranks);
  }
  std::vector<int> size_of_rank;
  for (const int size : node_sizes) size_of_rank.insert(size_of_rank.end(), static_cast<size_t>(size), size);
  return size_of_rank;
}

const Gpu* gpu_of(const RankFacts& facts) {
  return facts.gpu < 0 ? nullptr : &facts.machine->gpus[static_cast<size_t>(facts.gpu)];
}

bool linked(const RankFacts& a, const RankFacts& b) {
  const GpuLinks &x = gpu_of(a)->links, &y = gpu_of(b)->links;
  if (x.kind.empty() || x.kind != y.kind) return false;
  return (!x.fabric.empty() && x.fabric == y.fabric) || (a.node.boot_id == b.node.boot_id && x.island == y.island);
}

std::string kind_of(const std::vector<RankFacts>& ranks, const std::vector<int>& members) {
  const RankFacts& first = facts_of(ranks, members.front());
  const auto all = [&](auto condition) {
    return std::ranges::all_of(members, [&](int r) { return condition(facts_of(ranks, r)); });
  };
  if (!all([](const RankFacts& facts) { return gpu_of(facts) != nullptr; })) return "memory";
  return all([&](const RankFacts& facts) { return linked(first, facts); }) ? gpu_of(first)->links.kind : "pcie";
}

bool on_one_gpu(const std::vector<RankFacts>& ranks, const std::vector<int>& members) {
  const auto place = [&](int rank) {
    const RankFacts& facts = facts_of(ranks, rank);
    return std::pair(facts.node.boot_id, gpu_of(facts)->place.address);
  };
  return std::ranges::all_of(members, [&](int rank) { return place(rank) == place(members.front()); });
}

// Of the slowest way between two members, of which kind_of says the kind.
unsigned whole_bytes_of(const std::vector<RankFacts>& ranks, const std::vector<int>& members, const std::string& kind) {
  const bool linked = kind != "memory" && (kind != "pcie" || on_one_gpu(ranks, members));
  const auto of_rank = [&](int rank) {
    const Gpu* gpu = gpu_of(facts_of(ranks, rank));
    if (gpu == nullptr) return facts_of(ranks, rank).whole_bytes;
    const WholeStores stores = whole_stores_of(gpu->vendor);
    return linked ? stores.linked : stores.over_pcie;
  };
  return of_rank(std::ranges::min(members, {}, of_rank));
}

// The fabric that all GPUs of a node belong to; empty if there is none.
std::string fabric_of(const std::vector<RankFacts>& ranks, const std::vector<int>& node) {
  const Gpu* first = gpu_of(facts_of(ranks, node.front()));
  if (first == nullptr) return {};
  const bool common = std::ranges::all_of(node, [&](int rank) {
    const Gpu* gpu = gpu_of(facts_of(ranks, rank));
    return gpu != nullptr && gpu->links.fabric == first->links.fabric;
  });
  return common ? first->links.fabric : "";
}

void divide(const std::vector<int>& node, int size, std::vector<std::vector<int>>& domains) {
  for (size_t begin = 0; begin < node.size(); begin += static_cast<size_t>(size)) {
    const size_t end = std::min(node.size(), begin + static_cast<size_t>(size));
    domains.emplace_back(node.begin() + static_cast<ptrdiff_t>(begin), node.begin() + static_cast<ptrdiff_t>(end));
  }
}

int ranks_per_domain_of(const std::vector<RankFacts>& ranks, const std::vector<int>& node) {
  const int size = facts_of(ranks, node.front()).ranks_per_domain;
  for (const int rank : node) {
    if (facts_of(ranks, rank).ranks_per_domain == size) continue;
    fail(ucclEpInvalidArgument, "ranks_per_domain of rank {} is {}, but rank {} of the same node gave {}", rank,
         facts_of(ranks, rank).ranks_per_domain, node.front(), size);
  }
  return size;
}

}  // namespace

std::vector<std::vector<int>> group_by_machine(const std::vector<RankFacts>& ranks) {
  return group_by(ranks, [&](int rank) { return facts_of(ranks, rank).node.boot_id; });
}

std::vector<std::vector<int>> group_by_node(const std::vector<RankFacts>& ranks, const std::vector<int>& node_sizes) {
  if (!node_sizes.empty()) return nodes_of_sizes(ranks, expand(node_sizes, ranks.size()));
  if (std::ranges::all_of(ranks, [](const RankFacts& facts) { return facts.ranks_per_node == 0; })) {
    return group_by(ranks, [&](int rank) { return facts_of(ranks, rank).node; });
  }
  std::vector<int> size_of_rank;
  for (const RankFacts& facts : ranks) {
    if (facts.ranks_per_node < 1) {
      fail(ucclEpInvalidArgument,
           "ranks_per_node of rank {} is {}, but other ranks have set it: set it on all ranks or on none",
           size_of_rank.size(), facts.ranks_per_node);
    }
    size_of_rank.push_back(facts.ranks_per_node);
  }
  return nodes_of_sizes(ranks, size_of_rank);
}

std::vector<Domain> group_by_domain(const std::vector<RankFacts>& ranks, const std::vector<std::vector<int>>& nodes,
                                    bool virtual_nodes) {
  std::vector<std::vector<int>> groups;
  std::map<std::string, size_t> of_fabric;
  for (const std::vector<int>& node : nodes) {
    const int size = ranks_per_domain_of(ranks, node);
    const std::string fabric = virtual_nodes || size > 0 ? "" : fabric_of(ranks, node);
    const auto known = of_fabric.find(fabric);
    if (size > 0) {
      divide(node, size, groups);
    } else if (known != of_fabric.end()) {
      std::vector<int>& group = groups[known->second];
      group.insert(group.end(), node.begin(), node.end());
    } else {
      if (!fabric.empty()) of_fabric[fabric] = groups.size();
      groups.push_back(node);
    }
  }
  std::vector<Domain> domains;
  for (std::vector<int>& group : groups) {
    std::ranges::sort(group);
    const std::string kind = kind_of(ranks, group);
    domains.push_back({kind, group, whole_bytes_of(ranks, group, kind)});
  }
  std::ranges::sort(domains, {}, [](const Domain& domain) { return domain.ranks.front(); });
  return domains;
}

}  // namespace ucclep::topology

// SPDX-License-Identifier: Apache-2.0
// Who is whose relay, for nodes of all sorts of sizes.
#include "ucclep/device/layout/nodes.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "host/network/network.hpp"

namespace ucclep {
namespace {

// Ranks of the nodes, in any order.
topology::Plan plan_of(const std::vector<int>& sizes, std::mt19937_64& random) {
  topology::Plan plan;
  std::vector<int> ranks;
  for (const int size : sizes) {
    for (int i = 0; i < size; ++i) ranks.push_back(static_cast<int>(ranks.size()));
  }
  plan.ranks.resize(ranks.size());
  if (random() % 2 == 0) std::shuffle(ranks.begin(), ranks.end(), random);
  for (const int size : sizes) {
    topology::Domain& domain = plan.domains.emplace_back();
    domain.ranks.assign(ranks.end() - size, ranks.end());
    std::sort(domain.ranks.begin(), domain.ranks.end());
    ranks.resize(ranks.size() - static_cast<size_t>(size));
  }
  return plan;
}

TEST_CASE("nodes: each rank has one relay in every other node, and there a block of its own") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<int> sizes;
    for (uint64_t node = 0; node < 2 + random() % 5; ++node) sizes.push_back(1 + static_cast<int>(random() % 6));
    const topology::Plan plan = plan_of(sizes, random);
    const bool apart = round % 4 == 0;
    if (apart) sizes.assign(plan.ranks.size(), 1);
    const NodeShape shape = node_shape(plan, apart);
    const std::vector<uint32_t> words = node_words(plan, apart);
    const auto ranks = static_cast<uint32_t>(plan.ranks.size());
    REQUIRE(words.size() == NodeTable::word_count(ranks, shape.nodes));
    const NodeTable nodes{words.data(), ranks, shape.nodes, shape.turns};
    CHECK(shape.most == static_cast<uint32_t>(*std::max_element(sizes.begin(), sizes.end())));
    std::vector<std::vector<uint32_t>> blocks(ranks);  // in use at each relay
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      CHECK(nodes.member(nodes.node_of(rank), nodes.index_of(rank)) == rank);
      for (uint32_t node = 0; node < shape.nodes; ++node) {
        if (node == nodes.node_of(rank)) continue;
        const uint32_t relay = nodes.relay(rank, node), block = nodes.block_of(rank, node);
        CHECK(nodes.node_of(relay) == node);
        REQUIRE(block < shape.blocks());
        CHECK(nodes.rank_of(block, relay) == rank);
        blocks[relay].push_back(block);
        // Rails: where nodes are alike, the ranks of one index are each other's relays.
        if (nodes.size_of(node) == nodes.size_of(nodes.node_of(rank))) {
          CHECK(nodes.relay(relay, nodes.node_of(rank)) == rank);
        }
      }
    }
    for (uint32_t relay = 0; relay < ranks; ++relay) {
      std::sort(blocks[relay].begin(), blocks[relay].end());
      CHECK(std::adjacent_find(blocks[relay].begin(), blocks[relay].end()) == blocks[relay].end());
      for (uint32_t block = 0; block < shape.blocks(); ++block) {
        const bool used = std::binary_search(blocks[relay].begin(), blocks[relay].end(), block);
        CHECK((nodes.rank_of(block, relay) != NodeTable::no_rank) == used);
      }
    }
  }
}

TEST_CASE("nodes: one domain has none") {
  std::mt19937_64 random(1);
  for (const bool apart : {false, true}) CHECK(node_shape(plan_of({4}, random), apart).nodes == 0);
}

}  // namespace
}  // namespace ucclep

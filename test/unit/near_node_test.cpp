// SPDX-License-Identifier: Apache-2.0
#include "base/near_node.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdint>

namespace ucclep {
namespace {

struct Policy {
  int kind = -1;
  std::array<uint64_t, 16> nodes{};
  bool operator==(const Policy&) const = default;
};
Policy policy_of_thread() {
  Policy policy;
  REQUIRE(syscall(SYS_get_mempolicy, &policy.kind, policy.nodes.data(), 64 * policy.nodes.size(), nullptr, 0ul) == 0);
  return policy;
}

TEST_CASE("near node: a thread prefers a node for a while, and then what it did before") {
  if (!NearNode(0).prefers()) {
    WARN("the kernel lets nobody choose");
    return;
  }
  const Policy before = policy_of_thread();
  const Policy node_0{MPOL_PREFERRED, {1}};
  {
    const NearNode near(0);
    CHECK(near.prefers());
    CHECK(policy_of_thread() == node_0);
  }
  CHECK(policy_of_thread() == before);

  // Of a caller who has one of his own.
  const uint64_t first = 1;
  REQUIRE(syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &first, 65ul) == 0);
  const Policy own = policy_of_thread();
  CHECK(own.kind == MPOL_INTERLEAVE);
  {
    const NearNode near(0);
    const NearNode nested(0);
    CHECK(policy_of_thread() == node_0);
  }
  CHECK(policy_of_thread() == own);
  REQUIRE(syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0ul) == 0);
}

TEST_CASE("near node: none, and one that the kernel does not have, change nothing") {
  {
    const NearNode nowhere(-1);
    CHECK(!nowhere.prefers());
    CHECK(nowhere.error() == 0);
  }
  for (const int node : {1000, 1024, 1 << 30}) {
    const NearNode near(node);
    CHECK(!near.prefers());
    CHECK(near.error() != 0);
  }
}

}  // namespace
}  // namespace ucclep

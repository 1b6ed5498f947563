// SPDX-License-Identifier: Apache-2.0
#include "base/near_node.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
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

// A program under numactl, or a container, may let nobody choose.
bool may_choose() {
  const NearNode near(0);
  if (!near.prefers()) WARN(near.why_not());
  return near.prefers();
}

TEST_CASE("near node: a thread prefers a node for a while, and none before and after") {
  if (!may_choose()) return;
  const Policy before = policy_of_thread();
  CHECK(before == Policy{MPOL_DEFAULT, {}});
  {
    const NearNode near(0);
    CHECK(near.prefers());
    CHECK(policy_of_thread() == Policy{MPOL_PREFERRED, {1}});
  }
  CHECK(policy_of_thread() == before);
}

TEST_CASE("near node: a thread that has a policy keeps it") {
  if (!may_choose()) return;
  const uint64_t first = 1;
  REQUIRE(syscall(SYS_set_mempolicy, MPOL_BIND, &first, 65ul) == 0);
  const Policy own = policy_of_thread();
  {
    const NearNode near(0);
    CHECK(!near.prefers());
    CHECK_THAT(near.why_not(), Catch::Matchers::Contains("already has a memory policy"));
    CHECK(policy_of_thread() == own);
  }
  CHECK(policy_of_thread() == own);
  REQUIRE(syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0ul) == 0);
}

TEST_CASE("near node: none, and one that the kernel does not have, change nothing") {
  CHECK(!NearNode(-1).prefers());
  CHECK(NearNode(-1).why_not().empty());
  for (const int node : {1000, 1024, 1 << 30}) {
    const NearNode near(node);
    CHECK(!near.prefers());
    CHECK(!near.why_not().empty());
  }
}

}  // namespace
}  // namespace ucclep

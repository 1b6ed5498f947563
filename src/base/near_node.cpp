// SPDX-License-Identifier: Apache-2.0
#include "base/near_node.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace ucclep {
namespace {

// glibc has neither. The kernel takes one bit less than it is told of.
long set_policy(int policy, const unsigned long* nodes, unsigned long count) {
  return syscall(SYS_set_mempolicy, policy, nodes, count + 1);
}
long get_policy(int* policy, unsigned long* nodes, unsigned long count) {
  return syscall(SYS_get_mempolicy, policy, nodes, count, nullptr, 0ul);
}

constexpr unsigned word_bits = 8 * sizeof(unsigned long);

}  // namespace

NearNode::NearNode(int node) {
  if (node < 0) return;
  Nodes nodes{};
  if (static_cast<unsigned>(node) >= most_nodes) {
    error_ = EINVAL;
    return;
  }
  nodes[static_cast<unsigned>(node) / word_bits] = 1ul << static_cast<unsigned>(node) % word_bits;
  prefers_ = get_policy(&policy_before_, nodes_before_.data(), most_nodes) == 0 &&
             set_policy(MPOL_PREFERRED, nodes.data(), most_nodes) == 0;
  if (!prefers_) error_ = errno;
}

NearNode::~NearNode() {
  if (prefers_) set_policy(policy_before_, nodes_before_.data(), most_nodes);
}

}  // namespace ucclep

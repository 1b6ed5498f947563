// SPDX-License-Identifier: Apache-2.0
#include "base/near_node.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/error.hpp"

namespace ucclep {
namespace {

constexpr unsigned max_nodes = 1024;  // as many as any kernel counts
constexpr unsigned word_bits = 8 * sizeof(unsigned long);

// glibc has neither.
bool get_policy(int* policy) {
  return syscall(SYS_get_mempolicy, policy, nullptr, 0ul, nullptr, 0ul) == 0;
}
bool prefer(unsigned node) {
  std::array<unsigned long, max_nodes / word_bits> nodes{};
  nodes[node / word_bits] = 1ul << node % word_bits;
  // The kernel takes one bit less than it is told of.
  return syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes.data(), max_nodes + 1ul) == 0;
}

}  // namespace

NearNode::NearNode(int node) {
  if (node < 0) return;
  int policy = MPOL_DEFAULT;
  if (static_cast<unsigned>(node) >= max_nodes) {
    why_not_ = "the node's number exceeds the maximum of Linux";
  } else if (!get_policy(&policy)) {
    why_not_ = "get_mempolicy: " + errno_text(errno);
  } else if (policy != MPOL_DEFAULT) {
    why_not_ = "the thread already has a memory policy";
  } else if (!prefer(static_cast<unsigned>(node))) {
    why_not_ = "set_mempolicy: " + errno_text(errno);
  } else {
    prefers_ = true;
  }
}

NearNode::~NearNode() {
  if (prefers_) syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0ul);
}

}  // namespace ucclep

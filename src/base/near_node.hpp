// SPDX-License-Identifier: Apache-2.0
// Near which NUMA node memory comes to lie that a thread allocates, or touches first.
#pragma once
#include <array>

namespace ucclep {

// While it lives the calling thread prefers a node, as the kernel counts them; then it prefers what it did before.
// Below 0, or where the kernel refuses (it has no such node, a container forbids to ask): nothing changes.
class NearNode {
 public:
  explicit NearNode(int node);
  ~NearNode();
  NearNode(const NearNode&) = delete;
  NearNode& operator=(const NearNode&) = delete;

  bool prefers() const { return prefers_; }
  int error() const { return error_; }  // errno of what was refused

 private:
  static constexpr unsigned most_nodes = 1024;  // as many as any kernel counts
  using Nodes = std::array<unsigned long, most_nodes / (8 * sizeof(unsigned long))>;

  bool prefers_ = false;
  int error_ = 0;
  int policy_before_ = 0;
  Nodes nodes_before_{};
};

}  // namespace ucclep

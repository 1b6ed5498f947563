// SPDX-License-Identifier: Apache-2.0
// Near which NUMA node memory comes to lie that a thread allocates, or touches first.
#pragma once
#include <string>

namespace ucclep {

// While it lives the calling thread prefers a node, as the kernel counts them. Nothing changes below 0, where the
// thread has a policy already (numactl: who chose it knows why), or where the kernel refuses (it has no such node, a
// container forbids to ask).
class NearNode {
 public:
  explicit NearNode(int node);
  ~NearNode();
  NearNode(const NearNode&) = delete;
  NearNode& operator=(const NearNode&) = delete;

  bool prefers() const { return prefers_; }
  const std::string& why_not() const { return why_not_; }  // of a node of 0 or more

 private:
  bool prefers_ = false;
  std::string why_not_;
};

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// Where a rank runs: which machine, which process.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "base/token.hpp"

namespace ucclep {

// Equal where descriptors can be passed: the same boot of the same kernel, and the same network namespace, in which
// abstract unix sockets have their names. Two containers of one machine are two nodes unless they share it.
struct NodeId {
  std::array<char, 40> boot_id{};
  uint64_t network_namespace = 0;
  auto operator<=>(const NodeId&) const = default;
};

NodeId this_node();
std::string host_name();

// Random, fixed for the life of the process, different in a forked child. (A pid alone repeats between pid namespaces.)
Token this_process();

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// The machines of test/data/topology.
#pragma once
#include <memory>
#include <string>

#include "topology/topology.hpp"

namespace ucclep::test {

extern const char* const machine_names[6];

std::string topology_path(const std::string& name);  // "p5en"
std::shared_ptr<const topology::Machine> saved_machine(const std::string& name);

// Of a GPU to all NICs of the machine: the names of those at the least distance, separated by blanks.
std::string nearest_nics(const topology::Machine& machine, size_t gpu);

}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// From hwloc's XML to a Machine. hwloc itself would trust the file: it aborts or crashes on some that were damaged.
#pragma once
#include <string>

#include "topology/topology.hpp"

namespace ucclep::topology {

// `source` begins the message of the ucclEpInvalidArgument that other text gets.
Machine machine_from_xml(const std::string& text, const std::string& source);

}  // namespace ucclep::topology

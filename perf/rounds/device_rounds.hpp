// SPDX-License-Identifier: Apache-2.0
// What device_perf measures.
#pragma once
#include <vector>

#include "runner.hpp"

namespace ucclep::perf {

// The library's pair, a user's kernel in each form and scope, the bare loop. Collective.
std::vector<Plan> plan_rounds(Endpoint& endpoint);

}  // namespace ucclep::perf

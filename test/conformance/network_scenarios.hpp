// SPDX-License-Identifier: Apache-2.0
// What differs in the rows and in who sends them, for cases between virtual nodes.
#pragma once
#include <vector>

#include "conformance/scenario.hpp"

namespace ucclep::test {

std::vector<Scenario> some_of_everything(int ranks);
std::vector<Scenario> the_rest(int ranks);
// Groups that keep fewer rows than may come, with a record and in silence.
std::vector<Scenario> with_limits(int ranks);

// Only LL EXPERT_MAJOR applies weights, so no others can come late; only HT keeps to limits.
bool exists(const Scenario& scenario);

}  // namespace ucclep::test

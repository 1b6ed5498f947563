// SPDX-License-Identifier: Apache-2.0
// Whole layers on every rank.
#pragma once
#include "options.hpp"
#include "team.hpp"

namespace ucclep::perf {

// Prints a table; rank 0 writes the JSON file. True if all results are right. Collective.
bool bench_layers(const Options& options, Team& team);

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
// The collective rounds that ucclEpCommInit and a networked ucclEpGroupCreate make in the hub, by kind and size,
// without their content. init_perf compares their bytes with those of real ranks.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "base/deadline.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/wire.hpp"

namespace ucclep::perf {

struct HubRound {
  wire::RoundKind kind;
  size_t bytes;    // that a rank brings; of an exchange for each other rank
  size_t own = 0;  // of an exchange: for itself
};

std::span<const HubRound> rounds_of_join();  // the cards of all
std::span<const HubRound> rounds_of_init();  // what follows them
std::span<const HubRound> rounds_of_group();

// What a rank sends to the hub, and how much it gets when all ranks have.
std::string part_of(const HubRound& round, int rank, int nranks);
size_t result_bytes(const HubRound& round, int nranks);

// A rank of the library comes to the round. Throws Error.
void take_part(Bootstrap& bootstrap, const HubRound& round, Deadline deadline);

}  // namespace ucclep::perf

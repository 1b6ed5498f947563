// SPDX-License-Identifier: Apache-2.0
// How the ranks of a group end a step that some of them may have failed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/error.hpp"

namespace ucclep::proxy {

// What each rank brings, in the order of ranks: never nothing, but for a rank that is gone. All others call it equally
// often; it throws on all or on none.
using Allgather = std::function<std::vector<std::vector<std::byte>>(std::span<const std::byte>)>;

// The same where each rank brings something else for each: by rank. What comes back at a rank is its part for this one.
using Exchange = std::function<std::vector<std::vector<std::byte>>(const std::vector<std::vector<std::byte>>&)>;

// How the ranks of a group speak to each other while they connect.
struct Talk {
  Allgather allgather;
  Exchange exchange;
};

// Ends a step that may have failed on some ranks: throws the error of the first rank that has one, on all ranks.
// Returns what each rank brings; a rank that is gone agrees and brings nothing.
std::vector<std::vector<std::byte>> agree(const Allgather& allgather, uint32_t rank, const Error* error,
                                          std::span<const std::byte> mine = {});

// The same; mine[r] is for rank r, none for any where this rank has failed.
std::vector<std::vector<std::byte>> agree_with_each(const Exchange& exchange, uint32_t rank, uint32_t ranks,
                                                    const Error* error,
                                                    const std::vector<std::vector<std::byte>>& mine);

}  // namespace ucclep::proxy

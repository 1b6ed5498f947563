// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/roll_call.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ucclep {
namespace {

std::string who(const wire::Greeting& greeting) {
  return fmt::format("pid {} on host {}", greeting.pid, wire::get_text(greeting.host));
}

}  // namespace

std::string name_ranks(const std::vector<int>& ranks) {
  return name_ranks(ranks, ranks.size());
}

std::string name_ranks(const std::vector<int>& first, size_t count) {
  std::string text = count == 1 ? "rank " : "ranks ";
  const size_t shown = count > max_named ? max_named - 1 : count;
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == count ? " and " : ", ";
    text += std::to_string(first[i]);
  }
  if (shown < count) text += fmt::format(" and {} more", count - shown);
  return text;
}

void RollCall::refuse(ucclEpResult_t code, std::string message) {
  if (decided()) return;
  code_ = code;
  message_ = std::move(message);
}

void RollCall::arrive(const wire::Greeting& greeting) {
  int rank = greeting.rank;
  int nranks = greeting.nranks;
  if (nranks > wire::max_ranks) {
    return refuse(ucclEpInvalidArgument, fmt::format("rank {} ({}) gave nranks = {}: expected at most {} (max_ranks)",
                                                     rank, who(greeting), nranks, wire::max_ranks));
  }
  if (nranks <= 0) {
    return refuse(ucclEpInvalidArgument,
                  fmt::format("rank {} ({}) gave nranks = {}: expected at least 1", rank, who(greeting), nranks));
  }
  if (rank < 0 || rank >= nranks) {
    return refuse(ucclEpInvalidArgument,
                  fmt::format("rank {} ({}) is out of range: expected 0 to {}, because nranks = {}", rank,
                              who(greeting), nranks - 1, nranks));
  }
  if (!arrived_.empty() && nranks != nranks_) {
    const auto& [first_rank, first] = *arrived_.begin();
    return refuse(ucclEpInvalidArgument,
                  fmt::format("nranks differs between ranks: rank {} ({}) gave {}, rank {} ({}) gave {}", rank,
                              who(greeting), nranks, first_rank, who(first), nranks_));
  }
  nranks_ = nranks;
  auto [entry, is_new] = arrived_.try_emplace(rank, greeting);
  if (!is_new) {
    return refuse(ucclEpInvalidArgument,
                  fmt::format("rank {} joined twice, as {} and as {}: each process needs a rank of its own", rank,
                              who(entry->second), who(greeting)));
  }
  if (rank == 0) hub_ = greeting.hub;
  if (!decided() && complete()) code_ = ucclEpSuccess;
}

std::string RollCall::missing() const {
  const size_t count = static_cast<size_t>(nranks_) - arrived_.size();
  std::vector<int> first;  // nranks is whatever a caller said: not so many are listed
  for (int rank = 0; first.size() < std::min(count, max_named); ++rank) {
    if (!arrived_.contains(rank)) first.push_back(rank);
  }
  return name_ranks(first, count);
}

void RollCall::give_up(int rank) {
  if (decided()) return;
  refuse(ucclEpTimeout, fmt::format("{} did not join within {} ms, then rank {} gave up ({} of {} ranks had joined)",
                                    missing(), arrived_.at(rank).timeout_ms, rank, arrived_.size(), nranks_));
}

void RollCall::give_up_for(ucclEpResult_t code, const std::string& why) {
  refuse(code, why);
}

void RollCall::vanish(int rank) {
  if (decided()) return;
  refuse(ucclEpRemoteError,
         fmt::format("rank {} ({}) closed its connection before all ranks had joined", rank, who(arrived_.at(rank))));
}

}  // namespace ucclep

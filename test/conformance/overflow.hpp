// SPDX-License-Identifier: Apache-2.0
// Who hears of rows that were dropped.
#pragma once
#include <string>
#include <vector>

#include "conformance/scenario.hpp"

namespace ucclep::test {

// A record exactly where this rank has dropped rows of one of these routings and the group tells it. It is forgotten.
inline void check_overflow_record(ucclEpComm_t comm, const Scenario& scenario,
                                  const std::vector<uint64_t>& routing_seeds, int rank) {
  const std::string who = "rank " + std::to_string(rank);
  const ucclEpAsyncError_t error = async_error(comm);
  const std::string text = error.text;
  bool overflows = false, told = false;
  std::string facts;
  for (const uint64_t seed : routing_seeds) {
    const Contents contents(scenario, seed, 1);
    const int64_t total = contents.placed(rank).total, kept = contents.kept_rows(rank);
    if (scenario.overflow == UCCLEP_OVERFLOW_DROP || total <= kept) continue;
    overflows = true;
    facts = std::to_string(total) + " rows and keeps " + std::to_string(kept);
    told = told || text.find(facts) != std::string::npos;
  }
  if (!overflows) return require(error.code == ucclEpSuccess, who + " has a record: " + text);
  require(error.code == ucclEpOverflow, who + " has no record of " + facts);
  require(told, "the record does not say " + facts + ": " + text);
  ok(ucclEpCommClearAsyncError(comm), "ucclEpCommClearAsyncError");
}

}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// Ranks that are no more than sockets, thousands of them in one thread. They meet as the library's ranks do: they greet
// the rendezvous, then the hub, bring a card to the first round, read its result, and go when all have.
#pragma once
#include <cstdint>
#include <string>

#include "ucclep/ucclep.h"

namespace ucclep::test {

struct CrowdCounts {
  int joined = 0;    // have read the cards of all
  std::string text;  // what a refusal said, of the last one
};

// Plays ranks 1 to nranks - 1. pace_us: between two that begin; 0: all at once. Who is hung up on tries again, as ranks
// of the library do. Comes back when each has joined or failed, or after timeout_ms.
CrowdCounts run_crowd(const ucclEpUniqueId& id, int nranks, int pace_us, int64_t timeout_ms);

}  // namespace ucclep::test

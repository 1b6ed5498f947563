// SPDX-License-Identifier: Apache-2.0
// Cases of HT between virtual nodes that hold for rings of either sort: those of a group with rings (UCCLEP_HT_RING),
// and those that relays empty into their devices' memory where NICs do not reach that (UCCLEP_HT_RELAY_RING).
#pragma once
#include <string>
#include <vector>

#include "conformance/exchange.hpp"
#include "conformance/in_nodes.hpp"
#include "conformance/nodes.hpp"
#include "support/environment.hpp"

namespace ucclep::test {

inline constexpr const char *ring_variable = "UCCLEP_HT_RING", *relay_ring_variable = "UCCLEP_HT_RELAY_RING";

inline Environment ring_asked(const char* ring) {
  return Environment(ring_variable, ring);
}
inline Environment relay_ring_asked(const char* ring) {
  return Environment(relay_ring_variable, ring);
}

inline constexpr InNodes by_rings{.ll = false, .short_chunks = true, .gradients = true};

inline std::vector<Scenario> in_layouts_of_ht(const Scenario& scenario) {
  return in_layouts_of(false, scenario);
}

void run_rings(const Nodes& nodes, const std::vector<Scenario>& scenarios, int num_sms = 0);

// All rows go to both nodes, in 24 chunks.
Scenario to_the_other_node(const Nodes& nodes);

// LL, of either way, and HT on one group; phases of LL are pending while HT dispatches.
void run_turns_with_ll();

// Whose rings a case asks for: a group's, or those of its relays, which has them only where relays stage rows.
enum class RingsOf { group, relays };

// Where there are rings, most of the chunks wait for others to be freed. asked: for some.
void run_held_back(RingsOf rings, bool asked);

// 0 and 2 lose their connection while both hold chunks back for a ring that is full, where there is one; 1 and 3 hear
// of it. Nobody waits until the time is up.
void run_broken_while_full(RingsOf rings);

// One rank expects longer rows, and then longer sums.
void run_where_a_ring_differs();

// What a group takes of a rank's device, as it is said, and its windows, where they are made.
struct GroupBytes {
  double said = 0, windows = 0;
  bool staged = false;  // relays stage rows that land
};
GroupBytes bytes_with(const char* variable, const char* ring, const Nodes& nodes, const ucclEpGroupConfig_t& config,
                      bool made = false);

}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
// Whole cases between virtual nodes that hold for the layouts of a mode, however its rows cross.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conformance/nodes.hpp"
#include "conformance/scenario.hpp"
#include "support/ep.hpp"

namespace ucclep::test {

struct InNodes {
  bool ll = true;             // the mode
  bool short_chunks = false;  // see of_short_chunks
  bool gradients = false;     // they follow the last routing
  int rounds = 3;             // routings on a handle: all slots are used again
  int num_sms = 0;            // 0: all, or what a seed says
  int tokens_per_round = 0;   // of HT; 0: operations have one round
};

// Blocks of a group's kernels, or of a call's: seldom all (0), since more lanes take longer on few cores.
int sms_of(uint64_t draw);

std::vector<Scenario> in_layouts_of(bool ll, const Scenario& scenario);

// A group for rows as long as a chunk: each of the short ones is a chunk, and a message, of its own.
ucclEpGroupConfig_t of_short_chunks(const Scenario& scenario);

void run_in_nodes(const Nodes& nodes, const std::string& transport, const std::vector<Scenario>& scenarios,
                  const InNodes& how);
// The first world with some of everything, the others with two scenarios each; reduced: two worlds, one each.
void run_in_worlds(const std::vector<Nodes>& worlds, const InNodes& how);
// A network that reorders, repeats and withholds; worlds and scenarios by the seed.
void run_reordered(unsigned seed, const InNodes& how);
// As many operations under way as may be, whole and in phases, on ranks of which each decides for itself, forward and
// backward; a late rank.
void run_phases(unsigned seed, const InNodes& how);

// What a rank has in run_where_one_differs, on which `wrong` is the one that differs.
struct AmongThem {
  Rank& rank;
  Comm& comm;
  const Handle& handle;
  Stream& stream;
  int wrong;
};
// Each rank in turn dispatches `other` where the rest dispatch `common`: refused on all, which names the hidden size,
// no row written, and the group works on. Then `more`.
void run_where_one_differs(const Scenario& common, const Scenario& other, const ucclEpGroupConfig_t& config,
                           const std::function<void(const AmongThem&)>& more = {});
// One rank has another value of the variable than the rest: no group of the layout, on any.
void run_where_one_is_asked_for(const char* other, const char* variable, const char* common, Layout layout);

}  // namespace ucclep::test

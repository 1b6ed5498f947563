// SPDX-License-Identifier: Apache-2.0
// Who has come to a rendezvous, and whether they fit together. No sockets: the rendezvous feeds it.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "bootstrap/wire.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

class RollCall {
 public:
  // Each may decide; once decided, the decision stays.
  void arrive(const wire::Greeting& greeting);
  void give_up(int rank);
  void vanish(int rank);
  void give_up_for(ucclEpResult_t code, const std::string& why);  // for all

  bool knows(int rank) const { return arrived_.contains(rank); }
  bool decided() const { return code_ != ucclEpInProgress; }
  // Success, or the code and the message for every rank.
  ucclEpResult_t code() const { return code_; }
  const std::string& message() const { return message_; }
  const WireAddress& hub() const { return hub_; }
  // Nobody else is expected: every rank has arrived at least once.
  bool complete() const { return nranks_ > 0 && arrived_.size() == static_cast<size_t>(nranks_); }

 private:
  void refuse(ucclEpResult_t code, std::string message);
  std::string missing() const;

  int nranks_ = 0;  // as the first rank that made sense said
  std::map<int, wire::Greeting> arrived_;
  WireAddress hub_;
  ucclEpResult_t code_ = ucclEpInProgress;
  std::string message_;
};

// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more".
std::string name_ranks(const std::vector<int>& ranks);
// The same of `count` ranks, the first of which are given: max_named of them suffice.
constexpr size_t max_named = 9;
std::string name_ranks(const std::vector<int>& first, size_t count);

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// The hub's bookkeeping of collective rounds: which rank has brought its part of which round, and how a round ends. No
// sockets, no time. Invariant: a round ends once, in one way, for every rank that takes part, early or late.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/wire.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

class Rounds {
 public:
  struct Delivery {
    int rank;
    uint64_t sequence;
    ucclEpResult_t code;
    std::shared_ptr<const std::string> payload;  // the result, or the message of the error
  };

  explicit Rounds(int nranks);

  // Each returns what is to be sent now.
  std::vector<Delivery> add_part(int rank, uint64_t sequence, wire::RoundKind kind, std::string part);
  std::vector<Delivery> give_up(int rank, uint64_t sequence, uint64_t waited_ms);
  // What is added to each timeout from now on: why ranks may be missing.
  void remark(const std::string& text) { remark_ = "; " + text; }
  // message: why the rank brings no more parts. Only the first one of a rank counts.
  std::vector<Delivery> leave(int rank, const std::string& message);

 private:
  struct Round {
    wire::RoundKind kind = wire::RoundKind::gather;
    int first_rank = 0;
    std::vector<char> present;
    std::vector<std::string> parts;
    bool ended = false;
    ucclEpResult_t code = ucclEpInProgress;
    std::shared_ptr<const std::string> payload;
    std::vector<std::shared_ptr<const std::string>> own;  // of an exchange: by rank; else none
  };
  using Entry = std::map<uint64_t, Round>::iterator;

  static void check_fit(Round& round, int rank, wire::RoundKind kind, size_t bytes);
  void try_end(Round& round);
  void finish(Round& round) const;
  void finish_exchange(Round& round) const;
  static std::shared_ptr<const std::string> payload_of(const Round& round, size_t rank);
  static void end(Round& round, ucclEpResult_t code, std::string payload);
  std::vector<Delivery> deliver_to_present(uint64_t sequence, const Round& round) const;
  void forget_if_over(Entry entry);

  size_t nranks_;
  std::map<uint64_t, Round> rounds_;
  std::string remark_;
  std::vector<std::string> gone_;  // by rank: empty, or why it is gone
};

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// What a proxy thread has sent to each peer and received from it, by operation: for UCCLEP_TRACE. One thread writes; it
// is read when that thread has left the group.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucclep/device/layout/window.hpp"

namespace ucclep::proxy {

struct Transfer {
  Kind kind = Kind::update;
  bool sent = false;  // else received
  uint32_t peer = 0;  // a rank
  uint64_t seq = 0;
  int64_t first_ns = 0, last_ns = 0;  // messages given to the NIC, or seen to arrive; steady clock
  uint64_t messages = 0;
};

class TransferLog {
 public:
  TransferLog(uint32_t ranks, uint32_t in_flight);

  void note(bool sent, uint32_t peer, Kind kind, uint64_t seq);
  // All that is remembered: of what is long ago, the latest.
  std::vector<Transfer> all() const;

 private:
  static constexpr size_t remembered = 16384;

  void remember(const Transfer& transfer);

  uint32_t ranks_, in_flight_;
  std::vector<Transfer> open_;  // [sent or received][rank][kind][in_flight]
  std::vector<Transfer> past_;
  size_t next_ = 0;  // of past_, when it is full
};

}  // namespace ucclep::proxy

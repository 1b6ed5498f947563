// SPDX-License-Identifier: Apache-2.0
#include "proxy/transfer_log.hpp"

#include <chrono>

namespace ucclep::proxy {

TransferLog::TransferLog(uint32_t ranks, uint32_t in_flight)
    : ranks_(ranks), in_flight_(in_flight), open_(size_t{2} * ranks * num_kinds * in_flight) {
  past_.reserve(remembered);
}

void TransferLog::note(bool sent, uint32_t peer, Kind kind, uint64_t seq) {
  const int64_t now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  const size_t of_peer = (sent ? 0 : ranks_) + peer;
  Transfer& transfer = open_[(of_peer * num_kinds + static_cast<uint32_t>(kind)) * in_flight_ + seq % in_flight_];
  if (transfer.seq != seq) {
    if (transfer.seq != 0) remember(transfer);
    transfer = {kind, sent, peer, seq, now, now, 0};
  }
  transfer.last_ns = now;
  ++transfer.messages;
}

void TransferLog::remember(const Transfer& transfer) {
  if (past_.size() < remembered) return past_.push_back(transfer);
  past_[next_] = transfer;
  next_ = (next_ + 1) % remembered;
}

std::vector<Transfer> TransferLog::all() const {
  std::vector<Transfer> all = past_;
  for (const Transfer& transfer : open_) {
    if (transfer.seq != 0) all.push_back(transfer);
  }
  return all;
}

}  // namespace ucclep::proxy

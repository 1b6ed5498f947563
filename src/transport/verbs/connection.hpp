// SPDX-License-Identifier: Apache-2.0
// One queue pair of RC: the states that it goes through, and the operations that it has begun.
#pragma once
#include <cstdint>
#include <vector>

#include "transport/verbs/device.hpp"

namespace ucclep::transport::verbs {

// How a peer reaches this endpoint's port; the same for all its queue pairs.
struct Port {
  uint8_t link_layer = 0, mtu = 0, reads = 0;  // reads: that the device answers at once, on one connection
  uint8_t unused = 0;
  uint32_t lid = 0, psn = 0;
  uint8_t gid[16] = {};

  static Port of(const Device& device, uint32_t psn);
};

class Connection {
 public:
  Connection(const Library& library, const Device& device, QueuePair pair, uint32_t depth);

  ibv_qp* pair() const noexcept { return pair_.get(); }
  uint32_t number() const noexcept { return pair_->qp_num; }

  // Each throws Error with the words of the system. A queue pair keeps its number from state to state: it is in the
  // address that peers have.
  void accept();  // receives may be posted
  void join(const Port& own, const Port& peer, uint32_t peer_number, uint8_t timeout);
  void reset();
  // Ends what has begun, by completions with an error. Does not throw; a second time does nothing.
  void stop() noexcept;

  // What has begun, in order. Completions come in order too, so that one of them says that all before it have ended.
  uint32_t room() const noexcept { return static_cast<uint32_t>(begun_.size()) - (next_ - first_); }
  bool idle() const noexcept { return first_ == next_; }
  uint32_t begin(uint32_t slot) noexcept;  // returns its sequence number
  uint32_t take_back() noexcept;           // the slot of the last one, which the NIC has not seen
  bool has(uint32_t sequence) const noexcept { return sequence - first_ < next_ - first_; }
  uint32_t first() const noexcept { return first_; }
  uint32_t oldest() const noexcept { return begun_[first_ % begun_.size()]; }
  uint32_t end_first() noexcept { return begun_[first_++ % begun_.size()]; }

 private:
  void modify(ibv_qp_attr& attributes, int mask, const char* what);

  const Library& library_;
  const Device& device_;
  QueuePair pair_;
  std::vector<uint32_t> begun_;  // a ring of slots; its length is a power of two
  uint32_t first_ = 0, next_ = 0;
  bool stopped_ = false;
};

}  // namespace ucclep::transport::verbs

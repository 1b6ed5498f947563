// SPDX-License-Identifier: Apache-2.0
// Credits between two ranks (P9): a receiver keeps entries for what a peer may send it, and says, with a word that only
// grows, how many data messages it has dealt with. The word travels truncated; both ends expand it.
#pragma once
#include <cstdint>

#include "proxy/immediate.hpp"

namespace ucclep::proxy {

struct CreditShape {
  uint32_t window = 64;        // data messages of one peer that have not been returned
  uint32_t return_every = 16;  // a credit message for so many of them
  uint32_t in_flight = 2;      // operations of each kind
  uint32_t messages = 0;       // of the channel that are under way, at most: each may be answered by a control message

  // Half of the values tell old from new.
  constexpr bool is_sound() const {
    return window > 0 && window <= imm_values / 2 && return_every > 0 && return_every <= window;
  }
  // Control messages of one peer that may lie there unread: it can return only what it was sent, and its operations get
  // on only by what it is sent, as messages of the channel do; and it parts once. So they need no
  // credit of their own, just these entries.
  constexpr uint32_t control_entries() const {
    return window / return_every + 1 + num_kinds * (in_flight + 1) + messages + 1;
  }
  // Receive entries for one peer.
  constexpr uint32_t entries() const { return window + control_entries(); }
};

// Of a sender, for one peer.
class SendCredits {
 public:
  explicit SendCredits(const CreditShape& shape) : window_(shape.window) {}

  bool available() const { return sent_ - returned_ < window_; }
  bool acquire() {
    if (!available()) return false;
    ++sent_;
    return true;
  }
  // A credit message, perhaps overtaken by a later one.
  void returned(uint32_t value) {
    const uint64_t more = (value - returned_) % imm_values;
    if (more <= sent_ - returned_) returned_ += more;
  }
  uint32_t in_flight() const { return static_cast<uint32_t>(sent_ - returned_); }

 private:
  uint64_t window_;
  uint64_t sent_ = 0, returned_ = 0;
};

// Of a receiver, for one peer.
class CreditReturn {
 public:
  explicit CreditReturn(const CreditShape& shape) : every_(shape.return_every) {}

  // A data message was dealt with, and its entry posted again.
  void processed() { ++processed_; }
  bool is_due() const { return processed_ - sent_ >= every_; }
  bool has_pending() const { return processed_ != sent_; }
  // The value to send to the peer now. It counts as sent.
  uint64_t mark_sent() { return sent_ = processed_; }

 private:
  uint64_t every_;
  uint64_t processed_ = 0, sent_ = 0;
};

// A word that a peer moves on, such as `consumed`: of the truncated values that come, in any order, the largest counts.
class GrowingWord {
 public:
  explicit GrowingWord(uint64_t begin = 0) : known_(begin) {}

  // True when it grew. No value may be older or newer than what is known by half of the range.
  bool move(uint32_t value) {
    const uint64_t more = (value - known_) % imm_values;
    if (more == 0 || more >= imm_values / 2) return false;
    known_ += more;
    return true;
  }
  uint64_t value() const { return known_; }

 private:
  uint64_t known_;
};

}  // namespace ucclep::proxy

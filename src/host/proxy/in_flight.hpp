// SPDX-License-Identifier: Apache-2.0
// What a NIC may have under way at once, in messages and in bytes: its table row says how much it bears.
#pragma once
#include <cstdint>

namespace ucclep::proxy {

class InFlight {
 public:
  InFlight(uint64_t most_bytes, uint32_t most_messages) : most_bytes_(most_bytes), most_messages_(most_messages) {}

  // A message larger than all that is allowed goes alone.
  bool take(uint64_t bytes) {
    const bool fits = bytes <= most_bytes_ && bytes_ <= most_bytes_ - bytes;
    if (messages_ == most_messages_ || (!fits && messages_ != 0)) return false;
    ++messages_;
    bytes_ += bytes;
    return true;
  }
  // It completed.
  void give(uint64_t bytes) {
    --messages_;
    bytes_ -= bytes;
  }
  uint32_t messages() const { return messages_; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t most_bytes_, bytes_ = 0;
  uint32_t most_messages_, messages_ = 0;
};

}  // namespace ucclep::proxy

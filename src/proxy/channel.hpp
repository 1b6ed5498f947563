// SPDX-License-Identifier: Apache-2.0
// The channel of a group at its proxies (ucclep/device/message.hpp): where messages lie, which of a peer's have come,
// and which of those to a peer are under way.
#pragma once
#include <cstddef>
#include <cstdint>

#include "proxy/credits.hpp"
#include "ucclep/device/layout/message.hpp"

namespace ucclep::proxy {

// Regions of a group: rows and headers, what the proxies of a channel read and write themselves, and behind these the
// windows of the user's, by id.
constexpr uint32_t channel_region = 1;
constexpr uint32_t user_window(uint32_t id) {
  return 2 + id;
}

struct ChannelPlaces {
  uint32_t rows = 0;                           // signals and teams; 0: the group has no channel
  std::byte* window = nullptr;                 // the channel's, here
  uint64_t messages = 0, signal_messages = 0;  // offsets there: [rank][channel_window]
  uint64_t staged_out = 0, staged_in = 0;      // likewise, of staged puts: [rank][staged_window]
  ChannelWords words = {};

  uint64_t message_at(uint32_t rank, uint64_t number) const {
    return messages + sizeof(Message) * (uint64_t{rank} * channel_window + number % channel_window);
  }
  uint64_t signal_message_at(uint32_t rank, uint64_t number) const {
    return signal_messages + sizeof(SignalMessage) * (uint64_t{rank} * channel_window + number % channel_window);
  }
  uint64_t staged_out_at(uint32_t rank, uint64_t number) const { return staged_out + staged_at(rank, number); }
  uint64_t staged_in_at(uint32_t rank, uint64_t number) const { return staged_in + staged_at(rank, number); }
  const Message& message(uint32_t rank, uint64_t number) const {
    return *reinterpret_cast<const Message*>(window + message_at(rank, number));
  }
  const SignalMessage& signal_message(uint32_t rank, uint64_t number) const {
    return *reinterpret_cast<const SignalMessage*>(window + signal_message_at(rank, number));
  }

 private:
  static uint64_t staged_at(uint32_t rank, uint64_t number) {
    return staged_slot * (uint64_t{rank} * staged_window + number % staged_window);
  }
};

// Of a receiver, for one peer: messages in any order, and twice.
class MessagesIn {
 public:
  // value: the number, truncated. 0: it has come before.
  uint64_t arrive(uint32_t value, bool is_signal) {
    const uint64_t ahead = (value - in_order_) % imm_values;
    if (ahead == 0 || ahead > channel_window) return 0;
    const uint64_t bit = uint64_t{1} << (ahead - 1);
    if ((come_ & bit) != 0) return 0;
    come_ |= bit;
    if (is_signal) signals_ |= bit;
    return in_order_ + ahead;
  }
  // What has come lies where it belongs.
  void place(uint64_t number) { here_ |= uint64_t{1} << (number - in_order_ - 1); }
  // Past what lies there without a gap; open(number) for each signal among it, in order.
  template <class Open>
  void advance(Open&& open) {
    for (; (here_ & 1) != 0; here_ >>= 1, come_ >>= 1, signals_ >>= 1) {
      ++in_order_;
      if ((signals_ & 1) != 0) open(in_order_);
    }
  }
  uint64_t in_order() const { return in_order_; }

 private:
  uint64_t in_order_ = 0;
  uint64_t come_ = 0, here_ = 0, signals_ = 0;  // a bit for each number above
};
static_assert(channel_window <= 64 && 2 * channel_window <= imm_values);

// Of a sender, for one peer.
class MessagesOut {
 public:
  // Of the number whose low bits a command names: 0 if none of those is meant that can be under way.
  uint64_t number_of(uint32_t low) const {
    const uint32_t ahead = low - static_cast<uint32_t>(placed_.value());
    return ahead == 0 || ahead > channel_window ? 0 : placed_.value() + ahead;
  }
  void accept(uint64_t number) { last_ = number > last_ ? number : last_; }
  bool placed(uint32_t value) { return placed_.move(value); }  // true: it grew
  uint64_t placed() const { return placed_.value(); }
  bool all_placed() const { return placed_.value() == last_; }

 private:
  GrowingWord placed_;
  uint64_t last_ = 0;
};

}  // namespace ucclep::proxy

// SPDX-License-Identifier: Apache-2.0
// Puts of the channel where NICs do not reach the user's windows (StagedPut): copies out of a window into host memory
// before a put leaves, and from there into a window when it has come. Of one proxy thread's share of a group.
//
// A copy that fails is reported once; from then on nothing is copied, and nothing that was put comes to lie anywhere.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "proxy/channel.hpp"

namespace ucclep::proxy {

class Staging {
 public:
  Staging(const ChannelPlaces& places, uint32_t ranks, std::unique_ptr<CopyQueue> copies);

  void keep_window(uint32_t id, void* data, uint64_t bytes);
  void forget_window(uint32_t id) { keep_window(id, nullptr, 0); }

  // Out of a window. False: there are no such bytes.
  bool begin_out(uint32_t rank, uint64_t number, const Message& message);
  bool is_out(uint32_t rank, uint64_t number) const { return out_[slot_of(rank, number)] == number; }
  // Into a window: what a peer's put says. False: it names no bytes of one.
  bool begin_in(uint32_t rank, uint64_t number);

  // placed(rank, number) for each put whose bytes have come to lie in a window. True: some copy has ended.
  template <class Placed>
  bool poll(Placed&& placed) {
    const uint64_t ended = count_ended(), before = ended_;
    for (; ended_ != ended; ++ended_, begun_.pop_front()) {
      const Copy& copy = begun_.front();
      if (!copy.in) out_[slot_of(copy.rank, copy.number)] = copy.number;
      if (copy.in) placed(copy.rank, copy.number);
    }
    return ended_ != before;
  }
  bool idle() const { return begun_.empty() || failed_; }
  // Why copying has failed, once.
  std::optional<std::string> failure() { return std::exchange(failure_, std::nullopt); }

 private:
  struct Window {
    std::byte* data = nullptr;
    uint64_t bytes = 0;
  };
  struct Copy {
    uint32_t rank;
    uint64_t number;
    bool in;
  };
  std::byte* place(uint32_t window, uint64_t offset, uint64_t bytes) const;
  void begin(void* to, const void* from, uint64_t bytes, const Copy& copy);
  uint64_t count_ended();
  template <class Step>
  void attempt(Step&& step);
  static size_t slot_of(uint32_t rank, uint64_t number) {
    return size_t{rank} * staged_window + number % staged_window;
  }

  const ChannelPlaces& places_;
  std::unique_ptr<CopyQueue> copies_;
  std::vector<Window> windows_;  // by id
  std::vector<uint64_t> out_;    // [rank][staged_window]: the put whose bytes lie there, to be sent
  std::deque<Copy> begun_;
  uint64_t ended_ = 0;
  bool failed_ = false;
  std::optional<std::string> failure_;
};

}  // namespace ucclep::proxy

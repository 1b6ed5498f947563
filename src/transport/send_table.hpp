// SPDX-License-Identifier: Apache-2.0
// The operations of an endpoint from the moment post takes them until poll has reported how they ended. It sees to the
// two promises that all transports make alike: one completion for each operation, and none that never comes.
//
// A slot is free -> waiting (in the queue of its peer) -> begun (the NIC has it) -> ended (in the queue of what is to
// be reported) -> free. When a connection breaks, its operations end at once; those that have begun stay the NIC's,
// which may still touch their memory, and their slots stay out of use until it returns them.
#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/transport.hpp"

namespace ucclep::transport {

class SendTable {
 public:
  static constexpr uint32_t none = 0xffffffff;

  explicit SendTable(const Config& config);

  // Slots are numbered below this; forget may raise it.
  uint32_t slots() const noexcept { return static_cast<uint32_t>(slots_.size()); }
  const Operation& operator[](uint32_t slot) const noexcept { return slots_[slot].operation; }
  uint32_t peer_of(uint32_t slot) const noexcept { return slots_[slot].peer; }

  // False when `sends` operations have not been reported yet.
  bool take(uint32_t peer, const Operation& operation) noexcept;
  // The operation of the peer that is to begin next, or none.
  uint32_t next(uint32_t peer) const noexcept { return peers_[peer].waiting.first; }
  // Another operation of the same peer waits behind this one.
  bool followed(uint32_t slot) const noexcept { return slots_[slot].next != none; }
  bool anything_waits() const noexcept { return waiting_ > 0; }
  void begin(uint32_t slot) noexcept;
  // The NIC has carried it out, or is done with it in another way after the connection broke.
  void returned(uint32_t slot) noexcept;

  // What the peer has unfinished, and all that is taken for it later, ends in ERROR. The first reason counts.
  void break_connection(uint32_t peer, ucclEpResult_t code, std::string_view message) noexcept;
  bool broken(uint32_t peer) const noexcept { return peers_[peer].code != ucclEpSuccess; }
  // The peer is as if it had never been connected: nothing of it is reported any more.
  void forget(uint32_t peer);

  uint32_t report(std::span<Completion> completions) noexcept;

  // Called by every poll. Now and then it looks at the clock, breaks the connections that have completed nothing for
  // timeout_ms, and returns true: the moment to look after peers in other ways, too.
  bool watch() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : uint8_t { free, waiting, begun, ended, muted, reported };
  struct Slot {
    Operation operation{};
    uint32_t peer = 0;
    uint32_t next = none;
    State state = State::free;
    bool held = false;  // by the NIC
    bool failed = false;
  };
  struct Queue {
    uint32_t first = none, last = none;
  };
  struct Peer {
    Queue waiting;
    uint32_t unfinished = 0;
    uint64_t finished = 0, finished_when_seen = 0;
    Clock::time_point seen_moving;
    bool starts = false;  // its time begins at the next look
    ucclEpResult_t code = ucclEpSuccess;
    std::string message;
    bool loss_reported = false;
  };

  void append(Queue& queue, uint32_t slot) noexcept;
  uint32_t pop(Queue& queue) noexcept;
  void end(uint32_t slot, bool failed) noexcept;
  void put_back(uint32_t slot) noexcept;
  void add_slots(uint32_t count);
  bool stalls(Peer& peer, Clock::time_point now) const noexcept;
  uint32_t report_losses(std::span<Completion> completions) noexcept;

  std::vector<Slot> slots_;
  std::vector<Peer> peers_;
  Queue free_, ended_;
  uint32_t sends_;
  uint32_t taken_ = 0;  // not reported yet
  uint32_t in_free_ = 0;
  uint32_t waiting_ = 0;  // over all peers
  uint32_t losses_ = 0;   // broken connections that have not been reported
  uint32_t calls_ = 0;
  std::chrono::milliseconds timeout_, interval_;
  Clock::time_point watched_ = Clock::now();
};

}  // namespace ucclep::transport

// SPDX-License-Identifier: Apache-2.0
#include "transport/send_table.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "transport/error_message.hpp"

namespace ucclep::transport {
namespace {

constexpr uint32_t calls_between_looks = 64;

}  // namespace

// As many slots again as can be in use: a broken connection may leave that many with the NIC.
SendTable::SendTable(const Config& config)
    : peers_(config.peers),
      sends_(config.sends),
      timeout_(config.timeout_ms),
      interval_(std::clamp<int64_t>(config.timeout_ms / 16, 1, 50)) {
  if (config.peers == 0 || config.sends == 0 || config.receives == 0 || config.timeout_ms == 0) {
    fail(ucclEpInvalidArgument,
         "cannot open an endpoint for {} peers, {} sends and {} receives with a timeout of {} ms: none of these may be "
         "0",
         config.peers, config.sends, config.receives, config.timeout_ms);
  }
  for (Peer& peer : peers_) peer.message.reserve(ErrorMessage::longest);
  add_slots(2 * sends_);
}

void SendTable::add_slots(uint32_t count) {
  const uint32_t first = slots();
  slots_.resize(first + count);
  for (uint32_t slot = first; slot < slots(); ++slot) append(free_, slot);
  in_free_ += count;
}

void SendTable::append(Queue& queue, uint32_t slot) noexcept {
  slots_[slot].next = none;
  (queue.first == none ? queue.first : slots_[queue.last].next) = slot;
  queue.last = slot;
}

uint32_t SendTable::pop(Queue& queue) noexcept {
  const uint32_t slot = queue.first;
  queue.first = slots_[slot].next;
  return slot;
}

void SendTable::put_back(uint32_t slot) noexcept {
  slots_[slot].state = State::free;
  append(free_, slot);
  ++in_free_;
}

bool SendTable::take(uint32_t peer_number, const Operation& operation) noexcept {
  if (taken_ == sends_ || free_.first == none) return false;
  const uint32_t number = pop(free_);
  --in_free_;
  ++taken_;
  Slot& slot = slots_[number];
  slot.operation = operation;
  slot.peer = peer_number;
  slot.failed = slot.held = false;
  Peer& peer = peers_[peer_number];
  if (peer.unfinished++ == 0) peer.starts = true;
  if (broken(peer_number)) {
    end(number, true);
    return true;
  }
  slot.state = State::waiting;
  append(peer.waiting, number);
  ++waiting_;
  return true;
}

void SendTable::begin(uint32_t slot) noexcept {
  pop(peers_[slots_[slot].peer].waiting);
  --waiting_;
  slots_[slot].state = State::begun;
  slots_[slot].held = true;
}

void SendTable::end(uint32_t number, bool failed) noexcept {
  Slot& slot = slots_[number];
  slot.state = State::ended;
  slot.failed = failed;
  append(ended_, number);
  Peer& peer = peers_[slot.peer];
  --peer.unfinished;
  ++peer.finished;
}

void SendTable::returned(uint32_t number) noexcept {
  Slot& slot = slots_[number];
  slot.held = false;
  if (slot.state == State::begun) {
    end(number, false);
  } else if (slot.state == State::reported) {
    put_back(number);
  }
}

void SendTable::break_connection(uint32_t number, ucclEpResult_t code, std::string_view message) noexcept {
  Peer& peer = peers_[number];
  if (broken(number)) return;
  peer.code = code;
  peer.message.assign(message.substr(0, ErrorMessage::longest));
  ++losses_;
  // In the order of posting, as far as there is one: what has begun, then what waits.
  for (uint32_t slot = 0; slot < slots(); ++slot) {
    if (slots_[slot].peer == number && slots_[slot].state == State::begun) end(slot, true);
  }
  while (peer.waiting.first != none) {
    end(pop(peer.waiting), true);
    --waiting_;
  }
}

void SendTable::forget(uint32_t number) {
  Peer& peer = peers_[number];
  while (peer.waiting.first != none) {
    put_back(pop(peer.waiting));
    --waiting_;
    --taken_;
  }
  for (uint32_t slot = 0; slot < slots(); ++slot) {
    if (slots_[slot].peer != number) continue;
    if (slots_[slot].state == State::ended) {
      slots_[slot].state = State::muted;
      --taken_;
    } else if (slots_[slot].state == State::begun) {
      slots_[slot].state = State::reported;
      --taken_;
    }
  }
  if (broken(number) && !peer.loss_reported) --losses_;
  peer.unfinished = 0;
  peer.code = ucclEpSuccess;
  peer.loss_reported = false;
  if (in_free_ + taken_ < 2 * sends_) add_slots(2 * sends_ - in_free_ - taken_);
}

uint32_t SendTable::report(std::span<Completion> completions) noexcept {
  uint32_t count = losses_ > 0 ? report_losses(completions) : 0;
  while (ended_.first != none && count < completions.size()) {
    const uint32_t number = pop(ended_);
    Slot& slot = slots_[number];
    const bool wanted = slot.state == State::ended;
    if (wanted) {
      const Peer& peer = peers_[slot.peer];
      completions[count++] = {.kind = slot.failed ? UCCLEP_COMPLETION_ERROR : UCCLEP_COMPLETION_DONE,
                              .peer = slot.peer,
                              .bytes = slot.operation.bytes,
                              .cookie = slot.operation.cookie,
                              .imm = 0,
                              .operation = slot.operation.kind,
                              .code = slot.failed ? peer.code : ucclEpSuccess,
                              .words = slot.failed ? peer.message.c_str() : nullptr};
      --taken_;
    }
    slot.state = State::reported;
    if (!slot.held) put_back(number);
  }
  return count;
}

uint32_t SendTable::report_losses(std::span<Completion> completions) noexcept {
  uint32_t count = 0;
  for (uint32_t number = 0; number < peers_.size() && losses_ > 0 && count < completions.size(); ++number) {
    Peer& peer = peers_[number];
    if (!broken(number) || peer.loss_reported) continue;
    completions[count++] = {.kind = UCCLEP_COMPLETION_ERROR,
                            .peer = number,
                            .bytes = 0,
                            .cookie = 0,
                            .imm = 0,
                            .operation = UCCLEP_OPERATION_NONE,
                            .code = peer.code,
                            .words = peer.message.c_str()};
    peer.loss_reported = true;
    --losses_;
  }
  return count;
}

bool SendTable::stalls(Peer& peer, Clock::time_point now) const noexcept {
  if (peer.unfinished == 0 || peer.starts || peer.finished != peer.finished_when_seen) {
    peer.starts = false;
    peer.finished_when_seen = peer.finished;
    peer.seen_moving = now;
    return false;
  }
  return now - peer.seen_moving >= timeout_;
}

bool SendTable::watch() noexcept {
  if (++calls_ % calls_between_looks != 0) return false;
  const Clock::time_point now = Clock::now();
  if (now - watched_ < interval_) return false;
  // Nothing moves while nobody polls: that is no fault of the peers.
  const bool rested = now - watched_ >= timeout_ / 4;
  watched_ = now;
  for (uint32_t number = 0; number < peers_.size(); ++number) {
    Peer& peer = peers_[number];
    if (rested) peer.starts = true;
    if (!stalls(peer, now)) continue;
    const ErrorMessage message("peer {} has completed none of {} operations within {} ms", number, peer.unfinished,
                               timeout_.count());
    break_connection(number, ucclEpTimeout, message.view());
  }
  return true;
}

}  // namespace ucclep::transport

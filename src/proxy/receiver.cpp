// SPDX-License-Identifier: Apache-2.0
#include "proxy/receiver.hpp"

#include <algorithm>

#include "ucclep/device/arch/host_executor.hpp"

namespace ucclep::proxy {
namespace {

uint32_t max_chunks_of(const Places& places) {
  uint32_t max = 0;
  for (const KindPlaces& kind : places.kinds) max = std::max(max, kind.chunks());
  return max;
}

void store(uint64_t* word, uint64_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
  executor::note_store();
}

}  // namespace

Receiver::Receiver(const GroupShape& shape, const Arrivals& words, ConsumedHere& consumed, Sender& sender,
                   const std::vector<PeerConnections>& peers, GroupCounts<Counter>& counts, TransferLog* log,
                   Staging* staging)
    : shape_(shape),
      words_(words),
      consumed_(consumed),
      sender_(sender),
      counts_(counts),
      log_(log),
      staging_(staging),
      table_({.ranks = shape.ranks, .in_flight = shape.in_flight, .chunks = max_chunks_of(shape.places)}),
      number_of_(shape.ranks, no_connection),
      returns_(peers.size(), CreditReturn(shape.credits)),
      messages_(peers.size()) {
  for (const PeerConnections& peer : peers) {
    number_of_[peer.rank] = static_cast<uint32_t>(ranks_.size());
    ranks_.push_back(peer.rank);
  }
  touched_.reserve(256);
}

void Receiver::arrive(uint32_t immediate) {
  counts_.arrivals.add(1);
  const Immediate imm = unpack(immediate);
  const uint32_t peer = imm.source < number_of_.size() ? number_of_[imm.source] : no_connection;
  if (peer == no_connection) return counts_.foreign.add(1);
  if (imm.kind == ImmKind::word) return move_word(peer, imm);
  if (imm.kind == ImmKind::message) return accept_message(peer, imm);
  const auto kind = static_cast<Kind>(static_cast<uint32_t>(imm.kind) % num_kinds);
  table_.consume(kind, consumed_.of[static_cast<uint32_t>(kind)].load(std::memory_order_acquire));
  switch (table_.arrive(imm)) {
    case Arrival::repeated:
      return counts_.repeated.add(1);
    case Arrival::stale:
      return counts_.stale.add(1);
    case Arrival::foreign:
      return counts_.foreign.add(1);
    case Arrival::fresh:
      break;
  }
  counts_.early.raise_to(table_.early());
  counts_.deepest.raise_to(table_.deepest());
  return_credit(peer);
  const uint64_t seq = table_.seq_of(kind, imm.epoch);
  if (log_ != nullptr) log_->note(false, imm.source, kind, seq);
  touch(kind, imm.source, seq);
}

void Receiver::return_credit(uint32_t peer) {
  CreditReturn& credit = returns_[peer];
  credit.processed();
  if (credit.is_due()) sender_.send_word(peer, Word::credit, credit.mark_sent());
}

void Receiver::accept_message(uint32_t peer, const Immediate& imm) {
  if (shape_.channel.rows == 0) return counts_.foreign.add(1);
  const bool is_signal = imm.epoch != 0;
  const uint64_t number = messages_[peer].arrive(imm.value, is_signal);
  if (number == 0) return counts_.repeated.add(1);
  return_credit(peer);
  if (staging_ != nullptr && !is_signal) {
    if (staging_->begin_in(imm.source, number)) return;
    counts_.foreign.add(1);
  }
  placed(imm.source, number);
}

void Receiver::placed(uint32_t source, uint64_t number) {
  const uint32_t peer = number_of_[source];
  MessagesIn& messages = messages_[peer];
  messages.place(number);
  messages.advance([&](uint64_t signal) { deliver_signal(source, signal); });
  sender_.send_word(peer, Word::placed, messages.in_order());
}

// It was read before its slot is free.
void Receiver::deliver_signal(uint32_t source, uint64_t number) {
  const SignalMessage signal = shape_.channel.signal_message(source, number);
  if (signal.row >= shape_.channel.rows) return counts_.foreign.add(1);
  store(shape_.channel.words.moved + signal.row * shape_.ranks + source, signal.value);
}

void Receiver::move_word(uint32_t peer, const Immediate& imm) {
  if (imm.epoch == static_cast<uint32_t>(Word::credit)) return sender_.credit_returned(peer, imm.value);
  if (imm.epoch == static_cast<uint32_t>(Word::placed)) {
    if (sender_.placed(peer, imm.value)) store(shape_.channel.words.placed + ranks_[peer], sender_.placed_at(peer));
    return;
  }
  if (imm.epoch == static_cast<uint32_t>(Word::detached)) {
    sender_.lose(peer);  // it accepts nothing more, and returns nothing
    return store(words_.evicted + ranks_[peer], 1);
  }
  if (imm.epoch >= num_kinds) return counts_.foreign.add(1);
  const auto kind = static_cast<Kind>(imm.epoch);
  if (sender_.consumed(peer, kind, imm.value)) {
    store(words_.consumed_of(kind, ranks_[peer]), sender_.consumed_by(peer, kind));
  }
}

const char* Receiver::consume(uint32_t peer, const Command& command) {
  if (command.kind() >= num_kinds) return "the kind of operation does not exist";
  std::atomic<uint64_t>& here = consumed_.of[command.kind()];
  uint64_t known = here.load(std::memory_order_relaxed);
  const auto step = static_cast<int32_t>(command.epoch() - static_cast<uint32_t>(known));
  const uint64_t seq = known + static_cast<uint64_t>(static_cast<int64_t>(step));
  if (step > static_cast<int32_t>(shape_.in_flight)) return "it reports more operations than are in flight";
  if (step < 0 && static_cast<uint64_t>(-static_cast<int64_t>(step)) > known) return "no operation has its number";
  while (known < seq && !here.compare_exchange_weak(known, seq, std::memory_order_release, std::memory_order_relaxed)) {
  }
  if (sender_.discards(peer)) counts_.dropped.add(1);
  sender_.send_word(peer, consumed_word(static_cast<Kind>(command.kind())), seq);
  return nullptr;
}

void Receiver::return_credits() {
  for (uint32_t peer = 0; peer < returns_.size(); ++peer) {
    if (returns_[peer].has_pending()) sender_.send_word(peer, Word::credit, returns_[peer].mark_sent());
  }
}

void Receiver::touch(Kind kind, uint32_t source, uint64_t seq) {
  if (!touched_.empty()) {
    const Touched& last = touched_.back();
    if (last.kind == kind && last.source == source && last.seq == seq) return;
  }
  if (touched_.size() == touched_.capacity()) publish();
  touched_.push_back({kind, source, seq});
}

void Receiver::publish() {
  for (const Touched& one : touched_) {
    store(words_.progress_of(one.kind, one.seq, one.source), table_.progress(one.kind, one.source, one.seq).word());
  }
  touched_.clear();
}

void Receiver::publish_detached(uint32_t peer) {
  store(words_.detached + ranks_[peer], 1);
}

}  // namespace ucclep::proxy

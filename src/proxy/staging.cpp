// SPDX-License-Identifier: Apache-2.0
#include "proxy/staging.hpp"

#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace ucclep::proxy {

Staging::Staging(const ChannelPlaces& places, uint32_t ranks, std::unique_ptr<CopyQueue> copies)
    : places_(places), copies_(std::move(copies)), out_(size_t{ranks} * staged_window) {}

void Staging::keep_window(uint32_t id, void* data, uint64_t bytes) {
  if (windows_.size() <= id) windows_.resize(id + 1);
  windows_[id] = {static_cast<std::byte*>(data), bytes};
}

// NULL: it does not exist.
std::byte* Staging::place(uint32_t id, uint64_t offset, uint64_t bytes) const {
  if (id >= windows_.size()) return nullptr;
  const Window& window = windows_[id];
  return offset <= window.bytes && bytes <= window.bytes - offset ? window.data + offset : nullptr;
}

bool Staging::begin_out(uint32_t rank, uint64_t number, const Message& message) {
  const std::byte* const from = place(message.from_window, message.from_offset, message.bytes);
  if (from == nullptr || message.bytes > staged_piece) return false;
  std::byte* const slot = places_.window + places_.staged_out_at(rank, number);
  const StagedPut put{message.to_offset, message.bytes, message.to_window, 0, {}};
  std::memcpy(slot, &put, sizeof put);
  begin(slot + sizeof put, from, message.bytes, {rank, number, false});
  return true;
}

bool Staging::begin_in(uint32_t rank, uint64_t number) {
  const std::byte* const slot = places_.window + places_.staged_in_at(rank, number);
  StagedPut put;
  std::memcpy(&put, slot, sizeof put);
  std::byte* const to = place(put.to_window, put.to_offset, put.bytes);
  if (to == nullptr || put.bytes > staged_piece) return false;
  begin(to, slot + sizeof put, put.bytes, {rank, number, true});
  return true;
}

void Staging::begin(void* to, const void* from, uint64_t bytes, const Copy& copy) {
  attempt([&] {
    copies_->copy(to, from, bytes);
    begun_.push_back(copy);
  });
}

uint64_t Staging::count_ended() {
  uint64_t ended = ended_;
  if (!begun_.empty()) attempt([&] { ended = copies_->ended(); });
  return ended;
}

template <class Step>
void Staging::attempt(Step&& step) {
  if (failed_) return;
  try {
    step();
  } catch (const Error& error) {
    failed_ = true;
    failure_ = error.what();
  }
}

}  // namespace ucclep::proxy

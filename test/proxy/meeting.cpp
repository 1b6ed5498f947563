// SPDX-License-Identifier: Apache-2.0
#include "meeting.hpp"

#include <fmt/format.h>

#include <chrono>

namespace ucclep::test {
namespace {

constexpr std::chrono::seconds patience{60};

}  // namespace

std::vector<std::vector<std::byte>> Meeting::allgather(uint32_t rank, std::span<const std::byte> mine) {
  std::unique_lock lock(mutex_);
  parts_[rank].assign(mine.begin(), mine.end());
  const uint64_t round = round_;
  ++here_;
  move_on_if_all_are_here();
  const bool met = moved_.wait_for(lock, patience, [&] { return round_ > round || given_up_; });
  if (!met || round_ == round) throw Failure(fmt::format("rank {} met nobody", rank));
  return all_;
}

void Meeting::leave(uint32_t rank) {
  const std::lock_guard lock(mutex_);
  parts_[rank].clear();
  ++gone_;
  move_on_if_all_are_here();
}

void Meeting::come_back() {
  const std::lock_guard lock(mutex_);
  --gone_;
}

void Meeting::move_on_if_all_are_here() {
  if (here_ == 0 || here_ + gone_ < parts_.size()) return;
  all_ = parts_;
  here_ = 0;
  ++round_;
  moved_.notify_all();
}

void Meeting::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  moved_.notify_all();
}

bool Meeting::given_up() {
  const std::lock_guard lock(mutex_);
  return given_up_;
}

}  // namespace ucclep::test

// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/spoke.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"

namespace ucclep {
namespace {

using wire::FrameType;

// What the hub gets to take a text that nobody waits for.
constexpr int notification_ms = 1000;

}  // namespace

Spoke::Spoke(Fd socket, int rank) : rank_(rank), socket_(std::move(socket)) {
  poller_.add(socket_.get());
  thread_ = start_service_thread("ucclep-boot", rank, [this] { serve(); });
}

Spoke::~Spoke() {
  close(Deadline::after_ms(Deadline::grace_ms));
}

std::string Spoke::round(wire::RoundKind kind, const std::string& part, Deadline deadline) {
  std::unique_lock lock(mutex_);
  result_.reset();
  if (over()) throw_why_over();
  uint64_t sequence = next_sequence_++;
  lock.unlock();
  send({.type = FrameType::part, .sequence = sequence, .detail = static_cast<uint32_t>(kind)}, part, deadline);
  lock.lock();
  if (!wait_for_result(lock, deadline)) {
    // The hub answers this with the end of the round for everybody, or that end is on its way already.
    lock.unlock();
    const auto waited = static_cast<uint32_t>(std::min<int64_t>(deadline.total_ms(), UINT32_MAX));
    const Deadline last = deadline.with_grace();
    send({.type = FrameType::give_up, .sequence = sequence, .detail = waited}, "", last);
    lock.lock();
    if (!wait_for_result(lock, last)) {
      fail(ucclEpTimeout, "{}, which coordinates all ranks, did not answer rank {} within {} ms", hub_name_, rank_,
           waited);
    }
  }
  if (!result_) throw_why_over();
  Result result = std::move(*result_);
  if (result.code != ucclEpSuccess) throw Error(result.code, result.payload);
  return std::move(result.payload);
}

bool Spoke::wait_for_result(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  return changed_.wait_until(lock, deadline.at(), [this] { return over(); });
}

void Spoke::throw_why_over() const {
  if (aborted_ && why_aborted_.empty()) fail(ucclEpAborted, "the communicator was aborted by rank {} itself", rank_);
  if (aborted_) fail(ucclEpAborted, "rank {} aborted the communicator: {}", rank_, why_aborted_);
  auto loss = lost_.find(0);
  if (loss != lost_.end()) fail(ucclEpRemoteError, "{}", loss->second);
  // It left because of what this rank, being late, has not met in a round of its own.
  if (!lost_.empty()) fail(ucclEpRemoteError, "{} has left because {}", hub_name_, lost_.begin()->second);
  fail(ucclEpRemoteError, "{} has left the communicator", hub_name_);
}

void Spoke::send(wire::FrameHeader header, const std::string& payload, Deadline deadline) {
  header.length = payload.size();
  std::lock_guard lock(send_mutex_);
  bool sent = send_all(socket_.get(), &header, sizeof(header), deadline) == IoStatus::done &&
              send_all(socket_.get(), payload.data(), payload.size(), deadline) == IoStatus::done;
  // Half a frame would make nonsense of whatever follows; the reading thread sees the end and tells the caller.
  if (!sent) shutdown(socket_.get(), SHUT_RDWR);
}

void Spoke::name_hub(const std::string& name) {
  std::lock_guard lock(mutex_);
  hub_name_ = name;
}

void Spoke::on_loss(LossHandler handler) {
  {
    std::lock_guard lock(handler_mutex_);
    handler_ = std::move(handler);
    reported_.clear();
  }
  report_losses();
}

void Spoke::on_notification(NotificationHandler handler) {
  std::lock_guard lock(handler_mutex_);
  notification_handler_ = std::move(handler);
}

void Spoke::notify(int rank, std::string text) {
  {
    std::lock_guard lock(mutex_);
    to_notify_.emplace_back(rank, std::move(text));
  }
  poller_.wake();
}

bool Spoke::alive(int rank) const {
  std::lock_guard lock(mutex_);
  return !lost_.contains(rank) && !left_.contains(rank);
}

void Spoke::abort(const std::string& why) {
  // Never waits for a caller that is stuck in a send: the end of the connection says as much. Taken before a caller
  // wakes, who may close: nothing is sent between.
  std::unique_lock sending(send_mutex_, std::try_to_lock);
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(aborted_, true)) return;
    why_aborted_ = why;
  }
  changed_.notify_all();
  const wire::FrameHeader header{.type = FrameType::abort, .length = why.size()};
  const Deadline deadline = Deadline::after_ms(100);
  const bool sent = sending && send_all(socket_.get(), &header, sizeof(header), deadline) == IoStatus::done &&
                    send_all(socket_.get(), why.data(), why.size(), deadline) == IoStatus::done;
  if (!sent) shutdown(socket_.get(), SHUT_RDWR);
}

void Spoke::close(Deadline until) {
  if (std::exchange(closed_, true)) return;
  bool aborted = false;
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
    aborted = aborted_;
  }
  // Who has aborted has said so, and is lost to the others.
  if (!aborted) send({.type = FrameType::left, .detail = static_cast<uint32_t>(rank_)}, "", until);
  {
    std::lock_guard lock(send_mutex_);  // an abort's frame has gone out whole
    shutdown(socket_.get(), SHUT_WR);
  }
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until.at(), [this] { return hub_gone_; });
    stopping_ = true;
  }
  poller_.wake();
  thread_.join();
  poller_.remove(socket_.get());  // it is open as long as another thread may abort
}

void Spoke::serve() {
  FrameReader reader;
  for (;;) {
    const auto& events = poller_.wait(-1);
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    send_notifications();
    if (events.empty()) continue;
    IoStatus status = reader.fill(socket_.get());
    while (auto frame = reader.next()) handle(std::move(*frame));
    if (status == IoStatus::closed) return hub_closed();
  }
}

void Spoke::send_notifications() {
  std::vector<std::pair<int, std::string>> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(to_notify_);
  }
  for (const auto& [rank, text] : all) {
    send({.type = FrameType::notify, .detail = static_cast<uint32_t>(rank)}, text, Deadline::after_ms(notification_ms));
  }
}

void Spoke::handle(Frame frame) {
  const wire::FrameHeader& header = frame.header;
  int rank = static_cast<int>(header.detail);
  if (header.type == FrameType::notify) {
    std::lock_guard lock(handler_mutex_);
    if (notification_handler_) notification_handler_(rank, frame.payload);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    if (header.type == FrameType::result && header.sequence + 1 == next_sequence_) {
      result_ = Result{result_of(header.detail), std::move(frame.payload)};
    } else if (header.type == FrameType::lost) {
      lost_.emplace(rank, std::move(frame.payload));
    } else if (header.type == FrameType::left) {
      left_.insert(rank);
    }
  }
  changed_.notify_all();
  if (header.type == FrameType::lost) report_losses();
}

// The handler runs before the caller wakes: whoever sees the Error finds the loss recorded.
void Spoke::hub_closed() {
  {
    std::lock_guard lock(mutex_);
    if (!leaving_ && !left_.contains(0)) {
      lost_.emplace(0, hub_name_ + " has died: its connection closed without a goodbye");
    }
  }
  report_losses();
  {
    std::lock_guard lock(mutex_);
    hub_gone_ = true;
  }
  changed_.notify_all();
}

void Spoke::report_losses() {
  std::lock_guard handler_lock(handler_mutex_);
  if (!handler_) return;
  std::map<int, std::string> lost;
  {
    std::lock_guard lock(mutex_);
    lost = lost_;
  }
  for (const auto& [rank, message] : lost) {
    if (rank != rank_ && reported_.insert(rank).second) handler_(rank, message);
  }
}

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/accept_filter.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "bootstrap/files_limit.hpp"
#include "bootstrap/stream_io.hpp"

namespace ucclep {
namespace {

using std::chrono::milliseconds;

// How long a stranger may say nothing: while there is room, and when others wait for its place.
constexpr milliseconds patience{3000};
constexpr milliseconds crowded_patience{250};
constexpr int pause_ms = 50;
// Accepted in one turn: those that are in already are heard in between.
constexpr int most_accepted = 64;
// Refusals of which each has a line in the log; after them every power of two.
constexpr uint64_t most_lines = 8;

}  // namespace

AcceptFilter::AcceptFilter(Poller& poller, Fd listener, const Token& secret, wire::Purpose purpose, Admit admit)
    : poller_(poller), listener_(std::move(listener)), secret_(secret), purpose_(purpose), admit_(std::move(admit)) {
  poller_.add(listener_.get());
}

bool AcceptFilter::handle(const Poller::Event& event) {
  if (listener_ && event.fd == listener_.get()) {
    knocked_ = true;
    return true;
  }
  auto found = by_descriptor_.find(event.fd);
  if (found == by_descriptor_.end()) return false;
  hear(found->second);
  return true;
}

void AcceptFilter::tend() {
  const auto now = Clock::now();
  while (!strangers_.empty() && now - strangers_.front().since >= patience) {
    if (!hear(strangers_.begin())) drop(strangers_.begin(), "said nothing for three seconds");
  }
  if (std::exchange(paused_, false) && listener_) poller_.add(listener_.get());
  if (std::exchange(knocked_, false) && listener_) accept_some();
}

void AcceptFilter::accept_some() {
  const size_t places = places_for_strangers();
  for (int i = 0; i < most_accepted && listener_; ++i) {
    if (strangers_.size() >= places && !make_room()) return pause();
    SocketAddress address;
    Fd socket;
    try {
      socket = accept_from(listener_.get(), &address);
    } catch (const Error& error) {
      if (make_room()) continue;
      log::warn("bootstrap", "{}; trying again", error.what());
      return pause();
    }
    if (!socket) return;
    raise_files_limit(socket.get());
    take_in(std::move(socket), address);
  }
}

void AcceptFilter::take_in(Fd socket, const SocketAddress& address) {
  const int number = socket.get();
  try {
    poller_.add(number);
  } catch (const Error&) {
    return refused(address, "could not be watched");
  }
  strangers_.push_back({std::move(socket), address, Clock::now(), {}, 0});
  const Entry entry = std::prev(strangers_.end());
  by_descriptor_[number] = entry;
  hear(entry);
}

// True: it is no stranger any more, or was dropped.
bool AcceptFilter::hear(Entry stranger) {
  wire::Greeting& greeting = stranger->greeting;
  IoStatus status = receive_some(stranger->socket.get(), &greeting, sizeof(greeting), &stranger->have);
  const char* why = nullptr;
  if (stranger->have >= sizeof(greeting.magic) && greeting.magic != wire::magic) {
    why = "sent something else";
  } else if (status == IoStatus::closed) {
    why = "hung up";
  } else if (status == IoStatus::again) {
    return false;
  } else if (!same_secret(greeting.secret, secret_)) {
    why = "does not know the secret";
  } else if (greeting.purpose != purpose_) {
    why = "wants something else";
  }
  if (why != nullptr) {
    drop(stranger, why);
    return true;
  }
  Stranger guest = forget(stranger);
  tune_connection(guest.socket.get());
  admit_(std::move(guest.socket), guest.greeting);
  return true;
}

// Of those that have not spoken the oldest goes; not while it may be about to speak.
bool AcceptFilter::make_room() {
  if (strangers_.empty()) return false;
  const Entry oldest = strangers_.begin();
  if (hear(oldest)) return true;
  if (Clock::now() - oldest->since < crowded_patience) return false;
  drop(oldest, "said nothing while others waited");
  return true;
}

void AcceptFilter::drop(Entry stranger, const char* why) {
  const SocketAddress address = forget(stranger).address;
  refused(address, why);
}

AcceptFilter::Stranger AcceptFilter::forget(Entry stranger) {
  Stranger gone = std::move(*stranger);
  poller_.remove(gone.socket.get());
  by_descriptor_.erase(gone.socket.get());
  strangers_.erase(stranger);
  return gone;
}

// Whoever knocks a thousand times a second must not fill the log.
void AcceptFilter::refused(const SocketAddress& address, const char* why) {
  ++refused_;
  if (refused_ <= most_lines) {
    log::warn("bootstrap", "refused a connection from {}: it {}", address.text(), why);
  } else if (std::has_single_bit(refused_)) {
    log::warn("bootstrap", "refused {} connections so far, the last from {}: it {}", refused_, address.text(), why);
  }
}

void AcceptFilter::pause() {
  poller_.remove(listener_.get());
  paused_ = true;
}

int AcceptFilter::wait_ms() const {
  int wait = paused_ ? pause_ms : -1;
  if (!strangers_.empty()) {
    const auto left = std::chrono::ceil<milliseconds>(strangers_.front().since + patience - Clock::now());
    const int left_ms = std::max(0, static_cast<int>(left.count()));
    wait = wait < 0 ? left_ms : std::min(wait, left_ms);
  }
  return wait;
}

void AcceptFilter::close() {
  if (listener_ && !paused_) poller_.remove(listener_.get());
  listener_.reset();
  for (const Stranger& stranger : strangers_) poller_.remove(stranger.socket.get());
  strangers_.clear();
  by_descriptor_.clear();
}

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/accept_filter.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "bootstrap/stream_io.hpp"

namespace ucclep {
namespace {

constexpr int patience_ms = 3000;
constexpr int pause_ms = 100;
constexpr size_t max_strangers = 1024;

}  // namespace

AcceptFilter::AcceptFilter(Poller& poller, Fd listener, const Token& secret, wire::Purpose purpose, Admit admit)
    : poller_(poller), listener_(std::move(listener)), secret_(secret), purpose_(purpose), admit_(std::move(admit)) {
  poller_.add(listener_.get());
}

bool AcceptFilter::handle(const Poller::Event& event) {
  if (listener_ && event.fd == listener_.get()) {
    accept_all();
    return true;
  }
  auto found = strangers_.find(event.fd);
  if (found == strangers_.end()) return false;
  listen_to(found->first, found->second);
  return true;
}

void AcceptFilter::accept_all() {
  for (;;) {
    SocketAddress address;
    Fd socket;
    try {
      socket = accept_from(listener_.get(), &address);
    } catch (const Error& error) {
      if (drop_oldest()) continue;
      log::warn("bootstrap", "{}; trying again", error.what());
      poller_.remove(listener_.get());
      paused_ = true;
      return;
    }
    if (!socket) return;
    if (strangers_.size() >= max_strangers) drop_oldest();
    int number = socket.get();
    poller_.add(number);
    Stranger stranger{std::move(socket), address, Deadline::after_ms(patience_ms), {}, 0};
    strangers_.insert_or_assign(number, std::move(stranger));
  }
}

void AcceptFilter::listen_to(int socket, Stranger& stranger) {
  wire::Greeting& greeting = stranger.greeting;
  IoStatus status = receive_some(socket, &greeting, sizeof(greeting), &stranger.have);
  if (stranger.have >= sizeof(greeting.magic) && greeting.magic != wire::magic)
    return drop(socket, "sent something else");
  if (status == IoStatus::closed) return drop(socket, "hung up");
  if (status == IoStatus::again) return;
  if (!same_secret(greeting.secret, secret_)) return drop(socket, "does not know the secret");
  if (greeting.purpose != purpose_) return drop(socket, "wants something else");
  tune_connection(socket);
  poller_.remove(socket);
  auto guest = strangers_.extract(socket);
  admit_(std::move(guest.mapped().socket), guest.mapped().greeting);
}

void AcceptFilter::drop(int socket, const char* why) {
  auto found = strangers_.find(socket);
  log::warn("bootstrap", "refused a connection from {}: it {}", found->second.address.text(), why);
  poller_.remove(socket);
  strangers_.erase(found);
}

bool AcceptFilter::drop_oldest() {
  auto oldest = std::min_element(strangers_.begin(), strangers_.end(), [](const auto& a, const auto& b) {
    return a.second.patience.at() < b.second.patience.at();
  });
  if (oldest == strangers_.end()) return false;
  drop(oldest->first, "was the oldest of too many that said nothing");
  return true;
}

void AcceptFilter::drop_silent() {
  for (auto it = strangers_.begin(); it != strangers_.end();) {
    int socket = it->first;
    bool silent = (it++)->second.patience.expired();
    if (silent) drop(socket, "said nothing for three seconds");
  }
  if (std::exchange(paused_, false) && listener_) {
    poller_.add(listener_.get());
  }
}

int AcceptFilter::wait_ms() const {
  int wait = paused_ ? pause_ms : -1;
  for (const auto& [socket, stranger] : strangers_) {
    int left = stranger.patience.poll_ms();
    wait = wait < 0 ? left : std::min(wait, left);
  }
  return wait;
}

void AcceptFilter::close() {
  if (listener_ && !paused_) poller_.remove(listener_.get());
  listener_.reset();
  for (const auto& [socket, stranger] : strangers_) poller_.remove(socket);
  strangers_.clear();
}

}  // namespace ucclep

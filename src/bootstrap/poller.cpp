// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/poller.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/error.hpp"

namespace ucclep {

Poller::Poller()
    : epoll_(Fd::process_private(epoll_create1(EPOLL_CLOEXEC))),
      wake_(Fd::process_private(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  if (!epoll_ || !wake_) fail(ucclEpSystemError, "cannot create epoll and eventfd: {}", errno_text(errno));
  add(wake_.get());
}

void Poller::control(int operation, int fd, bool writable) {
  epoll_event event{};
  event.events = EPOLLIN | (writable ? static_cast<uint32_t>(EPOLLOUT) : 0U);
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0) fail(ucclEpSystemError, "epoll_ctl: {}", errno_text(errno));
}

void Poller::add(int fd, bool writable) {
  control(EPOLL_CTL_ADD, fd, writable);
}
void Poller::want_write(int fd, bool writable) {
  control(EPOLL_CTL_MOD, fd, writable);
}
void Poller::remove(int fd) noexcept {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

const std::vector<Poller::Event>& Poller::wait(int timeout_ms) {
  std::array<epoll_event, 64> ready;
  int count = epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), timeout_ms);
  if (count < 0 && errno != EINTR) fail(ucclEpSystemError, "epoll_wait: {}", errno_text(errno));
  events_.clear();
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<size_t>(i)];
    if (event.data.fd == wake_.get()) {
      uint64_t calls = 0;
      [[maybe_unused]] ssize_t taken = read(wake_.get(), &calls, sizeof(calls));
      continue;
    }
    bool readable = (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
    events_.push_back({event.data.fd, readable, (event.events & EPOLLOUT) != 0});
  }
  return events_;
}

void Poller::wake() noexcept {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(wake_.get(), &one, sizeof(one));
}

}  // namespace ucclep

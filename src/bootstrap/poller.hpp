// SPDX-License-Identifier: Apache-2.0
// What a service thread waits on: many sockets and a wake-up call from other threads. A thin owner of epoll.
#pragma once
#include <cstdint>
#include <vector>

#include "base/fd.hpp"

namespace ucclep {

class Poller {
 public:
  struct Event {
    int fd;
    bool readable;  // data, end of stream, or an error that the next read reports
    bool writable;
  };

  Poller();
  void add(int fd, bool writable = false);
  void want_write(int fd, bool writable);
  void remove(int fd) noexcept;  // before it is closed

  // -1: until something happens. A wake-up gives an empty list, and stays until the next wait returns.
  const std::vector<Event>& wait(int timeout_ms);
  void wake() noexcept;  // any thread, also a signal handler

 private:
  void control(int operation, int fd, bool writable);
  Fd epoll_;
  Fd wake_;
  std::vector<Event> events_;
};

}  // namespace ucclep

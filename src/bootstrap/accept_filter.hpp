// SPDX-License-Identifier: Apache-2.0
// Accepts connections and lets in those that greet with the secret. A stranger who sends something else is dropped at
// once, one who says nothing after a few seconds; neither holds up the others.
#pragma once
#include <functional>
#include <map>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "base/token.hpp"
#include "bootstrap/poller.hpp"
#include "bootstrap/wire.hpp"

namespace ucclep {

class AcceptFilter {
 public:
  // The descriptor is no longer watched by the poller when admit gets it.
  using Admit = std::function<void(Fd socket, const wire::Greeting& greeting)>;

  AcceptFilter(Poller& poller, Fd listener, const Token& secret, wire::Purpose purpose, Admit admit);

  // False: the event is not the accept filter's.
  bool handle(const Poller::Event& event);
  void drop_silent();   // after every wait
  int wait_ms() const;  // until drop_silent() has something to do; -1: nothing
  bool open() const { return static_cast<bool>(listener_); }
  void close();

 private:
  struct Stranger {
    Fd socket;
    SocketAddress address;
    Deadline patience;
    wire::Greeting greeting;
    size_t have = 0;
  };
  void accept_all();
  void listen_to(int socket, Stranger& stranger);
  void drop(int socket, const char* why);
  bool drop_oldest();

  Poller& poller_;
  Fd listener_;
  Token secret_;
  wire::Purpose purpose_;
  Admit admit_;
  std::map<int, Stranger> strangers_;  // by descriptor
  bool paused_ = false;                // descriptors have run out: not accepting for a moment
};

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// Accepts connections and lets in those that prove that they know the secret (handshake.hpp). A stranger who sends
// something else is dropped at once, one who says nothing after a few seconds, or sooner when others wait for its
// place.
//
// Whoever has spoken is heard before anybody is dropped: connections are accepted after the events of a wait, each is
// read as it is accepted, and once more before it is dropped. So ranks, which speak at once, always come in, and
// strangers take no more than a few of the process's descriptors and a few lines of the log.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <string>

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

  // The process has no descriptor left for anybody, though no stranger has one.
  using Full = std::function<void(const std::string& text)>;

  AcceptFilter(Poller& poller, Fd listener, const Token& secret, wire::Purpose purpose, Admit admit, Full full);

  // False: the event is not the accept filter's.
  bool handle(const Poller::Event& event);
  void tend();          // after the events of every wait: drops who is silent, accepts who knocks
  int wait_ms() const;  // until tend() has something to do; -1: nothing
  bool open() const { return static_cast<bool>(listener_); }
  void close();

 private:
  using Clock = Deadline::Clock;
  struct Stranger {
    Fd socket;
    SocketAddress address;
    Clock::time_point since;
    wire::Greeting greeting;
    size_t have = 0;  // of the greeting, then of the proof
    bool greeted = false;
    wire::Challenge challenge;
    wire::Proof proof;
  };
  using Queue = std::list<Stranger>;
  using Entry = Queue::iterator;

  void accept_some();
  void refuse_for_want_of_files();
  void take_in(Fd socket, const SocketAddress& address);
  bool hear(Entry stranger);
  const char* hear_greeting(Entry stranger);
  const char* hear_proof(Stranger& stranger);
  bool drop_impatiently(Queue& queue, std::chrono::milliseconds patience, const char* why);
  bool make_room();
  void drop(Entry stranger, const char* why);
  Stranger forget(Entry stranger);
  void refused(const SocketAddress& address, const char* why);
  void pause();

  Poller& poller_;
  Fd listener_;
  Token secret_;
  wire::Purpose purpose_;
  Admit admit_;
  Full full_;
  Fd spare_;  // closed, it makes room to tell somebody that there is none
  // Who came first stands first: those that have not greeted, and those that have not proved themselves.
  Queue silent_, greeted_;
  std::map<int, Entry> by_descriptor_;
  bool knocked_ = false;
  bool paused_ = false;  // no place for anybody: not accepting for a moment
  uint64_t refused_ = 0;
};

}  // namespace ucclep

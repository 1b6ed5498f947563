// SPDX-License-Identifier: Apache-2.0
// Where ranks that know only a unique id meet. It lives in a thread of the process that made the id, waits for all
// ranks, tells each where rank 0's hub is, and ends. If the ranks do not fit together, or one gives up, every one of
// them, late ones included, hears the same message.
#pragma once
#include <string>

#include "base/deadline.hpp"
#include "bootstrap/stream_io.hpp"
#include "bootstrap/unique_id.hpp"
#include "bootstrap/wire.hpp"

namespace ucclep {

// Starts the thread. It needs no end: it goes when all ranks were there, or with the process.
UniqueId start_rendezvous(const std::string& socket_ifname);

// The rank's side. The caller may look at local_side(socket) before it sends its greeting.
class RendezvousVisit {
 public:
  RendezvousVisit(const UniqueId& id, Deadline deadline);
  int socket() const { return socket_.get(); }
  // Throws the Error that the rendezvous declares for all, or ucclEpTimeout / ucclEpRemoteError if it is silent or
  // gone. A rendezvous that hangs up is called again until the deadline.
  wire::Verdict meet(wire::Greeting greeting);
  // One attempt. greeting: with its nonce.
  IoStatus ask(int socket, const wire::Greeting& greeting, wire::Verdict* verdict) const;

 private:
  UniqueId id_;
  Deadline deadline_;
  Fd socket_;
};

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// Where ranks that know only a unique id meet. It lives in a thread of the process that made the id, waits for all
// ranks, tells each where rank 0's hub is, and ends. If the ranks do not fit together, or one gives up, every one of
// them, late ones included, hears the same message.
#pragma once
#include <string>

#include "base/deadline.hpp"
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
  // gone.
  wire::Verdict meet(wire::Greeting greeting);

 private:
  UniqueId id_;
  Deadline deadline_;
  Fd socket_;
};

}  // namespace ucclep

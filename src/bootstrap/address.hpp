// SPDX-License-Identifier: Apache-2.0
// TCP endpoints: which interface to use, listening, connecting before a deadline. All sockets are non-blocking,
// close-on-exec and closed in forked children.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/fd.hpp"

namespace ucclep {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  std::string text() const;  // "10.0.0.5:4321", "[fd00::5]:4321"
};

// The same as it travels in ids and messages.
struct WireAddress {
  uint16_t family = 0;  // 4 or 6
  uint16_t port = 0;
  uint32_t scope = 0;
  uint8_t ip[16] = {};
};
static_assert(sizeof(WireAddress) == 24);

WireAddress to_wire(const SocketAddress& address);
// Throws Error(ucclEpInvalidArgument) on an unknown family.
SocketAddress from_wire(const WireAddress& wire);

// The address under which other machines reach this one (port 0). ifname as users of NCCL know it: a comma-separated
// list of prefixes ("eth,ib"), of exact names after "=" ("=eth0"), either of them excluded after "^" ("^docker,lo").
// Empty: the first real interface, else an address of the loopback interface that others can reach, else a virtual
// bridge, else loopback. An IPv6 address that the kernel still tries out is waited for, as long as that takes.
// Throws Error(ucclEpInvalidArgument) that lists the interfaces, when none matches.
SocketAddress local_address(const std::string& ifname);

// What an interface has to offer; which is the best of several is decided without looking at the machine.
struct InterfaceAddress {
  std::string name;
  SocketAddress address;
  bool loopback = false;   // the interface is
  bool tentative = false;  // nothing can be bound to it yet
};
// The lines of /proc/net/if_inet6 say which addresses are tentative.
void mark_tentative(const std::string& if_inet6, std::vector<InterfaceAddress>* all);
// Null: none matches.
const InterfaceAddress* best_address(const std::vector<InterfaceAddress>& all, const std::string& ifname);

Fd listen_on(const SocketAddress& address, SocketAddress* bound);
// Empty when there is nothing to accept now. Throws Error(ucclEpSystemError) when descriptors have run out.
Fd accept_from(int listener, SocketAddress* peer);
// what heads the message of the Error: Timeout, RemoteError (nobody listens there), SystemError.
Fd connect_to(const SocketAddress& address, Deadline deadline, const std::string& what);
SocketAddress local_side(int socket);

// Finds dead machines, and sends small messages at once.
void tune_connection(int socket);

}  // namespace ucclep

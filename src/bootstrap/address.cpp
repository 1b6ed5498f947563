// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace ucclep {
namespace {

sockaddr_in* v4(SocketAddress& address) {
  return reinterpret_cast<sockaddr_in*>(&address.storage);
}
sockaddr_in6* v6(SocketAddress& address) {
  return reinterpret_cast<sockaddr_in6*>(&address.storage);
}
const sockaddr_in* v4(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in*>(&address.storage);
}
const sockaddr_in6* v6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6*>(&address.storage);
}

std::vector<InterfaceAddress> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) fail(ucclEpSystemError, "cannot list the network interfaces: {}", errno_text(errno));
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    InterfaceAddress one;
    one.name = entry->ifa_name;
    one.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    one.address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&one.address.storage, entry->ifa_addr, one.address.length);
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(one.address)->sin6_addr)) continue;
    found.push_back(one);
  }
  std::ifstream file("/proc/net/if_inet6");
  mark_tentative({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, &found);
  return found;
}

// 127.0.0.0/8 and ::1, which no other machine reaches.
bool is_local_only(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&v6(address)->sin6_addr);
  return ntohl(v4(address)->sin_addr.s_addr) >> 24 == 127;
}

std::string hex(const sockaddr_in6& address) {
  std::string text;
  for (const uint8_t byte : address.sin6_addr.s6_addr) text += fmt::format("{:02x}", byte);
  return text;
}

class NameFilter {
 public:
  explicit NameFilter(std::string_view text) {
    if (!text.empty() && text.front() == '^') {
      exclude_ = true;
      text.remove_prefix(1);
    }
    if (!text.empty() && text.front() == '=') {
      exact_ = true;
      text.remove_prefix(1);
    }
    while (!text.empty()) {
      size_t comma = std::min(text.find(','), text.size());
      if (comma > 0) names_.emplace_back(text.substr(0, comma));
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
  }
  bool accepts(const std::string& name) const {
    bool listed = std::any_of(names_.begin(), names_.end(), [&](const std::string& wanted) {
      return exact_ ? name == wanted : name.starts_with(wanted);
    });
    return listed != exclude_;
  }

 private:
  bool exclude_ = false;
  bool exact_ = false;
  std::vector<std::string> names_;
};

// Smaller is better: what can be bound now, real before virtual before loopback, IPv4 before IPv6. Hosts of routed
// networks have their address on the loopback interface.
int preference(const InterfaceAddress& one) {
  static constexpr const char* bridges[] = {"docker", "virbr", "veth", "br-", "cni", "flannel", "cali", "podman"};
  bool bridge = std::any_of(std::begin(bridges), std::end(bridges),
                            [&](const char* prefix) { return one.name.starts_with(prefix); });
  int kind = bridge ? 2 : 0;
  if (one.loopback) kind = is_local_only(one.address) ? 3 : 1;
  return 4 * kind + (one.tentative ? 2 : 0) + (one.address.storage.ss_family == AF_INET6 ? 1 : 0);
}

// 0, or the errno with which the connection failed. Empty-handed at the deadline: ETIMEDOUT.
int finish_connect(int socket, Deadline deadline) {
  for (;;) {
    pollfd wait{socket, POLLOUT, 0};
    int ready = poll(&wait, 1, deadline.poll_ms());
    if (ready > 0) break;
    if (ready == 0 && deadline.expired()) return ETIMEDOUT;
    if (ready < 0 && errno != EINTR) return errno;
  }
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

Fd new_socket(int family) {
  Fd fd = Fd::process_private(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail(ucclEpSystemError, "cannot create a TCP socket: {}", errno_text(errno));
  return fd;
}

}  // namespace

std::string SocketAddress::text() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &v4(*this)->sin_addr, host, sizeof(host));
    return fmt::format("{}:{}", host, ntohs(v4(*this)->sin_port));
  }
  inet_ntop(AF_INET6, &v6(*this)->sin6_addr, host, sizeof(host));
  return fmt::format("[{}]:{}", host, ntohs(v6(*this)->sin6_port));
}

WireAddress to_wire(const SocketAddress& address) {
  WireAddress wire;
  if (address.storage.ss_family == AF_INET) {
    wire.family = 4;
    wire.port = ntohs(v4(address)->sin_port);
    std::memcpy(wire.ip, &v4(address)->sin_addr, 4);
  } else {
    wire.family = 6;
    wire.port = ntohs(v6(address)->sin6_port);
    wire.scope = v6(address)->sin6_scope_id;
    std::memcpy(wire.ip, &v6(address)->sin6_addr, 16);
  }
  return wire;
}

SocketAddress from_wire(const WireAddress& wire) {
  SocketAddress address;
  if (wire.family == 4) {
    address.length = sizeof(sockaddr_in);
    v4(address)->sin_family = AF_INET;
    v4(address)->sin_port = htons(wire.port);
    std::memcpy(&v4(address)->sin_addr, wire.ip, 4);
  } else if (wire.family == 6) {
    address.length = sizeof(sockaddr_in6);
    v6(address)->sin6_family = AF_INET6;
    v6(address)->sin6_port = htons(wire.port);
    v6(address)->sin6_scope_id = wire.scope;
    std::memcpy(&v6(address)->sin6_addr, wire.ip, 16);
  } else {
    fail(ucclEpInvalidArgument, "an address of family {} is neither IPv4 nor IPv6", wire.family);
  }
  return address;
}

void mark_tentative(const std::string& if_inet6, std::vector<InterfaceAddress>* all) {
  constexpr unsigned tentative = 0x40;  // IFA_F_TENTATIVE
  std::istringstream lines(if_inet6);
  std::string address, index, prefix, scope, flags, name;
  while (lines >> address >> index >> prefix >> scope >> flags >> name) {
    if ((std::strtoul(flags.c_str(), nullptr, 16) & tentative) == 0) continue;
    for (InterfaceAddress& one : *all) {
      const bool same =
          one.address.storage.ss_family == AF_INET6 && one.name == name && hex(*v6(one.address)) == address;
      one.tentative = one.tentative || same;
    }
  }
}

const InterfaceAddress* best_address(const std::vector<InterfaceAddress>& all, const std::string& ifname) {
  const NameFilter filter(ifname);
  const InterfaceAddress* best = nullptr;
  for (const InterfaceAddress& one : all) {
    if (!ifname.empty() && !filter.accepts(one.name)) continue;
    if (best == nullptr || preference(one) < preference(*best)) best = &one;
  }
  return best;
}

SocketAddress local_address(const std::string& ifname) {
  constexpr int trial_ms = 5000;  // the kernel takes one or two seconds
  const Deadline deadline = Deadline::after_ms(trial_ms);
  std::vector<InterfaceAddress> all = interfaces();
  const InterfaceAddress* best = best_address(all, ifname);
  while (best != nullptr && best->tentative && !deadline.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    all = interfaces();
    best = best_address(all, ifname);
  }
  if (best != nullptr) return best->address;
  if (ifname.empty()) fail(ucclEpSystemError, "no network interface of this machine is up, not even loopback");
  std::string names;
  for (const InterfaceAddress& one : all) {
    if (names.find(one.name) == std::string::npos) names += (names.empty() ? "" : ", ") + one.name;
  }
  fail(ucclEpInvalidArgument,
       "UCCLEP_SOCKET_IFNAME=\"{}\" matches no interface that is up and has an address; there are: {}", ifname, names);
}

Fd listen_on(const SocketAddress& address, SocketAddress* bound) {
  Fd fd = new_socket(address.storage.ss_family);
  if (bind(fd.get(), address.raw(), address.length) != 0 || listen(fd.get(), 4096) != 0) {
    fail(ucclEpSystemError, "cannot listen on {}: {}", address.text(), errno_text(errno));
  }
  *bound = local_side(fd.get());
  return fd;
}

Fd accept_from(int listener, SocketAddress* peer) {
  for (;;) {
    peer->length = sizeof(peer->storage);
    int fd =
        accept4(listener, reinterpret_cast<sockaddr*>(&peer->storage), &peer->length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return Fd::process_private(fd);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Fd();
    bool transient = errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == EPERM ||
                     errno == ENETDOWN || errno == ENETUNREACH || errno == EHOSTDOWN || errno == EHOSTUNREACH ||
                     errno == ENOPROTOOPT;
    if (!transient) fail(ucclEpSystemError, "cannot accept a connection: {}", errno_text(errno));
    // A connection that failed before it was accepted: the next one.
  }
}

Fd connect_to(const SocketAddress& address, Deadline deadline, const std::string& what) {
  Fd fd = new_socket(address.storage.ss_family);
  int error = connect(fd.get(), address.raw(), address.length) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) error = finish_connect(fd.get(), deadline);
  // A socket that looks for a free port may pick the very port it calls, and then reaches itself.
  if (error == 0 && local_side(fd.get()).text() == address.text()) error = ECONNREFUSED;
  if (error == 0) {
    tune_connection(fd.get());
    return fd;
  }
  if (error == ETIMEDOUT && deadline.expired()) {
    fail(ucclEpTimeout, "{} at {} did not answer within {} ms", what, address.text(), deadline.total_ms());
  }
  if (error == ECONNREFUSED) fail(ucclEpRemoteError, "{} at {} is closed: nothing listens there", what, address.text());
  fail(ucclEpSystemError, "cannot connect to {} at {}: {}", what, address.text(), std::strerror(error));
}

SocketAddress local_side(int socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    fail(ucclEpSystemError, "cannot read the address of a socket: getsockname: {}", errno_text(errno));
  }
  return address;
}

void tune_connection(int socket) {
  auto set = [socket](int level, int option, int value) { setsockopt(socket, level, option, &value, sizeof(value)); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);
}

}  // namespace ucclep

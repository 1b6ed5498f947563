// SPDX-License-Identifier: Apache-2.0
#include "transport/channel.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "options.hpp"

namespace ucclep::perf {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = host.empty() ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (code != 0) throw UsageError(fmt::format("{}:{}: {}", host, port, gai_strerror(code)));
  return {found, freeaddrinfo};
}

Fd socket_for(const addrinfo& address) {
  Fd fd(socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
  if (!fd) fail(ucclEpSystemError, "cannot create a socket: {}", std::strerror(errno));
  return fd;
}

Fd without_delay(Fd fd) {
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

}  // namespace

std::pair<Fd, Fd> Channel::pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    fail(ucclEpSystemError, "cannot create a pair of sockets: {}", std::strerror(errno));
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

Fd Channel::listen(const std::string& port, int timeout_ms) {
  const Addresses address = resolve("", port);
  const Fd listener = socket_for(*address);
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener.get(), address->ai_addr, address->ai_addrlen) != 0 || ::listen(listener.get(), 1) != 0) {
    fail(ucclEpSystemError, "cannot listen on port {}: {}", port, std::strerror(errno));
  }
  pollfd wait{listener.get(), POLLIN, 0};
  const int ready = poll(&wait, 1, timeout_ms);
  if (ready == 0) fail(ucclEpTimeout, "port {}: no other side connected within {} ms", port, timeout_ms);
  if (ready < 0) fail(ucclEpSystemError, "cannot listen on port {}: {}", port, std::strerror(errno));
  Fd accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!accepted) fail(ucclEpSystemError, "cannot accept a connection: {}", std::strerror(errno));
  return without_delay(std::move(accepted));
}

Fd Channel::connect(const std::string& host_and_port, int timeout_ms) {
  const size_t colon = host_and_port.rfind(':');
  if (colon == std::string::npos) throw UsageError(fmt::format("--connect {}: expected HOST:PORT", host_and_port));
  const Addresses address = resolve(host_and_port.substr(0, colon), host_and_port.substr(colon + 1));
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  for (;;) {
    Fd fd = socket_for(*address);
    if (::connect(fd.get(), address->ai_addr, address->ai_addrlen) == 0) return without_delay(std::move(fd));
    if (deadline.expired()) fail(ucclEpTimeout, "cannot connect to {}: {}", host_and_port, std::strerror(errno));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void Channel::send(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket_.get(), next, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) fail(ucclEpRemoteError, "cannot send to the other side: {}", std::strerror(errno));
    next += sent;
    bytes -= static_cast<size_t>(sent);
  }
}

void Channel::receive(void* data, size_t bytes, const std::function<void()>& meanwhile) {
  char* next = static_cast<char*>(data);
  const Deadline deadline = Deadline::after_ms(timeout_ms_);
  while (bytes > 0) {
    const ssize_t got = recv(socket_.get(), next, bytes, MSG_DONTWAIT);
    if (got > 0) {
      next += got;
      bytes -= static_cast<size_t>(got);
      continue;
    }
    if (got == 0) fail(ucclEpRemoteError, "the other side closed the connection");
    if (errno != EAGAIN && errno != EINTR)
      fail(ucclEpRemoteError, "cannot receive from the other side: {}", std::strerror(errno));
    if (deadline.expired()) fail(ucclEpTimeout, "the other side sent nothing for {} ms", timeout_ms_);
    meanwhile();
    // Asleep: beside a side that only waits, a baseline has the CPUs for itself.
    pollfd wait{socket_.get(), POLLIN, 0};
    poll(&wait, 1, 1);
  }
}

}  // namespace ucclep::perf

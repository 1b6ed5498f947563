// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/descriptor_label.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace ucclep {

bool same_user(int socket) {
  ucred other{};
  socklen_t length = sizeof(other);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == geteuid();
}

void send_label(int socket, const Label& label, int fd, int to) {
  iovec data{const_cast<Label*>(&label), sizeof(label)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  // A fresh socket has room for so little; a peer that hung up is noticed when its answer is missing.
  if (sent < 0 && errno != EPIPE && errno != ECONNRESET) {
    fail(ucclEpSystemError, "cannot send a descriptor to rank {}: {}", to, errno_text(errno));
  }
}

IoStatus receive_label(Incoming& in) {
  while (in.have < sizeof(in.label)) {
    iovec data{reinterpret_cast<char*>(&in.label) + in.have, sizeof(in.label) - in.have};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ssize_t got = recvmsg(in.socket.get(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return IoStatus::again;
    if (got <= 0) return IoStatus::closed;
    in.have += static_cast<size_t>(got);
    in.lost = in.lost || (message.msg_flags & MSG_CTRUNC) != 0;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      // Of all that a stranger sends, each is owned at once: the last one stays.
      for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + at, sizeof(fd));
        in.received = Fd(fd);
      }
    }
  }
  return IoStatus::done;
}

}  // namespace ucclep

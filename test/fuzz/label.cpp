// SPDX-License-Identifier: Apache-2.0
// The label with which a descriptor travels between processes. An input is a list of {how, length, bytes}, each of them
// a message; the low bits of `how` say how many descriptors go with it.
#include <fcntl.h>
#include <sys/socket.h>

#include <vector>

#include "bootstrap/descriptor_label.hpp"
#include "target.hpp"

using namespace ucclep;

namespace {

void send_message(int socket, std::string_view bytes, size_t descriptors) {
  alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptors > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    const int fds[3] = {socket, socket, socket};
    std::memcpy(CMSG_DATA(header), fds, descriptors * sizeof(int));
  }
  sendmsg(socket, &message, MSG_NOSIGNAL);
}

int open_files() {
  int count = 0;
  for (int fd = 0; fd < 64; ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int before = open_files();
  {
    fuzz::Input input(data, size);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return 0;
    const Fd stranger(pair[1]);
    Incoming in;
    in.socket = Fd(pair[0]);
    IoStatus status = IoStatus::again;
    while (!input.empty() && status == IoStatus::again) {
      const size_t descriptors = input.byte() % 4;
      send_message(stranger.get(), input.take(input.byte()), descriptors);
      status = receive_label(in);
    }
    fuzz::require((status == IoStatus::done) == (in.have == sizeof in.label), "a label is done when it is whole");
  }
  fuzz::require(open_files() == before, "no descriptor is left behind");
  return 0;
}

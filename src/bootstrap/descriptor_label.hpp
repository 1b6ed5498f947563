// SPDX-License-Identifier: Apache-2.0
// How a descriptor travels over a unix socket: with a label that says whose it is.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "base/hmac.hpp"
#include "bootstrap/stream_io.hpp"

namespace ucclep {

// What goes with a descriptor: proof that the sender belongs to the communicator, and who it is.
struct Label {
  Mac proof{};  // of the receiver's door and the sender's rank, by the communicator's secret
  int32_t rank = 0;
};

// A connection on which a label and a descriptor are to arrive.
struct Incoming {
  Fd socket;
  int rank = -1;  // -1: the other side opened the connection, and has yet to say who it is
  Deadline::Clock::time_point since = Deadline::Clock::now();
  Label label;
  size_t have = 0;
  Fd received;
  bool lost = false;  // a descriptor came for which this process had no place
};

// Whether the other end of a unix socket belongs to this process's user: as the kernel says, for when it connected, or
// listened.
bool same_user(int socket);
// fd -1: the label alone.
void send_label(int socket, const Label& label, int fd, int to);
// Takes what is there. Descriptors come with the first byte.
IoStatus receive_label(Incoming& in);

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// How a descriptor travels over a unix socket: with a label that says whose it is.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/fd.hpp"
#include "base/token.hpp"
#include "bootstrap/stream_io.hpp"

namespace ucclep {

// What goes with a descriptor: proof that the sender belongs to the communicator, and who it is.
struct Label {
  Token secret;  // the receiver's
  int32_t rank = 0;
};

// A connection on which a label and a descriptor are to arrive.
struct Incoming {
  Fd socket;
  int rank = -1;  // -1: the other side opened the connection, and has yet to say who it is
  Label label;
  size_t have = 0;
  Fd received;
};

// fd -1: the label alone.
void send_label(int socket, const Label& label, int fd, int to);
// Takes what is there. Descriptors come with the first byte.
IoStatus receive_label(Incoming& in);

}  // namespace ucclep

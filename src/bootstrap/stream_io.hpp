// SPDX-License-Identifier: Apache-2.0
// Moving bytes and frames over non-blocking stream sockets, never raising SIGPIPE.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.hpp"
#include "bootstrap/wire.hpp"

namespace ucclep {

enum class IoStatus { done, again, closed };  // closed: end of stream, or a connection that failed

// The whole buffer before the deadline: done, again (the deadline came first) or closed.
IoStatus send_all(int socket, const void* data, size_t bytes, Deadline deadline);
IoStatus receive_all(int socket, void* data, size_t bytes, Deadline deadline);
// Waits until something can be read, the stream's end included. False: the deadline came first.
bool wait_readable(int socket, Deadline deadline);
// At most bytes, at once; *have advances.
IoStatus receive_some(int socket, void* data, size_t bytes, size_t* have);

struct Frame {
  wire::FrameHeader header;
  std::string payload;
};

// Puts frames together from whatever pieces arrive.
class FrameReader {
 public:
  // Reads what is there: again (all read for now) or closed (also on bytes that are no frame).
  IoStatus fill(int socket);
  void append(std::string_view bytes) { bytes_ += bytes; }
  std::optional<Frame> next();

 private:
  std::string bytes_;
  size_t used_ = 0;
  bool corrupt_ = false;
};

// Frames that wait until their socket takes them. Payloads are shared: one result goes to every rank.
class FrameWriter {
 public:
  void push(wire::FrameHeader header, std::shared_ptr<const std::string> payload);
  IoStatus flush(int socket);  // done (nothing left), again, closed
  bool empty() const { return queue_.empty(); }

 private:
  struct Item {
    wire::FrameHeader header;
    std::shared_ptr<const std::string> payload;
    size_t sent = 0;
  };
  std::deque<Item> queue_;
};

}  // namespace ucclep

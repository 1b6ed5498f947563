// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/stream_io.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace ucclep {
namespace {

// Larger than any result of a world that the library accepts: a length beyond it is not a frame.
constexpr uint64_t max_payload = uint64_t{1} << 32;

bool must_wait(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

bool wait_for(int socket, short events, Deadline deadline) {
  for (;;) {
    pollfd wait{socket, events, 0};
    if (poll(&wait, 1, deadline.poll_ms()) > 0) return true;
    if (deadline.expired()) return false;
  }
}

}  // namespace

bool wait_readable(int socket, Deadline deadline) {
  return wait_for(socket, POLLIN, deadline);
}

IoStatus send_all(int socket, const void* data, size_t bytes, Deadline deadline) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t sent = send(socket, next, bytes, MSG_NOSIGNAL);
    if (sent >= 0) {
      next += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (must_wait(errno)) {
      if (!wait_for(socket, POLLOUT, deadline)) return IoStatus::again;
    } else if (errno != EINTR) {
      return IoStatus::closed;
    }
  }
  return IoStatus::done;
}

IoStatus receive_some(int socket, void* data, size_t bytes, size_t* have) {
  while (*have < bytes) {
    ssize_t got = recv(socket, static_cast<char*>(data) + *have, bytes - *have, 0);
    if (got > 0) {
      *have += static_cast<size_t>(got);
    } else if (got < 0 && must_wait(errno)) {
      return IoStatus::again;
    } else if (got == 0 || errno != EINTR) {
      return IoStatus::closed;
    }
  }
  return IoStatus::done;
}

IoStatus receive_all(int socket, void* data, size_t bytes, Deadline deadline) {
  size_t have = 0;
  for (;;) {
    IoStatus status = receive_some(socket, data, bytes, &have);
    if (status != IoStatus::again) return status;
    if (!wait_readable(socket, deadline)) return IoStatus::again;
  }
}

IoStatus FrameReader::fill(int socket) {
  std::array<char, 65536> piece;
  // Bounded, so that one busy connection does not starve the others of a service thread.
  for (int i = 0; i < 16; ++i) {
    size_t got = 0;
    IoStatus status = receive_some(socket, piece.data(), piece.size(), &got);
    append({piece.data(), got});
    if (status == IoStatus::closed) return IoStatus::closed;
    if (status == IoStatus::again) break;
  }
  return corrupt_ ? IoStatus::closed : IoStatus::again;
}

std::optional<Frame> FrameReader::next() {
  Frame frame;
  size_t available = bytes_.size() - used_;
  if (!corrupt_ && available >= sizeof(frame.header)) {
    std::memcpy(&frame.header, bytes_.data() + used_, sizeof(frame.header));
    corrupt_ = frame.header.magic != wire::FrameHeader::frame_magic || frame.header.length > max_payload;
    if (!corrupt_ && available - sizeof(frame.header) >= frame.header.length) {
      frame.payload = bytes_.substr(used_ + sizeof(frame.header), frame.header.length);
      used_ += sizeof(frame.header) + frame.header.length;
      return frame;
    }
  }
  bytes_.erase(0, used_);
  used_ = 0;
  return std::nullopt;
}

void FrameWriter::push(wire::FrameHeader header, std::shared_ptr<const std::string> payload) {
  header.length = payload ? payload->size() : 0;
  queue_.push_back({header, std::move(payload)});
}

IoStatus FrameWriter::flush(int socket) {
  while (!queue_.empty()) {
    Item& item = queue_.front();
    size_t total = sizeof(item.header) + item.header.length;
    while (item.sent < total) {
      bool in_header = item.sent < sizeof(item.header);
      const char* from = in_header ? reinterpret_cast<const char*>(&item.header) + item.sent
                                   : item.payload->data() + (item.sent - sizeof(item.header));
      size_t bytes = in_header ? sizeof(item.header) - item.sent : total - item.sent;
      ssize_t sent = send(socket, from, bytes, MSG_NOSIGNAL | (in_header && item.header.length > 0 ? MSG_MORE : 0));
      if (sent >= 0) {
        item.sent += static_cast<size_t>(sent);
      } else if (must_wait(errno)) {
        return IoStatus::again;
      } else if (errno != EINTR) {
        return IoStatus::closed;
      }
    }
    queue_.pop_front();
  }
  return IoStatus::done;
}

}  // namespace ucclep

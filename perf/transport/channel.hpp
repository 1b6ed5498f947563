// SPDX-License-Identifier: Apache-2.0
// The two sides of transport_perf beside the transport: a stream socket over which they agree.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/fd.hpp"

namespace ucclep::perf {

class Channel {
 public:
  Channel(Fd socket, int timeout_ms) : socket_(std::move(socket)), timeout_ms_(timeout_ms) {}
  static std::pair<Fd, Fd> pair();
  static Fd listen(const std::string& port, int timeout_ms);
  static Fd connect(const std::string& host_and_port, int timeout_ms);

  void send(const void* data, size_t bytes);
  // meanwhile is called every millisecond until all is there: a transport moves only while it is polled.
  void receive(void* data, size_t bytes, const std::function<void()>& meanwhile);

  template <class Value>
  void send(const Value& value) {
    send(&value, sizeof(value));
  }
  template <class Value>
  Value receive(const std::function<void()>& meanwhile) {
    Value value;
    receive(&value, sizeof(value), meanwhile);
    return value;
  }

 private:
  Fd socket_;
  int timeout_ms_;
};

}  // namespace ucclep::perf

// SPDX-License-Identifier: Apache-2.0
// The NICs of the double and the wire between them. Everything is guarded by Fabric::lock; requests are carried out by
// whoever posts or polls.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "doubles/ring.hpp"
#include "doubles/verbs/double.hpp"

namespace ucclep::test {

struct Nic : ibv_context {
  const NicLimits* limits = nullptr;
  uint32_t in_flight = 0;
};

struct Queue : ibv_cq {
  struct Entry {
    ibv_wc wc;
    uint64_t request;  // of a queue pair's sends, counted from 1; 0: a receive
  };
  explicit Queue(size_t room) : ibv_cq{}, entries(room) {}
  Ring<Entry> entries;
  bool overrun = false;
};

struct Receives : ibv_srq {
  explicit Receives(size_t room) : ibv_srq{}, ids(room) {}
  Ring<uint64_t> ids;
};

struct Pair : ibv_qp {
  struct Request {
    ibv_send_wr wr;
    ibv_sge piece;
    uint64_t number;
    std::array<char, 1024> inline_bytes;
  };
  explicit Pair(const ibv_qp_cap& granted)
      : ibv_qp{}, cap(granted), sends(granted.max_send_wr), ids(granted.max_recv_wr + 1) {}
  ibv_qp_cap cap;
  ibv_qp_attr attributes{};
  Ring<Request> sends;
  Ring<uint64_t> ids;  // of receives
  uint32_t waiting_receives = 0;
  uint64_t posted = 0, retired = 0;
  std::chrono::steady_clock::time_point silent_since{};  // the peer does not answer
};

struct Registered : ibv_mr {
  uint64_t iova;  // what its first byte is called on the wire
};

struct Fabric {
  std::mutex lock;
  std::unordered_map<uint32_t, Pair*> pairs;
  std::unordered_map<uint32_t, Registered*> regions;
  uint32_t next_number = 100;
  Seen seen{};

  static Fabric& get();
  void progress(ibv_context* nic);
  void run(Pair& pair);
  void flush(Pair& pair);

 private:
  bool carry_out(Pair& pair, const Pair::Request& request);  // false: later
  bool give_up(Pair& pair);
  void fail(Pair& pair, const Pair::Request& request, ibv_wc_status status);
  char* memory(uint32_t key, uint64_t address, uint64_t bytes);
  void complete(Pair& pair, const Pair::Request& request, ibv_wc_status status);
};

}  // namespace ucclep::test

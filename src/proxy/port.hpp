// SPDX-License-Identifier: Apache-2.0
// What a proxy thread's share of a group has open: an endpoint for each NIC that it uses, and the connections to peers.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "proxy/in_flight.hpp"
#include "transport/transport.hpp"

namespace ucclep::proxy {

struct Port {
  Port() = default;
  Port(Port&& other) noexcept = default;
  Port& operator=(Port&& other) noexcept = default;
  // What is under way is lost with the endpoint, and in nobody's way any more.
  ~Port() {
    if (endpoint != nullptr) nic->release(bytes, unfinished);
  }
  // Room for one more operation, here and on the NIC.
  bool acquire(uint64_t more) {
    if (unfinished == sends || !nic->acquire(more)) return false;
    ++unfinished;
    bytes += more;
    return true;
  }
  // It has ended.
  void release(uint64_t less) {
    --unfinished;
    bytes -= less;
    nic->release(less);
  }

  std::unique_ptr<transport::Endpoint> endpoint;
  InFlight* nic = nullptr;             // shared with all threads and groups that use the NIC
  uint32_t number = 0;                 // among all of this rank
  std::vector<uint32_t> regions;       // by window
  std::vector<uint32_t> peer_of;       // by the endpoint's number of the connection
  uint32_t sends = 0, unfinished = 0;  // operations: as granted, and now
  uint64_t bytes = 0;                  // of those that are unfinished
};

// A connection to a peer. Its chain holds the operations that have credit and room on the NIC; one doorbell posts them.
struct Connection {
  static constexpr uint32_t longest_chain = 32;

  uint32_t port = 0, number = 0;
  uint32_t peer_port = 0;              // the number of the port at the other end
  std::vector<uint32_t> regions = {};  // of the peer, by window
  uint32_t chained = 0;
  std::array<transport::Operation, longest_chain> chain{};
};

// The rank at the other end of one or several connections.
struct PeerConnections {
  uint32_t rank = 0;
  std::vector<Connection> connections;
};

}  // namespace ucclep::proxy

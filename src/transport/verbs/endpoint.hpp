// SPDX-License-Identifier: Apache-2.0
// An endpoint of libibverbs: a protection domain, a completion queue, and a queue pair of RC for each peer. Arrivals
// use up receives without memory, of a queue that all connections share, or of each connection where a NIC has no such
// queue.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/remote_regions.hpp"
#include "transport/send_table.hpp"
#include "transport/verbs/connection.hpp"
#include "transport/verbs/device.hpp"
#include "transport/verbs/regions.hpp"

namespace ucclep::transport::verbs {

class VerbsEndpoint : public Endpoint {
 public:
  VerbsEndpoint(const Library& library, Device device, const Config& config);

  const Traits& traits() const override { return traits_; }
  Address address() const override;
  void connect(uint32_t peer, uint32_t self, std::span<const std::byte> address) override;
  void disconnect(uint32_t peer) override;
  uint32_t register_region(const Memory& memory, Key* key) override { return regions_->add(memory, key); }
  void deregister_region(uint32_t region) override { regions_->remove(region); }
  uint32_t import_region(uint32_t peer, const Key& key) override;
  void release_region(uint32_t region) override { remote_.remove(region); }
  uint32_t post(uint32_t peer, std::span<const Operation> operations) noexcept override;
  uint32_t poll(std::span<Completion> completions) noexcept override;

 private:
  static constexpr uint32_t batch = 32;  // requests of one doorbell, completions of one look
  static constexpr uint64_t is_receive = uint64_t{1} << 63;

  // A chain on its way to the NIC.
  struct Chain {
    std::array<ibv_send_wr, batch> requests;
    std::array<ibv_sge, batch> pieces;
    uint32_t count = 0;
    uint64_t bytes = 0;
  };

  void open(const Config& config);
  void open_connection(uint32_t peer);
  void reopen(uint32_t peer);
  void drain(uint32_t gone);
  void advance(uint32_t peer) noexcept;
  bool chain_is_full() const noexcept;
  const char* add(uint32_t peer, uint32_t slot) noexcept;
  void ring(uint32_t peer) noexcept;
  void post_receives(uint32_t peer, uint32_t count) noexcept;
  uint32_t read_queue(std::span<Completion> out, uint32_t* given) noexcept;
  void take_send(const ibv_wc& done) noexcept;
  uint32_t peer_of(uint32_t queue_pair) const noexcept;
  void end_through(uint32_t peer, uint32_t sequence) noexcept;
  void lose(uint32_t peer, ucclEpResult_t code, const char* what, const char* words) noexcept;
  void lose_all(const char* what) noexcept;

  const Library& library_;
  Device device_;
  Grant grant_;
  Token token_ = Token::random();
  Port port_;
  uint8_t timeout_;
  SendTable table_;
  Traits traits_{};
  Domain domain_;
  CompletionQueue queue_;
  SharedReceives shared_;  // null: each connection has its own
  std::optional<Regions> regions_;
  std::vector<Connection> connections_;                   // by peer
  std::vector<std::pair<uint32_t, uint32_t>> by_number_;  // queue pair, peer; in order
  std::vector<std::optional<Token>> peers_;               // of those that are connected
  RemoteRegions<VerbsKey> remote_;
  std::vector<Completion> early_;  // arrivals that were met while a connection was given up
  size_t early_told_ = 0;
  Chain chain_;
  std::array<ibv_recv_wr, batch> receives_;  // linked
  uint32_t begun_ = 0;                       // over all connections
  uint32_t max_begun_;
  uint32_t turn_ = 0;
  bool reports_first_ = false;
};

}  // namespace ucclep::transport::verbs

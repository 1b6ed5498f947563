// SPDX-License-Identifier: Apache-2.0
// A transport around another one, for what the engine may do with a NIC: it counts, holds back, and has smaller limits.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "transport/transport.hpp"

namespace ucclep::test {

struct NicWatch {
  std::atomic<bool> held{false};                // nothing is polled
  std::atomic<int64_t> bytes{0}, max_bytes{0};  // in flight
  std::atomic<uint64_t> messages{0}, posts{0};
  std::atomic<uint32_t> endpoints{0};
  std::function<void(transport::Traits&)> limit = {};
  std::function<void()> in_poll = {};  // by the thread that polls
};

class WatchedEndpoint : public transport::Endpoint {
 public:
  WatchedEndpoint(NicWatch& watch, std::unique_ptr<transport::Endpoint> inner)
      : watch_(watch), inner_(std::move(inner)), traits_(inner_->traits()) {
    ++watch_.endpoints;
    if (watch_.limit) watch_.limit(traits_);
  }
  const transport::Traits& traits() const override { return traits_; }
  transport::Address address() const override { return inner_->address(); }
  void connect(uint32_t peer, uint32_t self, std::span<const std::byte> address) override {
    inner_->connect(peer, self, address);
  }
  void disconnect(uint32_t peer) override { inner_->disconnect(peer); }
  uint32_t register_region(const transport::Memory& memory, transport::Key* key) override {
    return inner_->register_region(memory, key);
  }
  void deregister_region(uint32_t region) override { inner_->deregister_region(region); }
  uint32_t import_region(uint32_t peer, const transport::Key& key) override { return inner_->import_region(peer, key); }
  void release_region(uint32_t region) override { inner_->release_region(region); }

  // Takes no more than three at once, as a NIC with a short queue might.
  uint32_t post(uint32_t peer, std::span<const transport::Operation> operations) noexcept override {
    const uint32_t accepted = inner_->post(peer, operations.first(std::min<size_t>(operations.size(), 3)));
    ++watch_.posts;
    for (const transport::Operation& operation : operations.first(accepted)) {
      ++watch_.messages;
      const int64_t now = watch_.bytes += static_cast<int64_t>(operation.bytes);
      int64_t max = watch_.max_bytes;
      while (now > max && !watch_.max_bytes.compare_exchange_weak(max, now)) {
      }
    }
    return accepted;
  }
  uint32_t poll(std::span<transport::Completion> completions) noexcept override {
    if (watch_.in_poll) watch_.in_poll();
    if (watch_.held) return 0;
    // Completions take a while.
    if (++polls_ % 8 != 0) return 0;
    const uint32_t count = inner_->poll(completions);
    for (const transport::Completion& one : completions.first(count)) {
      if (one.kind != UCCLEP_COMPLETION_ARRIVAL) watch_.bytes -= static_cast<int64_t>(one.bytes);
    }
    return count;
  }

 private:
  NicWatch& watch_;
  std::unique_ptr<transport::Endpoint> inner_;
  transport::Traits traits_;
  uint32_t polls_ = 0;
};

class WatchedTransport : public transport::Transport {
 public:
  explicit WatchedTransport(NicWatch& watch, const std::string& inner = "loopback")
      : watch_(watch), inner_(transport::make_transport(inner)) {}
  std::unique_ptr<transport::Endpoint> open(const transport::Config& config) override {
    return std::make_unique<WatchedEndpoint>(watch_, inner_->open(config));
  }

 private:
  NicWatch& watch_;
  std::unique_ptr<transport::Transport> inner_;
};

// What a team changes of that rank's engine: its NIC is this one.
inline auto with_nic(uint32_t of, NicWatch& watch, const std::string& inner = "loopback") {
  return [of, &watch, inner](uint32_t rank, auto& config, auto&) {
    if (rank == of) config.nics = {{std::make_shared<WatchedTransport>(watch, inner), ""}};
  };
}

}  // namespace ucclep::test

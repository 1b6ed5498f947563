// SPDX-License-Identifier: Apache-2.0
#include "transport/loopback/loopback.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "transport/error_message.hpp"
#include "transport/loopback/regions.hpp"
#include "transport/loopback/ring.hpp"
#include "transport/loopback/segment.hpp"
#include "transport/remote_regions.hpp"
#include "transport/send_table.hpp"

namespace ucclep::transport {
namespace loopback {
namespace {

constexpr uint32_t smallest_ring = 64;
// Bytes that are copied before arrivals are looked at again, or an operation that is longer. Who copied all that is
// posted would see what comes meanwhile when it is over.
constexpr uint64_t burst = 64 << 10;

struct Connection {
  std::shared_ptr<Segment> peer;
  Fd process;  // readable when the peer's process has ended; none for this process, or where the kernel has no pidfds
  RingProducer out;
  RingConsumer in;
};

class LoopbackEndpoint : public Endpoint {
 public:
  explicit LoopbackEndpoint(const Config& config)
      : segment_(Segment::create(config.peers, std::max(config.receives, smallest_ring))),
        sends_(config),
        own_(segment_),
        connections_(config.peers),
        traits_{.memory = UCCLEP_MEMORY_HOST,
                .ordered = 1,
                .imm_bits = 32,
                .posted_receives = 0,
                .reports_source = 1,
                .reports_length = 1,
                .max_inline = 0,
                .sends = config.sends,
                .receives = segment_->entries(),
                .max_message = uint64_t{1} << 40,
                .max_bytes = 0} {}

  ~LoopbackEndpoint() override {
    segment_->header().closed.store(1, std::memory_order_release);  // first: see standing_of
    for (auto& connection : connections_) {
      if (connection) connection->in.close();
    }
  }

  const Traits& traits() const override { return traits_; }

  Address address() const override {
    const auto* bytes = reinterpret_cast<const std::byte*>(&segment_->address());
    return {bytes, bytes + sizeof(SegmentAddress)};
  }

  void connect(uint32_t number, uint32_t self, std::span<const std::byte> address) override {
    if (number >= connections_.size()) {
      fail(ucclEpInvalidArgument, "loopback: peer {} is out of range: the endpoint has {} peers", number,
           connections_.size());
    }
    if (connections_[number]) fail(ucclEpInvalidUsage, "loopback: peer {} is connected already", number);
    std::shared_ptr<Segment> peer = Segment::open(address);
    if (self >= peer->peers()) {
      fail(ucclEpInvalidArgument, "loopback: peer {} has {} peers, so this endpoint cannot be its peer number {}",
           number, peer->peers(), self);
    }
    Fd process;
    // Looked for after the segment was opened, so it is that process and no later one of the same number.
    if (!peer->in_this_process()) process = Fd(static_cast<int>(syscall(SYS_pidfd_open, peer->address().pid, 0)));
    connections_[number].emplace(
        Connection{peer, std::move(process), RingProducer(*peer, self), RingConsumer(*segment_, number)});
  }

  void disconnect(uint32_t number) override {
    if (number >= connections_.size() || !connections_[number]) return;
    connections_[number]->in.close();
    connections_[number].reset();
    sends_.forget(number);
    remote_.remove_all_of(number);
  }

  uint32_t register_region(const Memory& memory, Key* key) override { return own_.add(memory, key); }
  void deregister_region(uint32_t region) override { own_.remove(region); }

  uint32_t import_region(uint32_t number, const Key& key) override {
    if (number >= connections_.size() || !connections_[number]) {
      fail(ucclEpInvalidUsage,
           "loopback: cannot import a region of peer {}, which is not connected: connect the peer first", number);
    }
    return remote_.add(number, PeerRegion(connections_[number]->peer, key));
  }

  void release_region(uint32_t region) override { remote_.remove(region); }

  uint32_t post(uint32_t peer, std::span<const Operation> operations) noexcept override {
    uint32_t taken = 0;
    while (taken < operations.size() && sends_.take(peer, operations[taken])) ++taken;
    uint64_t left = burst;
    advance(peer, left);
    return taken;
  }

  uint32_t poll(std::span<Completion> completions) noexcept override {
    if (sends_.watch()) look_after_peers();
    if (sends_.anything_waits()) advance_all();
    // In turns, so that neither keeps the other from a caller with little room.
    arrivals_first_ = !arrivals_first_;
    uint32_t count = arrivals_first_ ? take_arrivals(completions) : sends_.report(completions);
    const auto rest = completions.subspan(count);
    count += arrivals_first_ ? sends_.report(rest) : take_arrivals(rest);
    return count;
  }

 private:
  enum class Standing { connected, ended, closed };

  // An endpoint that closes says so before it ends its connections. So `ended` is looked at first: the acquire of its
  // `turns` shows `closed`.
  static Standing standing_of(const Connection& connection) noexcept {
    const bool ended = connection.out.ended();
    if (connection.peer->header().closed.load(std::memory_order_acquire) == 1) return Standing::closed;
    return ended ? Standing::ended : Standing::connected;
  }

  // In turns, so that each peer is once the first.
  void advance_all() noexcept {
    const auto peers = static_cast<uint32_t>(connections_.size());
    uint64_t left = burst;
    for (uint32_t i = 0; i < peers && left > 0; ++i) {
      first_peer_ = first_peer_ + 1 < peers ? first_peer_ + 1 : 0;
      advance(first_peer_, left);
    }
  }

  // Carries out what waits for the peer, as far as its ring has room and the burst allows.
  void advance(uint32_t number, uint64_t& left) noexcept {
    if (!connections_[number]) return;
    Connection& connection = *connections_[number];
    for (uint32_t slot = sends_.next(number); slot != SendTable::none && left > 0; slot = sends_.next(number)) {
      const Standing standing = standing_of(connection);
      if (standing == Standing::closed) return lose(number, ucclEpRemoteError, "has closed its endpoint");
      if (standing == Standing::ended) return lose(number, ucclEpRemoteError, "has ended the connection");
      const Operation& operation = sends_[slot];
      const bool with_imm = (operation.flags & UCCLEP_OPERATION_IMM) != 0;
      if (!connection.out.open() || (with_imm && connection.out.full())) return;
      if (!copy(number, operation)) return;
      left -= std::min(left, operation.bytes);
      if (with_imm) connection.out.push(operation.imm, operation.bytes);
      sends_.begin(slot);
      sends_.returned(slot);
    }
  }

  // False: the connection broke.
  bool copy(uint32_t number, const Operation& operation) noexcept {
    if (operation.bytes == 0) return true;
    char* local = own_.at(operation.local_region, operation.local_offset, operation.bytes);
    if (local == nullptr) {
      lose(number, ucclEpInvalidArgument, "was sent bytes that lie in no region of this endpoint");
      return false;
    }
    const PeerRegion* remote = remote_.find(operation.remote_region, number);
    if (remote == nullptr) {
      lose(number, ucclEpInvalidArgument, "was sent an operation on a region that was not imported from it");
      return false;
    }
    switch (remote->copy(operation, local)) {
      case PeerRegion::Outcome::gone:
        lose(number, ucclEpRemoteError, "has deregistered the region of an operation");
        return false;
      case PeerRegion::Outcome::outside:
        lose(number, ucclEpInvalidArgument, "was sent an operation that goes beyond its region");
        return false;
      case PeerRegion::Outcome::done:
        break;
    }
    return true;
  }

  void lose(uint32_t number, ucclEpResult_t code, const char* what) noexcept {
    sends_.break_connection(number, code, ErrorMessage("loopback: peer {} {}", number, what).view());
  }

  void look_after_peers() noexcept {
    for (uint32_t number = 0; number < connections_.size(); ++number) {
      if (connections_[number] && !sends_.broken(number)) look_after(number, *connections_[number]);
    }
  }

  void look_after(uint32_t number, const Connection& connection) noexcept {
    const Standing standing = standing_of(connection);
    if (standing == Standing::closed) return;  // it said so, and its process may well have ended
    if (standing == Standing::ended) return lose(number, ucclEpRemoteError, "has ended the connection");
    pollfd process{connection.process.get(), POLLIN, 0};
    if (process.fd >= 0 && ::poll(&process, 1, 0) == 1) lose(number, ucclEpRemoteError, "is a process that has ended");
  }

  uint32_t take_arrivals(std::span<Completion> completions) noexcept {
    uint32_t count = 0;
    const auto peers = static_cast<uint32_t>(connections_.size());
    for (uint32_t i = 0; i < peers && count < completions.size(); ++i) {
      first_ring_ = first_ring_ + 1 < peers ? first_ring_ + 1 : 0;
      if (!connections_[first_ring_]) continue;
      RingConsumer& in = connections_[first_ring_]->in;
      while (count < completions.size() && !in.empty()) {
        const RingEntry entry = in.pop();
        completions[count++] = {.kind = UCCLEP_COMPLETION_ARRIVAL,
                                .peer = first_ring_,
                                .bytes = entry.bytes,
                                .cookie = 0,
                                .imm = entry.imm,
                                .operation = UCCLEP_OPERATION_NONE,
                                .code = ucclEpSuccess,
                                .words = nullptr};
      }
    }
    return count;
  }

  std::shared_ptr<Segment> segment_;
  SendTable sends_;
  OwnRegions own_;
  RemoteRegions<PeerRegion> remote_;
  std::vector<std::optional<Connection>> connections_;
  Traits traits_;
  uint32_t first_ring_ = 0, first_peer_ = 0;
  bool arrivals_first_ = false;
};

class Loopback : public Transport {
 public:
  std::unique_ptr<Endpoint> open(const Config& config) override {
    if (config.nic != nullptr && std::strlen(config.nic) > 0) {
      fail(ucclEpInvalidArgument, "loopback has no NICs, but the NIC {} was given: name none", config.nic);
    }
    return std::make_unique<LoopbackEndpoint>(config);
  }
  bool takes_nics() const override { return false; }
};

}  // namespace
}  // namespace loopback

std::unique_ptr<Transport> make_loopback(const std::string& argument) {
  if (!argument.empty()) fail(ucclEpInvalidArgument, "loopback accepts no argument, but {} was given", argument);
  return std::make_unique<loopback::Loopback>();
}

}  // namespace ucclep::transport

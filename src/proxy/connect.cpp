// SPDX-License-Identifier: Apache-2.0
#include "proxy/connect.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/attempt.hpp"
#include "proxy/ring_deal.hpp"
#include "proxy/serializer.hpp"

namespace ucclep::proxy {
namespace {

using transport::Key;
using transport::Traits;

// An endpoint of a thread, and where it stands among all of this rank.
struct OpenPort {
  uint32_t thread = 0, port = 0;
  uint32_t nic = 0;
  std::vector<Key> keys;  // by window
};

class Connector {
 public:
  Connector(GroupSpec& spec, std::vector<std::unique_ptr<Nic>>& nics, uint32_t threads)
      : spec_(spec), nics_(nics), parts_(threads) {}

  void check() const;
  void deal();
  void open();
  std::vector<std::vector<std::byte>> offers() const;
  void join(const std::vector<std::vector<std::byte>>& offers);
  std::vector<GroupShare::Parts> move_parts() { return std::move(parts_); }

 private:
  void open(OpenPort& port);
  std::vector<std::byte> offer_to(uint32_t rank) const;
  uint32_t max_window(const Traits& traits, uint32_t peers) const;
  void join(uint32_t rank, std::span<const std::byte> offer);

  GroupSpec& spec_;
  std::vector<std::unique_ptr<Nic>>& nics_;
  std::vector<GroupShare::Parts> parts_;
  std::vector<OpenPort> ports_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> port_of_;  // by thread and NIC: in ports_
  uint32_t window_ = 0;                                        // data messages of a peer that fit everywhere
};

void Connector::check() const {
  const GroupShape& shape = spec_.shape;
  std::vector<uint64_t> bytes;
  bytes.reserve(spec_.windows.size());
  for (const transport::Memory& window : spec_.windows) bytes.push_back(window.bytes);
  check_places(shape.places, shape.ranks, shape.in_flight, bytes);
  if (shape.rank >= shape.ranks || spec_.connections.size() != shape.ranks || spec_.words.ranks != shape.ranks ||
      spec_.words.in_flight != shape.in_flight || !shape.credits.is_sound() ||
      shape.credits.in_flight != shape.in_flight || shape.timeout_ms == 0 || spec_.sends == 0) {
    fail(ucclEpInvalidArgument,
         "rank {} of {}: the words, connections, credits or limits of the group do not match its shape", shape.rank,
         shape.ranks);
  }
  for (uint32_t rank = 0; rank < shape.ranks; ++rank) {
    for (const uint32_t nic : spec_.connections[rank]) {
      if (nic >= nics_.size())
        fail(ucclEpInvalidArgument, "a connection to rank {} uses NIC {}, but there are {} NICs", rank, nic,
             nics_.size());
    }
  }
}

void Connector::deal() {
  const Fifo& fifo = spec_.rings->fifo();
  const auto threads = static_cast<uint32_t>(parts_.size());
  for (uint32_t ring = 0; ring < spec_.rings->count(); ++ring) {
    parts_[thread_of_ring(fifo, ring, threads)].rings.push_back(spec_.rings->memory(ring));
  }
  for (uint32_t rank = 0; rank < spec_.shape.ranks; ++rank) {
    if (spec_.connections[rank].empty()) continue;
    const uint32_t thread = thread_of_destination(fifo, rank, threads);
    GroupShare::Parts& parts = parts_[thread];
    PeerConnections peer{rank, {}};
    for (const uint32_t nic : spec_.connections[rank]) {
      const auto [known, fresh] = port_of_.try_emplace({thread, nic}, static_cast<uint32_t>(ports_.size()));
      if (fresh) {
        ports_.push_back({thread, static_cast<uint32_t>(parts.ports.size()), nic, {}});
        parts.ports.emplace_back().number = known->second;
      }
      Port& port = parts.ports[ports_[known->second].port];
      peer.connections.push_back(
          {.port = ports_[known->second].port, .number = static_cast<uint32_t>(port.peer_of.size())});
      port.peer_of.push_back(static_cast<uint32_t>(parts.peers.size()));
    }
    parts.peers.push_back(std::move(peer));
  }
}

void Connector::open() {
  window_ = spec_.shape.credits.window;
  for (OpenPort& port : ports_) open(port);
}

void Connector::open(OpenPort& open) {
  const GroupShape& shape = spec_.shape;
  Port& port = parts_[open.thread].ports[open.port];
  Nic& nic = *nics_[open.nic];
  const auto peers = static_cast<uint32_t>(port.peer_of.size());
  uint32_t kinds = UCCLEP_MEMORY_HOST;
  for (const transport::Memory& window : spec_.windows) kinds |= window.kind;
  port.nic = &nic.in_flight;
  port.endpoint = nic.config.transport->open({.nic = nic.config.name.c_str(),
                                              .peers = peers,
                                              .sends = spec_.sends,
                                              .receives = peers * shape.credits.entries(),
                                              .timeout_ms = shape.timeout_ms,
                                              .memory = kinds});
  const Traits& traits = port.endpoint->traits();
  port.sends = traits.sends;
  nic.in_flight.narrow(traits.max_bytes == 0 ? InFlight::any_bytes : traits.max_bytes, InFlight::any_messages);
  window_ = std::min(window_, max_window(traits, peers));
  for (const KindPlaces& kind : shape.places.kinds) {
    const uint64_t of_channel = shape.channel.rows > 0 ? channel_piece : 0;
    const uint64_t max = std::max<uint64_t>({kind.chunk_bytes(), kind.header_bytes, of_channel});
    if (max > traits.max_message) {
      fail(ucclEpNotSupported, "the group sends messages of {} bytes, but NIC \"{}\" accepts at most {}", max,
           nic.config.name, traits.max_message);
    }
  }
  for (const transport::Memory& window : spec_.windows) {
    Key key{};
    port.regions.push_back(port.endpoint->register_region(window, &key));
    open.keys.push_back(key);
  }
}

// A NIC may have fewer receives than were asked for: every peer gets its part (P9).
uint32_t Connector::max_window(const Traits& traits, uint32_t peers) const {
  CreditShape shape = spec_.shape.credits;
  while (shape.window > 0 && peers * shape.entries() > traits.receives) {
    --shape.window;
    shape.return_every = std::min(shape.return_every, std::max(1u, shape.window / 4));
  }
  if (shape.window == 0) {
    fail(ucclEpNotSupported, "an endpoint has {} receives, which are too few for {} peers", traits.receives, peers);
  }
  return shape.window;
}

// What another rank needs to know: of each connection to it its endpoint, the connection's number there, and the
// endpoint's address and keys.
std::vector<std::byte> Connector::offer_to(uint32_t rank) const {
  Serializer out;
  out.number(window_);
  out.number(static_cast<uint32_t>(spec_.connections[rank].size()));
  if (spec_.connections[rank].empty()) return out.data();
  const auto threads = static_cast<uint32_t>(parts_.size());
  const uint32_t thread = thread_of_destination(spec_.rings->fifo(), rank, threads);
  const auto& peers = parts_[thread].peers;
  const auto peer =
      std::find_if(peers.begin(), peers.end(), [&](const PeerConnections& one) { return one.rank == rank; });
  for (size_t i = 0; i < peer->connections.size(); ++i) {
    const uint32_t port = port_of_.at({thread, spec_.connections[rank][i]});
    const OpenPort& open = ports_[port];
    out.number(port);
    out.number(peer->connections[i].number);
    const transport::Address address = parts_[open.thread].ports[open.port].endpoint->address();
    out.bytes(address.data(), address.size());
    out.number(static_cast<uint32_t>(open.keys.size()));
    for (const Key& key : open.keys) out.bytes(&key, sizeof key);
  }
  return out.data();
}

std::vector<std::vector<std::byte>> Connector::offers() const {
  std::vector<std::vector<std::byte>> all;
  all.reserve(spec_.shape.ranks);
  for (uint32_t rank = 0; rank < spec_.shape.ranks; ++rank) all.push_back(offer_to(rank));
  return all;
}

void Connector::join(const std::vector<std::vector<std::byte>>& offers) {
  for (uint32_t rank = 0; rank < offers.size(); ++rank) join(rank, offers[rank]);
  CreditShape& credits = spec_.shape.credits;
  credits.window = window_;
  credits.return_every = std::min(credits.return_every, std::max(1u, window_ / 4));
}

void Connector::join(uint32_t rank, std::span<const std::byte> offer) {
  const size_t expected = spec_.connections[rank].size();
  if (offer.empty() && expected == 0) return;  // it is gone
  Deserializer in(offer, rank);
  const uint32_t window = in.number();
  if (window == 0) fail(ucclEpRemoteError, "rank {} has no room for messages of a peer", rank);
  window_ = std::min(window_, window);
  const uint32_t count = in.count();
  if (count != expected) {
    fail(ucclEpInvalidArgument,
         "rank {} has {} connections to rank {}, but that rank has {} to it: all ranks must use the same NIC settings",
         rank, count, spec_.shape.rank, expected);
  }
  if (expected == 0) return;
  const uint32_t thread = thread_of_destination(spec_.rings->fifo(), rank, static_cast<uint32_t>(parts_.size()));
  GroupShare::Parts& parts = parts_[thread];
  const auto peer = std::find_if(parts.peers.begin(), parts.peers.end(),
                                 [&](const PeerConnections& one) { return one.rank == rank; });
  for (Connection& connection : peer->connections) {
    const uint32_t port = in.number();
    const uint32_t number = in.number();
    const std::span<const std::byte> address = in.bytes();
    if (const uint32_t keys = in.number(); keys != spec_.windows.size()) {
      fail(ucclEpInvalidArgument, "rank {} offers {} windows, rank {} expects {}", rank, keys, spec_.shape.rank,
           spec_.windows.size());
    }
    transport::Endpoint& endpoint = *parts.ports[connection.port].endpoint;
    endpoint.connect(connection.number, number, address);
    connection.peer_port = port;
    for (size_t i = 0; i < spec_.windows.size(); ++i) {
      connection.regions.push_back(endpoint.import_region(connection.number, in.object<Key>()));
    }
  }
}

}  // namespace

void connect_group(GroupSpec& spec, std::vector<std::unique_ptr<Nic>>& nics, uint32_t threads, const Talk& talk,
                   const std::function<void(std::vector<GroupShare::Parts>)>& build) {
  Connector connector(spec, nics, threads);
  std::vector<std::vector<std::byte>> mine;
  auto error = attempt([&] {
    connector.check();
    connector.deal();
    connector.open();
    mine = connector.offers();
  });
  const uint32_t rank = spec.shape.rank, ranks = spec.shape.ranks;
  const auto offers = agree_with_each(talk.exchange, rank, ranks, error ? &*error : nullptr, mine);
  error = attempt([&] {
    connector.join(offers);
    build(connector.move_parts());
  });
  agree(talk.allgather, rank, error ? &*error : nullptr);
}

}  // namespace ucclep::proxy

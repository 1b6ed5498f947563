// SPDX-License-Identifier: Apache-2.0
#include "init/crowd.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "bootstrap/files_limit.hpp"
#include "bootstrap/handshake.hpp"

namespace ucclep::perf {

void Crowd::join(int pace_us, Deadline deadline) {
  const auto begin = Deadline::Clock::now();
  rounds_ = rounds_of_join();
  unfinished_ = nranks_ - 1;
  int next = 1;
  while (unfinished_ > 0 && !deadline.expired()) {
    // A few, then they speak: as ranks do that connect and greet in one go.
    for (int i = 0; i < 32 && next < nranks_ &&
                    Deadline::Clock::now() >= begin + std::chrono::microseconds(int64_t{pace_us} * next);
         ++i) {
      Client client;
      client.rank = next++;
      call(std::move(client));
    }
    poll(next >= nranks_ ? deadline.poll_ms() : (pace_us == 0 ? 0 : 1));
  }
}

void Crowd::run(std::span<const HubRound> rounds, Deadline deadline) {
  first_round_ += rounds_.size();
  rounds_ = rounds;
  counts_.finished = 0;
  unfinished_ = static_cast<int>(clients_.size());
  for (auto client = clients_.begin(); client != clients_.end();) {
    Client& one = (client++)->second;  // who fails goes
    poller_.add(one.socket.get());
    one.round = 0;
    bring_part(one);
  }
  while (unfinished_ > 0 && !deadline.expired()) poll(deadline.poll_ms());
}

void Crowd::wait_for_goodbye(Deadline deadline) const {
  if (!clients_.empty()) wait_readable(clients_.begin()->first, deadline);
}

void Crowd::poll(int wait_ms) {
  for (const Poller::Event& event : std::vector<Poller::Event>(poller_.wait(wait_ms))) advance(event);
}

void Crowd::call(Client client) {
  const SocketAddress address = client.purpose == wire::Purpose::rendezvous ? id_.address : hub_;
  client.step = Step::connect;
  client.have = 0;
  client.socket = Fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int number = client.socket.get();
  if (connect(number, address.raw(), address.length) != 0 && errno != EINPROGRESS) {
    counts_.text = std::string("connect: ") + std::strerror(errno);
    --unfinished_;
    return;
  }
  raise_files_limit(number);
  poller_.add(number, true);
  clients_.insert_or_assign(number, std::move(client));
}

void Crowd::advance(const Poller::Event& event) {
  const auto found = clients_.find(event.fd);
  if (found == clients_.end()) return;
  Client& client = found->second;
  if (client.step == Step::connect) return greet(client);
  if (client.step != Step::round) {
    if (event.readable && !read(client)) drop(client);
    return;
  }
  const bool good = (!event.writable || flush(client)) && (!event.readable || read_results(client));
  if (!good) fail(client, "rank 0 closed the connection");
}

void Crowd::greet(Client& client) {
  wire::Greeting& greeting = client.greeting;
  greeting.purpose = client.purpose;
  greeting.nonce = Token::random();
  greeting.rank = client.rank;
  greeting.nranks = nranks_;
  greeting.timeout_ms = 100000;
  wire::put_text(greeting.host, "crowd");
  poller_.want_write(client.socket.get(), false);
  client.step = Step::challenge;
  if (send(client.socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting) drop(client);
}

// False: the other side has hung up.
bool Crowd::read(Client& client) {
  const int socket = client.socket.get();
  const bool challenged = client.step == Step::challenge;
  const IoStatus status = challenged ? receive_some(socket, &client.challenge, sizeof client.challenge, &client.have)
                                     : receive_some(socket, &client.verdict, sizeof client.verdict, &client.have);
  if (status != IoStatus::done) return status == IoStatus::again;
  if (challenged) return prove(client);
  go_on(client);
  return true;
}

bool Crowd::prove(Client& client) {
  const wire::Proof proof = proof_of(client.greeting, client.challenge, id_.secret);
  client.step = Step::verdict;
  client.have = 0;
  return send(client.socket.get(), &proof, sizeof proof, MSG_NOSIGNAL) == sizeof proof;
}

void Crowd::go_on(Client& client) {
  if (client.verdict.code != 0) return fail(client, client.verdict.text);
  if (client.purpose == wire::Purpose::hub) {
    client.step = Step::round;
    client.have = 0;
    return bring_part(client);
  }
  Client next;
  next.rank = client.rank;
  next.purpose = wire::Purpose::hub;
  hub_ = from_wire(client.verdict.hub);
  forget(client);
  call(std::move(next));
}

void Crowd::bring_part(Client& client) {
  HubRound round = rounds_[client.round];
  if (corrupt_ && client.rank == 1 && round.kind == wire::RoundKind::exchange) ++round.bytes;
  auto part = std::make_shared<const std::string>(part_of(round, client.rank, nranks_));
  counts_.sent += sizeof(wire::FrameHeader) + part->size();
  client.writer.push({.sequence = first_round_ + client.round, .detail = static_cast<uint32_t>(round.kind)},
                     std::move(part));
  if (!flush(client)) fail(client, "rank 0 closed the connection");
}

// False: the other side has hung up.
bool Crowd::flush(Client& client) {
  const IoStatus status = client.writer.flush(client.socket.get());
  const bool waits = status == IoStatus::again;
  if (waits != client.waits_to_write) poller_.want_write(client.socket.get(), waits);
  client.waits_to_write = waits;
  return status != IoStatus::closed;
}

// The same. What it reads is not kept. It goes on until all is read, or the client has finished.
bool Crowd::read_results(Client& client) {
  const int number = client.socket.get();
  while (clients_.contains(number) && client.round < rounds_.size()) {
    if (client.have < sizeof client.header) {
      const IoStatus status = receive_some(number, &client.header, sizeof client.header, &client.have);
      if (status != IoStatus::done) return status == IoStatus::again;
    }
    if (client.have < sizeof client.header + client.header.length && !discard_payload(client)) return false;
    if (client.have < sizeof client.header + client.header.length) return true;
    client.have = 0;
    if (client.header.type == wire::FrameType::result) end_round(client);
  }
  return true;
}

bool Crowd::discard_payload(Client& client) {
  const size_t all = sizeof client.header + client.header.length;
  char piece[65536];
  IoStatus status = IoStatus::done;
  while (client.have < all && status == IoStatus::done) {
    size_t got = 0;
    status = receive_some(client.socket.get(), piece, std::min(sizeof piece, all - client.have), &got);
    client.have += got;
  }
  return status != IoStatus::closed || client.have == all;
}

void Crowd::end_round(Client& client) {
  const wire::FrameHeader& header = client.header;
  const HubRound& round = rounds_[client.round];
  counts_.received += sizeof header + header.length;
  ++counts_.results;
  if (header.detail != 0 || header.length != result_bytes(round, nranks_)) ++counts_.wrong;
  if (header.detail != 0) return fail(client, fmt::format("a round ended with code {}", header.detail));
  if (++client.round < rounds_.size()) return bring_part(client);
  ++counts_.finished;
  --unfinished_;
  poller_.remove(client.socket.get());  // until the next call
}

void Crowd::drop(Client& client) {
  Client next;
  next.rank = client.rank;
  next.purpose = client.purpose;
  forget(client);
  call(std::move(next));
}

void Crowd::fail(Client& client, const std::string& text) {
  counts_.text = fmt::format("rank {}: {}", client.rank, text);
  --unfinished_;
  forget(client);
}

void Crowd::forget(Client& client) {
  const int number = client.socket.get();
  poller_.remove(number);
  clients_.erase(number);
}

}  // namespace ucclep::perf

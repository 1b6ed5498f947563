// SPDX-License-Identifier: Apache-2.0
#include "crowd.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

#include "base/error.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/poller.hpp"
#include "bootstrap/stream_io.hpp"
#include "bootstrap/unique_id.hpp"

namespace ucclep::test {
namespace {

enum class Step { connect, challenge, verdict, round };

struct Client {
  int rank = 0;
  wire::Purpose purpose = wire::Purpose::rendezvous;
  Step step = Step::connect;
  Fd socket;
  wire::Greeting greeting;
  wire::Challenge challenge;
  wire::Verdict verdict;
  size_t have = 0;  // of what is read in this step
};

class Crowd {
 public:
  Crowd(const ucclEpUniqueId& id, int nranks) : id_(decode(id)), nranks_(nranks) {}

  CrowdCounts run(int pace_us, Deadline deadline) {
    const auto begin = Deadline::Clock::now();
    int next = 1;
    while ((next < nranks_ || !clients_.empty()) && !deadline.expired()) {
      // A few, then they speak: as ranks do that connect and greet in one go.
      for (int i = 0; i < 32 && next < nranks_ &&
                      Deadline::Clock::now() >= begin + std::chrono::microseconds(int64_t{pace_us} * next);
           ++i) {
        Client client;
        client.rank = next++;
        call(std::move(client));
      }
      const int wait_ms = next >= nranks_ ? deadline.poll_ms() : (pace_us == 0 ? 0 : 1);
      for (const Poller::Event& event : std::vector<Poller::Event>(poller_.wait(wait_ms))) advance(event);
    }
    return counts_;
  }

 private:
  void call(Client client) {
    const SocketAddress address = client.purpose == wire::Purpose::rendezvous ? id_.address : hub_;
    client.step = Step::connect;
    client.have = 0;
    client.socket = Fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connect(client.socket.get(), address.raw(), address.length) != 0 && errno != EINPROGRESS) {
      counts_.text = std::string("connect: ") + std::strerror(errno);
      return;
    }
    const int number = client.socket.get();
    poller_.add(number, true);
    clients_.insert_or_assign(number, std::move(client));
  }

  void advance(const Poller::Event& event) {
    const auto found = clients_.find(event.fd);
    if (found == clients_.end()) return;
    Client& client = found->second;
    if (client.step == Step::connect) return greet(client);
    if (event.readable && !read(client)) drop(client);
  }

  void greet(Client& client) {
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

  void bring_card(Client& client) {
    struct {
      wire::FrameHeader header{.detail = static_cast<uint32_t>(wire::RoundKind::gather),
                               .length = sizeof(wire::PeerCard)};
      wire::PeerCard card;
    } part;
    client.step = Step::round;
    client.have = 0;
    if (send(client.socket.get(), &part, sizeof part, MSG_NOSIGNAL) != sizeof part) drop(client);
  }

  // False: the other side has hung up.
  bool read(Client& client) {
    const int socket = client.socket.get();
    if (client.step == Step::round) return read_result(client);
    const bool challenged = client.step == Step::challenge;
    const IoStatus status = challenged ? receive_some(socket, &client.challenge, sizeof client.challenge, &client.have)
                                       : receive_some(socket, &client.verdict, sizeof client.verdict, &client.have);
    if (status != IoStatus::done) return status == IoStatus::again;
    if (challenged) return prove(client);
    go_on(client);
    return true;
  }

  bool prove(Client& client) {
    const wire::Proof proof = proof_of(client.greeting, client.challenge, id_.secret);
    client.step = Step::verdict;
    client.have = 0;
    return send(client.socket.get(), &proof, sizeof proof, MSG_NOSIGNAL) == sizeof proof;
  }

  void go_on(Client& client) {
    counts_.text = client.verdict.text;
    if (client.verdict.code == 0 && client.purpose == wire::Purpose::hub) return bring_card(client);
    Client next;
    next.rank = client.rank;
    next.purpose = wire::Purpose::hub;
    const bool good = client.verdict.code == 0;
    if (good) hub_ = from_wire(client.verdict.hub);
    forget(client);
    if (good) call(std::move(next));
  }

  // The cards of all in one frame, whose content is not kept.
  bool read_result(Client& client) {
    const size_t all = sizeof(wire::FrameHeader) + sizeof(wire::PeerCard) * static_cast<size_t>(nranks_);
    char piece[65536];
    for (;;) {
      size_t got = 0;
      const IoStatus status = receive_some(client.socket.get(), piece, std::min(sizeof piece, all - client.have), &got);
      client.have += got;
      if (client.have == all) break;
      if (status != IoStatus::done) return status == IoStatus::again;
    }
    ++counts_.joined;
    poller_.remove(client.socket.get());
    joined_.push_back(std::move(client.socket));
    clients_.erase(joined_.back().get());
    return true;
  }

  void drop(Client& client) {
    Client next;
    next.rank = client.rank;
    next.purpose = client.purpose;
    forget(client);
    call(std::move(next));
  }

  void forget(Client& client) {
    const int number = client.socket.get();
    poller_.remove(number);
    clients_.erase(number);
  }

  UniqueId id_;
  int nranks_;
  SocketAddress hub_;
  Poller poller_;
  std::map<int, Client> clients_;  // by descriptor
  std::vector<Fd> joined_;         // until all have
  CrowdCounts counts_;
};

}  // namespace

CrowdCounts run_crowd(const ucclEpUniqueId& id, int nranks, int pace_us, int64_t timeout_ms) {
  return Crowd(id, nranks).run(pace_us, Deadline::after_ms(timeout_ms));
}

}  // namespace ucclep::test

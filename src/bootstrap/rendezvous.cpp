// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rendezvous.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "bootstrap/accept_filter.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/roll_call.hpp"
#include "bootstrap/stream_io.hpp"

namespace ucclep {
namespace {

// A rank reads its verdict at once; this is for one that was stopped just then.
constexpr int answer_grace_ms = 2000;

class Rendezvous {
 public:
  Rendezvous(Fd listener, const Token& secret)
      : door_(
            poller_, std::move(listener), secret, wire::Purpose::rendezvous,
            [this](Fd socket, const wire::Greeting& greeting) { admit(std::move(socket), greeting); },
            [this](const std::string& text) { roll_.give_up_for(ucclEpSystemError, "the rendezvous: " + text); }),
        comm_id_(Token::random()) {}

  void serve() {
    while (!over()) {
      for (const Poller::Event& event : std::vector<Poller::Event>(poller_.wait(wait_ms()))) {
        if (!door_.handle(event)) listen_to(event.fd);
      }
      door_.tend();
      if (roll_.decided()) answer_all();
    }
    log::info("bootstrap", "the rendezvous has ended");
  }

 private:
  struct Guest {
    Fd socket;
    int rank;
    bool answered = false;
  };

  void admit(Fd socket, const wire::Greeting& greeting) {
    log::info("bootstrap", "rank {} of {} has joined the rendezvous", greeting.rank, greeting.nranks);
    roll_.arrive(greeting);
    Deadline until = Deadline::after_ms(std::max<int64_t>(0, greeting.timeout_ms) + answer_grace_ms);
    if (!linger_ || until.at() > linger_->at()) linger_ = until;
    int number = socket.get();
    poller_.add(number);
    guests_.insert_or_assign(number, Guest{std::move(socket), greeting.rank});
  }

  // A guest either gives up (one byte) or hangs up.
  void listen_to(int fd) {
    auto found = guests_.find(fd);
    if (found == guests_.end()) return;
    char byte = 0;
    size_t have = 0;
    IoStatus status = receive_some(fd, &byte, 1, &have);
    if (status == IoStatus::again) return;
    int rank = found->second.rank;
    if (status == IoStatus::done) return roll_.give_up(rank);
    if (!found->second.answered) roll_.vanish(rank);
    poller_.remove(fd);
    guests_.erase(found);
  }

  void answer_all() {
    wire::Verdict verdict;
    verdict.code = roll_.code();
    verdict.comm_id = comm_id_;
    verdict.hub = roll_.hub();
    wire::put_text(verdict.text, roll_.message());
    for (auto& [fd, guest] : guests_) {
      if (std::exchange(guest.answered, true)) continue;
      // The first and only bytes of this direction: they fit into the socket's buffer.
      send_all(fd, &verdict, sizeof(verdict), Deadline::after_ms(0));
    }
    // A good id is used up; after a bad start the late ranks must still hear why.
    if (door_.open() && roll_.complete()) door_.close();
  }

  // Guests hang up when they have read their answer.
  bool over() const {
    if (!roll_.decided()) return false;
    bool nobody_left = guests_.empty() && !door_.open();
    return nobody_left || (linger_ && linger_->expired());
  }

  int wait_ms() const {
    int wait = door_.wait_ms();
    if (!roll_.decided() || !linger_) return wait;
    return wait < 0 ? linger_->poll_ms() : std::min(wait, linger_->poll_ms());
  }

  Poller poller_;
  AcceptFilter door_;
  Token comm_id_;
  RollCall roll_;
  std::map<int, Guest> guests_;     // by descriptor
  std::optional<Deadline> linger_;  // as long as the most patient rank may still wait for others
};

}  // namespace

UniqueId start_rendezvous(const std::string& socket_ifname) {
  UniqueId id;
  id.secret = Token::random();
  Fd listener = listen_on(local_address(socket_ifname), &id.address);
  auto rendezvous = std::make_shared<Rendezvous>(std::move(listener), id.secret);
  // Detached: the program may end, or fork, without waiting for ranks that never come.
  start_service_thread("ucclep-meet", log::rank(), [rendezvous] { rendezvous->serve(); }).detach();
  log::info("bootstrap", "the rendezvous listens at {}", id.address.text());
  return id;
}

RendezvousVisit::RendezvousVisit(const UniqueId& id, Deadline deadline)
    : id_(id), deadline_(deadline), socket_(connect_to(id.address, deadline, "the rendezvous of this unique id")) {}

wire::Verdict RendezvousVisit::meet(wire::Greeting greeting) {
  greeting.purpose = wire::Purpose::rendezvous;
  greeting.timeout_ms = static_cast<int32_t>(std::min<int64_t>(deadline_.total_ms(), INT32_MAX));
  wire::Verdict verdict;
  const Call call{
      id_.address, deadline_, "the rendezvous of this unique id",
      fmt::format(
          "the rendezvous at {} closed the connection to rank {}: the process that called ucclEpGetUniqueId has "
          "ended, or the unique id was used before",
          id_.address.text(), greeting.rank)};
  socket_ = call_until_answered(call, std::move(socket_), [&](int socket) {
    greeting.nonce = Token::random();
    return ask(socket, greeting, &verdict);
  });
  auto code = result_of(verdict.code);
  if (code != ucclEpSuccess) throw Error(code, std::string(wire::get_text(verdict.text)));
  return verdict;
}

IoStatus RendezvousVisit::ask(int socket, const wire::Greeting& greeting, wire::Verdict* verdict) const {
  IoStatus status = shake_hands(socket, greeting, id_.secret, deadline_, "the rendezvous at " + id_.address.text());
  if (status != IoStatus::done) return status;
  if (!wait_readable(socket, deadline_)) send_all(socket, &wire::give_up_byte, 1, Deadline::after_ms(0));
  // Either the answer is there, or the rendezvous says now what is missing.
  status = receive_all(socket, verdict, sizeof(*verdict), deadline_.with_grace());
  if (status == IoStatus::again || (status == IoStatus::done && verdict->magic != wire::magic)) {
    fail(ucclEpTimeout, "the rendezvous at {} did not answer rank {} within {} ms", id_.address.text(), greeting.rank,
         deadline_.total_ms());
  }
  return status;
}

}  // namespace ucclep

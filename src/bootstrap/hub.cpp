// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/hub.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/node.hpp"
#include "bootstrap/accept_filter.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/rounds.hpp"
#include "bootstrap/stream_io.hpp"

namespace ucclep {
namespace {

using wire::FrameType;

// How long the hub waits at its end for the others to take the last frames.
constexpr int linger_ms = 500;

class HubLoop {
 public:
  HubLoop(Fd listener, const Token& secret, int nranks, Fd rank0)
      : door_(
            poller_, std::move(listener), secret, wire::Purpose::hub,
            [this](Fd socket, const wire::Greeting& greeting) { admit(std::move(socket), greeting); },
            [this](const std::string& text) { rounds_.remark("rank 0's " + text); }),
        members_(static_cast<size_t>(nranks)),
        rounds_(nranks) {
    wire::Greeting greeting;
    greeting.pid = getpid();
    wire::put_text(greeting.host, host_name());
    take(std::move(rank0), greeting);
  }

  void serve() {
    while (members_.front().socket) {
      step(door_.wait_ms());
      door_.tend();
    }
    end();
  }

 private:
  struct Member {
    Fd socket;
    FrameReader reader;
    FrameWriter writer;
    std::string name;  // for error messages
    bool came = false;
    bool waits_to_write = false;
    // Once it is lost or has said goodbye: what the others are told. Nothing more is expected from it.
    FrameType news = FrameType::lost;
    std::shared_ptr<const std::string> message;
  };

  void step(int wait_ms) {
    for (const Poller::Event& event : std::vector<Poller::Event>(poller_.wait(wait_ms))) {
      if (door_.handle(event)) continue;
      auto found = rank_of_.find(event.fd);
      if (found == rank_of_.end()) continue;
      int rank = found->second;
      if (event.writable) flush(rank);
      if (event.readable && member(rank).socket) read(rank);
    }
  }

  Member& member(int rank) { return members_[static_cast<size_t>(rank)]; }
  int nranks() const { return static_cast<int>(members_.size()); }

  // Its verdict is the first that a rank reads: it fits into the socket's buffer.
  void admit(Fd socket, const wire::Greeting& greeting) {
    const int rank = greeting.rank;
    wire::Verdict verdict;
    if (rank <= 0 || rank >= nranks() || member(rank).came) {
      const std::string text = fmt::format(
          "rank 0 refused a connection: rank {} is already connected, or is not a rank of this communicator", rank);
      log::warn("bootstrap", "{}", text);
      verdict = refusal(ucclEpInvalidUsage, text);
    }
    send_all(socket.get(), &verdict, sizeof(verdict), Deadline::after_ms(0));
    if (verdict.code == ucclEpSuccess) take(std::move(socket), greeting);
  }

  void take(Fd socket, const wire::Greeting& greeting) {
    const int rank = greeting.rank;
    Member& one = member(rank);
    one.came = true;
    one.name = fmt::format("rank {} (pid {} on {})", rank, greeting.pid, wire::get_text(greeting.host));
    one.socket = std::move(socket);
    rank_of_[one.socket.get()] = rank;
    poller_.add(one.socket.get());
    for (int other = 0; other < nranks(); ++other) send_news(rank, other);  // news that it missed
    if (++came_ == nranks()) door_.close();
  }

  void read(int rank) {
    Member& one = member(rank);
    IoStatus status = one.reader.fill(one.socket.get());
    while (auto frame = one.reader.next()) {
      handle(rank, std::move(*frame));
      if (!one.socket) return;
    }
    if (status == IoStatus::closed) disconnect(rank);
  }

  void handle(int rank, Frame frame) {
    const wire::FrameHeader& header = frame.header;
    if (ending_) return;
    switch (header.type) {
      case FrameType::part:
        return deliver(rounds_.add_part(rank, header.sequence, static_cast<wire::RoundKind>(header.detail),
                                        std::move(frame.payload)));
      case FrameType::give_up:
        return deliver(rounds_.give_up(rank, header.sequence, header.detail));
      case FrameType::left:
        return announce(rank, FrameType::left, member(rank).name + " has left the communicator");
      case FrameType::abort:
        return announce(rank, FrameType::lost,
                        member(rank).name + (frame.payload.empty() ? " aborted the communicator"
                                                                   : " aborted the communicator: " + frame.payload));
      case FrameType::notify:
        if (header.detail >= members_.size()) break;
        return send(static_cast<int>(header.detail), {.type = FrameType::notify, .detail = static_cast<uint32_t>(rank)},
                    std::make_shared<const std::string>(std::move(frame.payload)));
      case FrameType::result:
      case FrameType::lost:
        break;  // only the hub sends these
    }
    log::warn("bootstrap", "{} sent an invalid frame of type {}", member(rank).name,
              static_cast<uint32_t>(header.type));
    disconnect(rank);
  }

  void disconnect(int rank) {
    Member& one = member(rank);
    if (!one.socket) return;
    poller_.remove(one.socket.get());
    rank_of_.erase(one.socket.get());
    one.socket.reset();
    if (ending_) return;
    announce(rank, FrameType::lost, one.name + " has died: its connection closed without a goodbye");
  }

  // Only the first news about a rank counts.
  void announce(int rank, FrameType news, const std::string& message) {
    Member& one = member(rank);
    if (one.message) return;
    log::info("bootstrap", "{}", message);
    one.news = news;
    one.message = std::make_shared<const std::string>(message);
    for (int other = 0; other < nranks(); ++other) send_news(other, rank);
    deliver(rounds_.leave(rank, message));
  }

  void send_news(int rank, int about) {
    const Member& gone = member(about);
    if (rank != about && gone.message) {
      send(rank, {.type = gone.news, .detail = static_cast<uint32_t>(about)}, gone.message);
    }
  }

  void deliver(const std::vector<Rounds::Delivery>& deliveries) {
    for (const Rounds::Delivery& one : deliveries) {
      send(one.rank, {.type = FrameType::result, .sequence = one.sequence, .detail = static_cast<uint32_t>(one.code)},
           one.payload);
    }
  }

  void send(int rank, wire::FrameHeader header, std::shared_ptr<const std::string> payload) {
    Member& one = member(rank);
    if (!one.socket) return;
    one.writer.push(header, std::move(payload));
    flush(rank);
  }

  // A connection that failed is noticed by the read that follows.
  void flush(int rank) {
    Member& one = member(rank);
    bool waits = one.writer.flush(one.socket.get()) == IoStatus::again;
    if (waits != one.waits_to_write) {
      one.waits_to_write = waits;
      poller_.want_write(one.socket.get(), waits);
    }
  }

  // The others close their ends when they have read everything up to the end of the stream.
  void end() {
    ending_ = true;
    door_.close();
    Deadline deadline = Deadline::after_ms(linger_ms);
    while (!rank_of_.empty() && !deadline.expired()) {
      for (Member& one : members_) {
        if (one.socket && one.writer.empty()) shutdown(one.socket.get(), SHUT_WR);
      }
      step(deadline.poll_ms());
    }
  }

  Poller poller_;
  AcceptFilter door_;
  std::vector<Member> members_;  // by rank
  std::map<int, int> rank_of_;   // by descriptor
  int came_ = 0;
  bool ending_ = false;
  Rounds rounds_;
};

}  // namespace

Hub::Hub(Fd listener, const Token& secret, int nranks, Fd rank0) {
  auto loop = std::make_shared<HubLoop>(std::move(listener), secret, nranks, std::move(rank0));
  thread_ = start_service_thread("ucclep-hub", 0, [loop] { loop->serve(); });
}

Hub::~Hub() {
  thread_.join();
}

}  // namespace ucclep

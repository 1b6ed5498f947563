// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/fd_exchange.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <list>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/token.hpp"
#include "bootstrap/agreement.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/descriptor_label.hpp"
#include "bootstrap/files_limit.hpp"
#include "bootstrap/roll_call.hpp"
#include "bootstrap/stream_io.hpp"

namespace ucclep {
namespace {

constexpr int64_t settle_ms = 500;  // for a rank whose time runs out to say why
// Connections held that have not said yet who they are; more wait in the backlog. However many strangers knock, they
// cannot take all of the process's descriptors: the one that a peer sends needs a place too. Another user's are closed
// at once; one of this user's that says nothing has a second, less while others wait for its place.
constexpr size_t max_guests = 16;
constexpr std::chrono::milliseconds descriptor_patience{1000}, crowded_descriptor_patience{50};
constexpr int max_descriptor_accepts = 256;  // in one turn

// Where a rank can be found, told to all over the bootstrap.
struct Door {
  Token name;
  uint32_t open = 0;    // 0: this rank has failed already, nobody need wait for it
  uint32_t offers = 0;  // 0: no descriptor comes from it
};

// Abstract names begin with a zero byte: they lie in no file system and vanish with their socket.
socklen_t abstract_name(const Token& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  std::string text = "ucclep-" + name.hex();
  text.copy(address->sun_path + 1, sizeof(address->sun_path) - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
}

Fd unix_socket() {
  Fd fd = Fd::process_private(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail(ucclEpSystemError, "cannot create a unix socket: {}", errno_text(errno));
  return fd;
}

class Exchange {
 public:
  Exchange(Bootstrap& bootstrap, int fd, const std::vector<int>& peers, Deadline deadline)
      : bootstrap_(bootstrap), fd_(fd), deadline_(deadline), result_(static_cast<size_t>(bootstrap.nranks())) {
    for (int peer : peers) {
      if (peer != bootstrap.rank() && !bootstrap.same_process(peer)) peers_.push_back(peer);
    }
  }

  // Before the doors are told to all.
  Door open() {
    if (fd_ >= 0 && fcntl(fd_, F_GETFD) < 0) {
      fail(ucclEpSystemError, "cannot send the descriptor {}: {}", fd_, errno_text(errno));
    }
    own_ = {Token::random(), 1, fd_ >= 0};
    listener_ = unix_socket();
    sockaddr_un address;
    socklen_t length = abstract_name(own_.name, &address);
    if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(listener_.get(), 4096) != 0) {
      fail(ucclEpSystemError, "cannot listen on an abstract unix socket: {}", errno_text(errno));
    }
    return own_;
  }

  // The higher rank of a pair connects and sends first, the lower one answers: nobody waits before it has sent.
  std::vector<Fd> run(const std::vector<Door>& doors) {
    for (int peer : peers_) {
      if (!bootstrap_.same_node(peer)) {
        fail(ucclEpInvalidArgument,
             "rank {} is on {}, which is not the node of rank {}: only ranks of one node can share memory", peer,
             bootstrap_.host_name(peer), bootstrap_.rank());
      }
      if (peer < bootstrap_.rank()) unreached_.push_back(peer);
    }
    missing_ = peers_;
    while (!missing_.empty()) step(doors);
    return std::move(result_);
  }

 private:
  // False: strangers fill the peer's backlog, to be tried again.
  bool connect_to_peer(int peer, const Door& door) {
    Fd socket = unix_socket();
    sockaddr_un address;
    socklen_t length = abstract_name(door.name, &address);
    int status;
    do {
      status = connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length);
    } while (status != 0 && errno == EINTR);
    if (status != 0 && errno == EAGAIN) return false;
    if (status != 0) {
      fail(ucclEpRemoteError, "cannot connect to rank {} (pid {}) to exchange descriptors: {}", peer,
           bootstrap_.pid(peer), errno_text(errno));
    }
    if (!same_user(socket.get())) {
      fail(ucclEpRemoteError,
           "rank {} (pid {}) and rank {} run as different users: only ranks of one user can share memory", peer,
           bootstrap_.pid(peer), bootstrap_.rank());
    }
    send_label(socket.get(), label_for(door, bootstrap_.rank()), fd_, peer);
    Incoming& in = open_.emplace_back();
    in.socket = std::move(socket);
    in.rank = peer;
    return true;
  }

  // Proof that a rank of this communicator knocks at this very door.
  Label label_for(const Door& door, int from) const {
    return {bootstrap_.prove(fmt::format("descriptor at {} of rank {}", door.name.hex(), from)), from};
  }

  void step(const std::vector<Door>& doors) {
    std::erase_if(unreached_, [&](int peer) { return connect_to_peer(peer, doors[static_cast<size_t>(peer)]); });
    wait();
    accept_guests(doors);
    for (auto it = open_.begin(); it != open_.end();) it = hear(it, doors);
    drop_silent(descriptor_patience);
  }

  void accept_guests(const std::vector<Door>& doors) {
    for (int i = 0; i < max_descriptor_accepts; ++i) {
      if (guests() >= max_guests && !drop_silent(crowded_descriptor_patience)) return;
      Fd guest = Fd::process_private(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!guest && (errno == EMFILE || errno == ENFILE)) no_place("a connection");
      if (!guest) return;
      if (!same_user(guest.get())) continue;
      open_.emplace_back().socket = std::move(guest);
      hear(std::prev(open_.end()), doors);
    }
  }

  // What comes after it in the list; it goes when it is finished, or hung up.
  std::list<Incoming>::iterator hear(std::list<Incoming>::iterator in, const std::vector<Door>& doors) {
    const IoStatus status = receive_label(*in);
    if (status == IoStatus::again) return std::next(in);
    if (status == IoStatus::done) {
      take(*in, doors);
    } else if (in->rank >= 0) {
      unreached_.push_back(in->rank);  // it was too busy to hear this rank in time
    }
    return open_.erase(in);
  }

  // True: somebody went.
  bool drop_silent(std::chrono::milliseconds longest) {
    const auto now = Deadline::Clock::now();
    return std::erase_if(open_, [&](const Incoming& in) { return in.rank < 0 && now - in.since >= longest; }) > 0;
  }

  // Short slices: the bootstrap knows first when a peer has died.
  void wait() {
    std::vector<pollfd> waits{{guests() < max_guests ? listener_.get() : -1, POLLIN, 0}};
    for (const Incoming& in : open_) waits.push_back({in.socket.get(), POLLIN, 0});
    const int slice_ms = unreached_.empty() ? 50 : 1;
    poll(waits.data(), waits.size(), std::min(slice_ms, deadline_.poll_ms()));
    for (int peer : missing_) {
      if (!bootstrap_.alive(peer)) fail(ucclEpRemoteError, "rank {} died during an exchange of descriptors", peer);
    }
    if (deadline_.expired()) {
      fail(ucclEpTimeout, "{} did not send a descriptor within {} ms", name_ranks(missing_), deadline_.total_ms());
    }
  }

  void take(Incoming& in, const std::vector<Door>& doors) {
    const int peer = in.label.rank;
    if (!same_mac(in.label.proof, label_for(own_, peer).proof)) return;  // a stranger: the true peer is yet to come
    const auto awaited = std::find(missing_.begin(), missing_.end(), peer);
    bool expected = in.rank >= 0 ? in.rank == peer : peer > bootstrap_.rank();
    if (!expected || awaited == missing_.end()) {
      fail(ucclEpInternalError, "rank {} sent an unexpected descriptor", peer);
    }
    if (in.lost) no_place("the descriptor of rank " + std::to_string(peer));
    if (!in.received && doors[static_cast<size_t>(peer)].offers != 0) {
      fail(ucclEpRemoteError, "rank {} announced a descriptor, but sent none", peer);
    }
    if (in.rank < 0) {
      send_label(in.socket.get(), label_for(doors[static_cast<size_t>(peer)], bootstrap_.rank()), fd_, peer);
    }
    result_[static_cast<size_t>(peer)] = std::move(in.received);
    missing_.erase(awaited);
  }

  [[noreturn]] void no_place(const std::string& of) const {
    fail(ucclEpSystemError, "rank {} cannot receive {}: too many open files (RLIMIT_NOFILE is {})", bootstrap_.rank(),
         of, files_limit());
  }

  size_t guests() const {
    return static_cast<size_t>(
        std::count_if(open_.begin(), open_.end(), [](const Incoming& in) { return in.rank < 0; }));
  }

  Bootstrap& bootstrap_;
  int fd_;
  Deadline deadline_;
  std::vector<int> peers_;
  std::vector<int> unreached_;  // to be connected to
  std::vector<int> missing_;    // have not handed over what they have
  Door own_;
  Fd listener_;
  std::list<Incoming> open_;
  std::vector<Fd> result_;
};

}  // namespace

namespace {

// Whoever cannot open its door says why; this is for a rank that does not.
[[noreturn]] void throw_shut(const std::vector<Door>& doors) {
  std::vector<int> shut;
  for (size_t rank = 0; rank < doors.size(); ++rank) {
    if (doors[rank].open != 1) shut.push_back(static_cast<int>(rank));
  }
  fail(ucclEpRemoteError, "{} did not open a socket to exchange descriptors, and sent no reason", name_ranks(shut));
}

}  // namespace

std::vector<Fd> exchange_fds(Bootstrap& bootstrap, int fd, const std::vector<int>& peers, Deadline deadline) {
  Exchange exchange(bootstrap, fd, peers, deadline.leaving_ms(settle_ms));
  Agreement agreement("exchange of descriptors");
  Door door;
  std::vector<Fd> result;
  agreement.attempt([&] { door = exchange.open(); });
  std::vector<Door> doors = bootstrap.allgather(door, deadline);
  bool all_open = std::all_of(doors.begin(), doors.end(), [](const Door& one) { return one.open == 1; });
  if (all_open) agreement.attempt([&] { result = exchange.run(doors); });
  agreement.settle(bootstrap, deadline);
  if (!all_open) throw_shut(doors);
  return result;
}

}  // namespace ucclep

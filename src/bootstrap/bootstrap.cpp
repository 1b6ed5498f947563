// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/attempt.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "bootstrap/agreement.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/hub.hpp"
#include "bootstrap/pieces.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/spoke.hpp"
#include "bootstrap/wire.hpp"

namespace ucclep {
namespace {

wire::PeerCard own_card() {
  wire::PeerCard card;
  card.node = this_node();
  card.process = this_process();
  card.pid = getpid();
  wire::put_text(card.host, host_name());
  return card;
}

// Where rank 0's hub is and how to get in.
struct Meeting {
  Fd listener;  // rank 0 only
  SocketAddress hub;
  Token secret;
  Token comm_id;
  std::optional<Error> failure;  // of the caller's allgather on this rank
};

// The first and only thing that goes through the caller's allgather.
struct JoinCard {
  uint64_t magic = 0;
  uint32_t version = 0;
  int32_t rank = 0;
  int32_t nranks = 0;
  int32_t code = 0;
  WireAddress hub;
  Token secret;
  Token comm_id;
  char text[176] = {};
};
static_assert(std::is_trivially_copyable_v<JoinCard> && sizeof(JoinCard) == 256);

bool is_card_of(const JoinCard& card, int rank) {
  return card.magic == wire::magic && card.version == wire::version && card.rank == rank;
}

void check_card(const JoinCard& card, int rank, int own_rank, int nranks) {
  if (!is_card_of(card, rank)) {
    fail(ucclEpInvalidArgument,
         "the caller's allgather returned wrong data to rank {}: the part of rank {} is not at the index of rank {} "
         "(magic {:#x}, version {}, rank {})",
         own_rank, rank, rank, card.magic, card.version, card.rank);
  }
  if (card.nranks != nranks) {
    fail(ucclEpInvalidArgument, "nranks differs between ranks: rank {} gave {}, rank {} gave {}", rank, card.nranks,
         own_rank, nranks);
  }
  if (card.code != 0) {
    throw Error(result_of(card.code), fmt::format("rank {}: {}", rank, wire::get_text(card.text)));
  }
}

// One of each rank.
std::vector<std::string> texts_of(const std::string& all, int nranks, const char* round) {
  std::vector<std::string> texts;
  PieceReader reader(all);
  while (auto text = reader.next()) texts.push_back(std::move(*text));
  if (!reader.at_end() || texts.size() != static_cast<size_t>(nranks)) {
    fail(ucclEpInternalError, "{} returned {} texts for {} ranks", round, texts.size(), nranks);
  }
  return texts;
}

// What the hub says of ranks that there are not is not handed on.
std::function<void(int, const std::string&)> only_ranks(std::function<void(int, const std::string&)> handler,
                                                        int nranks) {
  if (!handler) return {};
  return [handler = std::move(handler), nranks](int rank, const std::string& text) {
    if (rank >= 0 && rank < nranks) return handler(rank, text);
    log::warn("bootstrap", "rank 0 sent a report about rank {}, expected 0 to {}: {}", rank, nranks - 1, text);
  };
}

wire::Greeting own_greeting(int rank, int nranks) {
  wire::Greeting greeting;
  greeting.rank = rank;
  greeting.nranks = nranks;
  greeting.pid = getpid();
  wire::put_text(greeting.host, host_name());
  return greeting;
}

// Why it failed, if it did. A caller in C++ may throw, too.
std::optional<Error> call_allgather(const ucclEpBootstrap_t& callback, std::vector<JoinCard>& cards, int rank) {
  try {
    const int code = callback.allgather(callback.ctx, cards.data(), sizeof(JoinCard));
    if (code == 0) return std::nullopt;
    return Error(ucclEpSystemError,
                 fmt::format("the caller's allgather returned {} on rank {}, expected 0", code, rank));
  } catch (const std::exception& thrown) {
    return Error(ucclEpSystemError,
                 fmt::format("the caller's allgather threw an exception on rank {}: {}", rank, thrown.what()));
  } catch (...) {
    return Error(ucclEpSystemError, fmt::format("the caller's allgather threw an exception on rank {}", rank));
  }
}

Meeting meet_by_callback(const ucclEpBootstrap_t& callback, int rank, int nranks, const std::string& socket_ifname) {
  Meeting meeting;
  std::vector<JoinCard> cards(static_cast<size_t>(nranks));
  JoinCard& mine = cards[static_cast<size_t>(rank)];
  mine.magic = wire::magic;
  mine.version = wire::version;
  mine.rank = rank;
  mine.nranks = nranks;
  if (rank == 0) {
    try {
      meeting.listener = listen_on(local_address(socket_ifname), &meeting.hub);
      mine.hub = to_wire(meeting.hub);
      mine.secret = Token::random();
      mine.comm_id = Token::random();
    } catch (const Error& error) {  // the others are waiting in their allgather: they must hear of it
      mine.code = error.code();
      wire::put_text(mine.text, error.what());
    }
  }
  meeting.failure = call_allgather(callback, cards, rank);
  if (meeting.failure && !is_card_of(cards.front(), 0)) throw *meeting.failure;
  const int checked = meeting.failure ? 1 : nranks;
  for (int other = 0; other < checked; ++other) check_card(cards[static_cast<size_t>(other)], other, rank, nranks);
  meeting.hub = from_wire(cards.front().hub);
  meeting.secret = cards.front().secret;
  meeting.comm_id = cards.front().comm_id;
  return meeting;
}

Meeting meet_by_id(const UniqueId& id, int rank, int nranks, const std::string& socket_ifname, Deadline deadline) {
  RendezvousVisit visit(id, deadline);
  Meeting meeting;
  meeting.secret = id.secret;
  wire::Greeting greeting = own_greeting(rank, nranks);
  if (rank == 0) {
    // The side from which this rank reached the rendezvous is the side from which the others can reach this rank.
    WireAddress side = to_wire(socket_ifname.empty() ? local_side(visit.socket()) : local_address(socket_ifname));
    side.port = 0;
    meeting.listener = listen_on(from_wire(side), &meeting.hub);
    greeting.hub = to_wire(meeting.hub);
  }
  wire::Verdict verdict = visit.meet(greeting);
  meeting.hub = from_wire(verdict.hub);
  meeting.comm_id = verdict.comm_id;
  return meeting;
}

}  // namespace

struct Bootstrap::Impl {
  const pid_t owner = getpid();
  int rank;
  int nranks;
  Token secret;
  Token comm_id;
  std::vector<wire::PeerCard> cards;
  std::vector<std::string> hosts;
  std::unique_ptr<Hub> hub;  // rank 0 only; ends when the spoke has closed, so it is destroyed after it
  std::unique_ptr<Spoke> spoke;

  Impl(Meeting meeting, int own_rank, int world, Deadline deadline)
      : rank(own_rank),
        nranks(world),
        secret(meeting.secret),
        comm_id(meeting.comm_id),
        cards(static_cast<size_t>(world)) {
    spoke = std::make_unique<Spoke>(rank == 0 ? start_hub(meeting) : connect_to_hub(meeting, deadline), rank);
    introduce(deadline);
  }

  Fd start_hub(Meeting& meeting) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
      fail(ucclEpSystemError, "cannot create a pair of sockets: socketpair: {}", errno_text(errno));
    }
    Fd own = Fd::process_private(pair[0]);
    hub = std::make_unique<Hub>(std::move(meeting.listener), meeting.secret, nranks, Fd::process_private(pair[1]));
    return own;
  }

  Fd connect_to_hub(const Meeting& meeting, Deadline deadline) const {
    wire::Greeting greeting = own_greeting(rank, nranks);
    greeting.purpose = wire::Purpose::hub;
    wire::Verdict verdict;
    const std::string what = "rank 0 at " + meeting.hub.text();
    const Call call{meeting.hub, deadline, "rank 0",
                    fmt::format("{} closed the connection to rank {} and has ended", what, rank)};
    Fd socket = call_until_answered(call, {}, [&](int number) {
      greeting.nonce = Token::random();
      IoStatus status = shake_hands(number, greeting, meeting.secret, deadline, what);
      if (status == IoStatus::done) status = receive_all(number, &verdict, sizeof(verdict), deadline);
      return status;
    });
    const ucclEpResult_t code = result_of(verdict.code);
    if (code != ucclEpSuccess) throw Error(code, std::string(wire::get_text(verdict.text)));
    return socket;
  }

  void introduce(Deadline deadline) {
    wire::PeerCard& mine = cards[static_cast<size_t>(rank)];
    if (const auto failed = attempt([&] { mine = own_card(); })) {
      spoke->abort(failed->what());
      throw *failed;
    }
    allgather(cards.data(), sizeof(wire::PeerCard), deadline);
    for (const wire::PeerCard& card : cards) hosts.emplace_back(wire::get_text(card.host));
    spoke->name_hub(fmt::format("rank 0 (pid {} on {})", cards.front().pid, hosts.front()));
    log::info("bootstrap", "rank {} of {} has joined communicator {}", rank, nranks, comm_id.hex());
  }

  void allgather(void* buf, size_t bytes_per_rank, Deadline deadline) const {
    auto* bytes = static_cast<char*>(buf);
    std::string mine(bytes + static_cast<size_t>(rank) * bytes_per_rank, bytes_per_rank);
    std::string all = round(wire::RoundKind::gather, mine, deadline);
    if (all.size() != bytes_per_rank * static_cast<size_t>(nranks)) {
      fail(ucclEpInternalError, "an allgather of {} bytes per rank returned {} bytes for {} ranks", bytes_per_rank,
           all.size(), nranks);
    }
    if (!all.empty()) std::memcpy(buf, all.data(), all.size());
  }

  std::string round(wire::RoundKind kind, const std::string& part, Deadline deadline) const {
    if (forked()) {
      fail(ucclEpInvalidUsage, "the communicator of process {} cannot be used in its forked child {}", owner, getpid());
    }
    return spoke->round(kind, part, deadline);
  }

  // A child has neither the threads nor the sockets of its parent.
  bool forked() const { return owner != getpid(); }

  const wire::PeerCard& card(int peer) const { return cards.at(static_cast<size_t>(peer)); }
  const wire::PeerCard& own() const { return card(rank); }
};

ucclEpUniqueId open_rendezvous(const std::string& socket_ifname) {
  return encode(start_rendezvous(socket_ifname));
}

std::unique_ptr<Bootstrap> Bootstrap::join(const ucclEpUniqueId& id, int rank, int nranks,
                                           const std::string& socket_ifname, Deadline deadline) {
  Meeting meeting = meet_by_id(decode(id), rank, nranks, socket_ifname, deadline);
  return std::unique_ptr<Bootstrap>(new Bootstrap(std::make_unique<Impl>(std::move(meeting), rank, nranks, deadline)));
}

std::unique_ptr<Bootstrap> Bootstrap::join(const ucclEpBootstrap_t& callback, int rank, int nranks,
                                           const std::string& socket_ifname, Deadline& deadline, Agreement& agreement) {
  // Alone: without a place in the buffer this rank cannot take part.
  if (nranks <= 0) fail(ucclEpInvalidArgument, "nranks is {}: expected at least 1", nranks);
  if (nranks > wire::max_ranks) {
    fail(ucclEpInvalidArgument, "nranks is {}: expected at most {} (max_ranks of ucclEpGroupQuery)", nranks,
         wire::max_ranks);
  }
  if (rank < 0 || rank >= nranks) {
    fail(ucclEpInvalidArgument, "rank {} is out of range: expected 0 to {}, because nranks = {}", rank, nranks - 1,
         nranks);
  }
  if (callback.allgather == nullptr) fail(ucclEpInvalidArgument, "the bootstrap's allgather is NULL");
  const auto begin = Deadline::Clock::now();
  Meeting meeting = meet_by_callback(callback, rank, nranks, socket_ifname);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - begin);
  deadline = Deadline::after_ms(deadline.total_ms());
  const std::optional<Error> failure = meeting.failure;
  if (failure) agreement.error(*failure);
  try {
    return std::unique_ptr<Bootstrap>(
        new Bootstrap(std::make_unique<Impl>(std::move(meeting), rank, nranks, deadline)));
  } catch (const Error& error) {
    if (failure) throw *failure;
    if (took.count() <= deadline.total_ms()) throw;
    fail(error.code(), "{}; the caller's allgather took {} ms on rank {}, longer than its time limit of {} ms",
         error.what(), took.count(), rank, deadline.total_ms());
  }
}

Bootstrap::Bootstrap(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Bootstrap::~Bootstrap() {
  close(Deadline::after_ms(Deadline::grace_ms));
  // What other threads of the parent held at the fork is never given back: left as it is.
  if (impl_->forked()) {
    [[maybe_unused]] const Impl* abandoned = impl_.release();
  }
}

int Bootstrap::rank() const {
  return impl_->rank;
}
int Bootstrap::nranks() const {
  return impl_->nranks;
}
const Token& Bootstrap::comm_id() const {
  return impl_->comm_id;
}
Mac Bootstrap::prove(std::string_view text) const {
  const auto& key = impl_->secret.bytes;
  return hmac_sha256({reinterpret_cast<const char*>(key.data()), key.size()}, text);
}

int Bootstrap::pid(int rank) const {
  return impl_->card(rank).pid;
}
const std::string& Bootstrap::host_name(int rank) const {
  return impl_->hosts.at(static_cast<size_t>(rank));
}
const NodeId& Bootstrap::node(int rank) const {
  return impl_->card(rank).node;
}
bool Bootstrap::same_node(int rank) const {
  return impl_->card(rank).node == impl_->own().node;
}
bool Bootstrap::same_process(int rank) const {
  return impl_->card(rank).process == impl_->own().process;
}

std::vector<int> Bootstrap::node_ranks() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < nranks(); ++rank) {
    if (same_node(rank)) ranks.push_back(rank);
  }
  return ranks;
}

void Bootstrap::allgather(void* buf, size_t bytes_per_rank, Deadline deadline) {
  impl_->allgather(buf, bytes_per_rank, deadline);
}
std::vector<std::string> Bootstrap::collect(const std::string& mine, Deadline deadline) {
  std::string part;
  put_piece(part, mine);
  return texts_of(impl_->round(wire::RoundKind::collect, part, deadline), nranks(), "a collection of texts");
}
void Bootstrap::barrier(Deadline deadline) {
  impl_->round(wire::RoundKind::gather, "", deadline);
}
void Bootstrap::barrier_living(Deadline deadline) {
  impl_->round(wire::RoundKind::living, "", deadline);
}
std::vector<std::pair<int, std::string>> Bootstrap::collect_living(const std::string& mine, Deadline deadline) {
  std::string part;
  const int self = rank();
  put_piece(part, {reinterpret_cast<const char*>(&self), sizeof self});
  put_piece(part, mine);
  const std::string all = impl_->round(wire::RoundKind::living, part, deadline);
  std::vector<std::pair<int, std::string>> texts;
  PieceReader reader(all);
  while (const auto name = reader.next()) {
    int of = -1;
    if (name->size() == sizeof of) std::memcpy(&of, name->data(), sizeof of);
    auto text = reader.next();
    if (of < 0 || of >= nranks() || !text)
      fail(ucclEpInternalError, "call among surviving ranks: a rank sent the invalid rank number {}", of);
    texts.emplace_back(of, std::move(*text));
  }
  if (!reader.at_end())
    fail(ucclEpInternalError, "call among surviving ranks: cannot parse all of the {} bytes received", all.size());
  return texts;
}
std::vector<std::string> Bootstrap::exchange(const std::vector<std::string>& mine, bool living, Deadline deadline) {
  std::string part;
  for (const std::string& piece : mine) put_piece(part, piece);
  return texts_of(impl_->round(living ? wire::RoundKind::exchange_living : wire::RoundKind::exchange, part, deadline),
                  nranks(), "an exchange of pieces");
}
void Bootstrap::throw_size(int rank, size_t bytes, size_t expected) {
  fail(ucclEpInternalError, "allgather among surviving ranks: rank {} sent {} bytes, expected {}", rank, bytes,
       expected);
}
void Bootstrap::agree(const std::string& contribution, Deadline deadline) {
  impl_->round(wire::RoundKind::agree, contribution, deadline);
}

void Bootstrap::on_peer_loss(std::function<void(int rank, const std::string& message)> handler) {
  impl_->spoke->on_loss(only_ranks(std::move(handler), nranks()));
}
void Bootstrap::notify(int rank, const std::string& text) {
  if (!impl_->forked()) impl_->spoke->notify(rank, text);
}
void Bootstrap::on_notification(std::function<void(int rank, const std::string& text)> handler) {
  impl_->spoke->on_notification(only_ranks(std::move(handler), nranks()));
}
bool Bootstrap::alive(int rank) const {
  return impl_->spoke->alive(rank);
}
void Bootstrap::abort(const std::string& why) {
  if (!impl_->forked()) impl_->spoke->abort(why);
}

void Bootstrap::close(Deadline until) {
  if (impl_->forked()) return;
  impl_->spoke->close(until);
  impl_->hub.reset();
}

}  // namespace ucclep

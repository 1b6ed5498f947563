// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/accept_filter.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "base/best_effort.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "bootstrap/files_limit.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/stream_io.hpp"

namespace ucclep {
namespace {

using std::chrono::milliseconds;

// How long a stranger may take in all; and when others wait for its place, until it has greeted, and for its proof.
constexpr milliseconds patience{3000};
constexpr milliseconds crowded_patience{250}, crowded_proof_patience{1000};
constexpr int pause_ms = 50;
// Accepted in one turn: those that are in already are heard in between.
constexpr int max_accepted = 64;
// Refusals of which each has a line in the log; after them every power of two.
constexpr uint64_t max_lines = 8;

}  // namespace

AcceptFilter::AcceptFilter(Poller& poller, Fd listener, const Token& secret, wire::Purpose purpose, Admit admit,
                           Full full)
    : poller_(poller),
      listener_(std::move(listener)),
      secret_(secret),
      purpose_(purpose),
      admit_(std::move(admit)),
      full_(std::move(full)),
      spare_(Fd::process_private(fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0))) {
  poller_.add(listener_.get());
}

bool AcceptFilter::handle(const Poller::Event& event) {
  if (listener_ && event.fd == listener_.get()) {
    knocked_ = true;
    return true;
  }
  auto found = by_descriptor_.find(event.fd);
  if (found == by_descriptor_.end()) return false;
  hear(found->second);
  return true;
}

void AcceptFilter::tend() {
  while (drop_impatiently(silent_, patience, "sent nothing for three seconds")) {
  }
  while (drop_impatiently(greeted_, patience, "did not send its proof within three seconds")) {
  }
  if (std::exchange(paused_, false) && listener_) poller_.add(listener_.get());
  if (std::exchange(knocked_, false) && listener_) accept_some();
}

void AcceptFilter::accept_some() {
  const size_t places = places_for_strangers();
  for (int i = 0; i < max_accepted && listener_; ++i) {
    if (silent_.size() + greeted_.size() >= places && !make_room()) return pause();
    SocketAddress address;
    Fd socket;
    try {
      socket = accept_from(listener_.get(), &address);
    } catch (const Error& error) {
      if (make_room()) continue;
      log::warn("bootstrap", "{}; the library will retry", error.what());
      if (silent_.empty() && greeted_.empty()) refuse_for_want_of_files();
      return pause();
    }
    if (!socket) return;
    raise_files_limit(socket.get());
    take_in(std::move(socket), address);
  }
}

void AcceptFilter::refuse_for_want_of_files() {
  const std::string text =
      fmt::format("process {} has too many open files: RLIMIT_NOFILE (ulimit -n) is {}", getpid(), files_limit());
  spare_.reset();
  best_effort("bootstrap", "cannot send the reason of a refusal", [&] {
    SocketAddress address;
    const Fd socket = accept_from(listener_.get(), &address);
    const wire::Verdict verdict = refusal(ucclEpSystemError, text);
    if (socket) send_all(socket.get(), &verdict, sizeof(verdict), Deadline::after_ms(0));
  });
  spare_ = Fd::process_private(fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0));
  full_(text);
}

void AcceptFilter::take_in(Fd socket, const SocketAddress& address) {
  const int number = socket.get();
  try {
    poller_.add(number);
  } catch (const Error&) {
    return refused(address, "could not be added to epoll");
  }
  Stranger& stranger = silent_.emplace_back();
  stranger.socket = std::move(socket);
  stranger.address = address;
  stranger.since = Clock::now();
  const Entry entry = std::prev(silent_.end());
  by_descriptor_[number] = entry;
  hear(entry);
}

// True: it is no stranger any more, or was dropped.
bool AcceptFilter::hear(Entry stranger) {
  const char* why = stranger->greeted ? nullptr : hear_greeting(stranger);
  if (why == nullptr && stranger->greeted) why = hear_proof(*stranger);
  const bool proved = stranger->greeted && stranger->have == sizeof(stranger->proof);
  if (why != nullptr) {
    drop(stranger, why);
  } else if (proved) {
    Stranger guest = forget(stranger);
    tune_connection(guest.socket.get());
    admit_(std::move(guest.socket), guest.greeting);
  }
  return why != nullptr || proved;
}

// Each says why the stranger goes; null: it may go on.
const char* AcceptFilter::hear_greeting(Entry stranger) {
  wire::Greeting& greeting = stranger->greeting;
  const int socket = stranger->socket.get();
  const IoStatus status = receive_some(socket, &greeting, sizeof(greeting), &stranger->have);
  if (stranger->have >= sizeof(greeting.magic) && greeting.magic != wire::magic)
    return "did not send a greeting of this library";
  if (status == IoStatus::closed) return "closed the connection";
  if (status == IoStatus::again) return nullptr;
  if (greeting.version != wire::version) {
    const wire::Verdict other = refusal(
        ucclEpInvalidArgument,
        fmt::format("rank {} (pid {} on host {}) uses version {} of the library's wire format, the process at {} "
                    "version {}: all ranks need the same version of the library",
                    greeting.rank, greeting.pid, wire::get_text(greeting.host), greeting.version,
                    local_side(socket).text(), wire::version));
    send_all(socket, &other, sizeof(other), Deadline::after_ms(0));
    return "uses another version of the library's wire format";
  }
  if (greeting.purpose != purpose_) return "asked for a different service";
  stranger->challenge = challenge_to(greeting, secret_);
  // Both fit into the socket's buffer, which is empty.
  if (send_all(socket, &stranger->challenge, sizeof(wire::Challenge), Deadline::after_ms(0)) != IoStatus::done) {
    return "closed the connection";
  }
  stranger->greeted = true;
  stranger->have = 0;
  greeted_.splice(greeted_.end(), silent_, stranger);
  return nullptr;
}

const char* AcceptFilter::hear_proof(Stranger& stranger) {
  const IoStatus status = receive_some(stranger.socket.get(), &stranger.proof, sizeof(stranger.proof), &stranger.have);
  if (status == IoStatus::closed) return "closed the connection";
  if (status == IoStatus::again) return nullptr;
  const wire::Proof expected = proof_of(stranger.greeting, stranger.challenge, secret_);
  return same_mac(stranger.proof.proof, expected.proof) ? nullptr : "does not know the secret";
}

// True: the first of the queue spoke or was dropped, as it was there for so long.
bool AcceptFilter::drop_impatiently(Queue& queue, milliseconds patience, const char* why) {
  if (queue.empty()) return false;
  const Entry oldest = queue.begin();
  if (Clock::now() - oldest->since < patience) return false;
  const bool greeted = oldest->greeted;
  if (!hear(oldest) && oldest->greeted == greeted) drop(oldest, why);
  return true;
}

// Of those that have not spoken the oldest goes; not while it may be about to speak.
bool AcceptFilter::make_room() {
  return drop_impatiently(silent_, crowded_patience, "sent nothing while other connections waited") ||
         drop_impatiently(greeted_, crowded_proof_patience, "did not send its proof while other connections waited");
}

void AcceptFilter::drop(Entry stranger, const char* why) {
  const SocketAddress address = forget(stranger).address;
  refused(address, why);
}

AcceptFilter::Stranger AcceptFilter::forget(Entry stranger) {
  Stranger gone = std::move(*stranger);
  poller_.remove(gone.socket.get());
  by_descriptor_.erase(gone.socket.get());
  (gone.greeted ? greeted_ : silent_).erase(stranger);
  return gone;
}

// Whoever knocks a thousand times a second must not fill the log.
void AcceptFilter::refused(const SocketAddress& address, const char* why) {
  ++refused_;
  if (refused_ <= max_lines) {
    log::warn("bootstrap", "refused a connection from {}: it {}", address.text(), why);
  } else if (std::has_single_bit(refused_)) {
    log::warn("bootstrap", "refused {} connections so far, the last from {}: it {}", refused_, address.text(), why);
  }
}

void AcceptFilter::pause() {
  poller_.remove(listener_.get());
  paused_ = true;
}

int AcceptFilter::wait_ms() const {
  int wait = paused_ ? pause_ms : -1;
  for (const Queue* queue : {&silent_, &greeted_}) {
    if (queue->empty()) continue;
    const auto left = std::chrono::ceil<milliseconds>(queue->front().since + patience - Clock::now());
    const int left_ms = std::max(0, static_cast<int>(left.count()));
    wait = wait < 0 ? left_ms : std::min(wait, left_ms);
  }
  return wait;
}

void AcceptFilter::close() {
  if (listener_ && !paused_) poller_.remove(listener_.get());
  listener_.reset();
  spare_.reset();
  for (const auto& [socket, stranger] : by_descriptor_) poller_.remove(socket);
  by_descriptor_.clear();
  silent_.clear();
  greeted_.clear();
}

}  // namespace ucclep

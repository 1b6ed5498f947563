// SPDX-License-Identifier: Apache-2.0
#include "proxy/group_share.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"

namespace ucclep::proxy {
namespace {

constexpr size_t batch = 64;  // commands, completions
constexpr std::chrono::seconds last_copies{1};

uint32_t& region_of(std::vector<uint32_t>& regions, uint32_t id) {
  if (regions.size() <= user_window(id)) regions.resize(user_window(id) + 1, UCCLEP_NO_REGION);
  return regions[user_window(id)];
}

}  // namespace

GroupShare::GroupShare(const GroupShape& shape, Parts parts, const Arrivals& words,
                       std::shared_ptr<ConsumedHere> consumed, FaultSink sink, std::unique_ptr<CopyQueue> copies,
                       std::function<void()> flush)
    : shape_(shape),
      parts_(std::move(parts)),
      consumed_(std::move(consumed)),
      log_(shape_.traced ? std::make_unique<TransferLog>(shape_.ranks, shape_.in_flight) : nullptr),
      staging_(copies ? std::make_unique<Staging>(shape_.channel, shape_.ranks, std::move(copies)) : nullptr),
      sender_(shape_, parts_.ports, parts_.peers, counts_, log_.get(), staging_.get()),
      receiver_(shape_, words, *consumed_, sender_, parts_.peers, counts_, log_.get(), staging_.get()),
      number_of_(shape.ranks, no_connection),
      watched_(parts_.peers.size()),
      flush_(std::move(flush)),
      sink_(std::move(sink)) {
  for (uint32_t number = 0; number < parts_.peers.size(); ++number) number_of_[parts_.peers[number].rank] = number;
  detaching_.reserve(parts_.peers.size());
  rings_.reserve(parts_.rings.size());
  // Lanes that wait for room shall not wait for the last command of a lap.
  for (const RingMemory& ring : parts_.rings) rings_.emplace_back(ring, batch, (uint64_t{1} << ring.capacity_log2) / 8);
}

bool GroupShare::step() {
  const bool quiescing = quiescing_.load(std::memory_order_acquire);
  // Asked before the rings are looked at: what was pushed before the question is carried out.
  const bool draining = draining_.load(std::memory_order_acquire);
  bool moved = false;
  if (!quiescing) {
    for (RingReader& ring : rings_) moved |= read(ring);
    if (!moved && sender_.all_placed()) calm_.add(1);
    if (draining) receiver_.return_credits();
  }
  if (!detaching_.empty()) moved |= complete_detaches();
  if (staging_ != nullptr) moved |= poll_copies();
  moved |= sender_.pump();
  // After the posts: where lanes sleep, as those of the host device may, this wakes them by a system call.
  for (RingReader& ring : rings_) ring.release_all();
  if (quiescing && sender_.idle()) quiesced_.store(true, std::memory_order_release);
  for (Port& port : parts_.ports) moved |= poll(port);
  receiver_.publish();
  if (!losses_.empty()) report_losses();
  if (draining && !moved && !quiescing) look_whether_drained();
  return moved;
}

// After a round in which nothing happened.
void GroupShare::look_whether_drained() {
  if (drained_.load(std::memory_order_relaxed) || under_way() || !sender_.all_returned()) return;
  if (const uint64_t rows = sender_.rows_waiting(); rows > 0) {
    report({ucclEpInternalError, "proxy", -1,
            fmt::format("rank {}: {} rows are in chunks that were never completed", shape_.rank, rows)});
  }
  drained_.store(true, std::memory_order_release);
}

bool GroupShare::read(RingReader& ring) {
  const auto commands = ring.poll();
  for (const Command& command : commands) carry_out(command);
  if (commands.empty()) return false;
  counts_.commands.add(commands.size());
  return true;
}

void GroupShare::carry_out(const Command& command) {
  if (command.operation() == CommandOp::none) return;
  const char* wrong = what_is_wrong(command);
  if (wrong == nullptr) return;
  counts_.bad_commands.add(1);
  const CommandFields c = command.fields();
  const auto kind = static_cast<Kind>(c.kind);
  const char* name = c.operation == CommandOp::put           ? "put"
                     : c.operation == CommandOp::header      ? "header"
                     : c.operation == CommandOp::consumed    ? "consumed"
                     : c.operation == CommandOp::channel_put ? "put of the channel"
                     : c.operation == CommandOp::signal      ? "signal of the channel"
                     : c.operation == CommandOp::detach      ? "detaching"
                                                             : "unknown";
  report(
      {ucclEpInternalError, kind_name(kind), c.destination,
       fmt::format(
           "rank {}: a command of its kernels is invalid: {} ({} of {} {} for rank {}, {} rows from row {}, {} bytes)",
           shape_.rank, wrong, name, kind_name(kind), c.epoch, c.destination, c.rows, c.row, c.bytes)});
}

const char* GroupShare::what_is_wrong(const Command& command) {
  const uint32_t peer = command.destination() < shape_.ranks ? number_of_[command.destination()] : no_connection;
  if (peer == no_connection) return "this ring has no connection to the destination rank";
  switch (command.operation()) {
    case CommandOp::put:
    case CommandOp::header:
      return sender_.accept(peer, command);
    case CommandOp::consumed:
      return receiver_.consume(peer, command);
    case CommandOp::channel_put:
    case CommandOp::signal:
      return sender_.accept_message(peer, command);
    case CommandOp::detach:
      if (sender_.detach(peer)) detaching_.push_back(peer);
      return nullptr;
    default:
      return "the operation does not exist";
  }
}

bool GroupShare::complete_detaches() {
  return std::erase_if(detaching_, [&](uint32_t peer) {
           if (!sender_.complete_detach(peer)) return false;
           receiver_.publish_detached(peer);
           return true;
         }) > 0;
}

bool GroupShare::poll(Port& port) {
  std::array<transport::Completion, batch> completions;
  const uint32_t count = port.endpoint->poll(completions);
  const std::span<const transport::Completion> come = std::span(completions).first(count);
  const bool accepts = !quiescing_.load(std::memory_order_relaxed) && flush(come);
  for (const transport::Completion& one : come) {
    if (one.kind == UCCLEP_COMPLETION_DONE) {
      port.release(one.bytes);
      sender_.ended(port.peer_of[one.peer]);
    } else if (one.kind == UCCLEP_COMPLETION_ERROR) {
      handle_error(port, one);
    } else if (accepts) {
      if (one.bytes != UCCLEP_UNKNOWN_LENGTH) counts_.bytes_in.add(one.bytes);
      receiver_.arrive(one.imm);
    }
  }
  return count > 0;
}

// P11: called before any arrival is published (words of progress, signal messages, placed puts), once for all arrivals
// that the endpoint has reported. False: nothing may be published any more.
bool GroupShare::flush(std::span<const transport::Completion> come) {
  const auto brings = [](const transport::Completion& one) {
    return one.kind == UCCLEP_COMPLETION_ARRIVAL && brings_bytes(unpack(one.imm));
  };
  if (!flush_ || flush_failed_ || std::ranges::none_of(come, brings)) return !flush_failed_;
  try {
    flush_();
  } catch (const Error& error) {
    flush_failed_ = true;
    report({ucclEpUnhandledDeviceError, "network", -1,
            fmt::format("rank {}: cannot make arrived data visible to its kernels: {}", shape_.rank, error.what())});
  }
  return !flush_failed_;
}

bool GroupShare::poll_copies() {
  const bool moved = staging_->poll([&](uint32_t rank, uint64_t number) { receiver_.placed(rank, number); });
  if (const auto why = staging_->failure()) {
    report({ucclEpUnhandledDeviceError, "channel", -1,
            fmt::format("rank {}: cannot copy a put between host memory and a window: {}", shape_.rank, *why)});
  }
  return moved;
}

void GroupShare::handle_error(Port& port, const transport::Completion& one) {
  const bool of_operation = one.operation != UCCLEP_OPERATION_NONE;
  if (of_operation) {
    port.release(one.bytes);
    sender_.ended(port.peer_of[one.peer]);
  }
  const std::string_view words = one.words != nullptr ? one.words : "the transport gave no reason";
  if (one.peer < port.peer_of.size()) {
    lose(port.peer_of[one.peer], one.code, words, of_operation ? std::optional(one.cookie) : std::nullopt);
    return;
  }
  for (const uint32_t peer : port.peer_of) lose(peer, one.code, words, std::nullopt);
}

// The peers may go once all are drained, and those that are detached whenever they like.
void GroupShare::lose(uint32_t peer, ucclEpResult_t code, std::string_view words, std::optional<uint64_t> cookie) {
  if (quiescing_.load(std::memory_order_relaxed) || sender_.discards(peer)) return sender_.lose(peer);
  const auto known = std::find_if(losses_.begin(), losses_.end(), [&](const Loss& loss) { return loss.peer == peer; });
  if (known == losses_.end()) {
    losses_.push_back({peer, code, std::string(words), cookie});
  } else if (!known->cookie) {
    known->cookie = cookie;
  }
}

void GroupShare::report_losses() {
  for (const Loss& loss : std::exchange(losses_, {})) {
    const uint32_t rank = parts_.peers[loss.peer].rank;
    sender_.lose(loss.peer);
    const std::string what = loss.cookie ? words_of_cookie(*loss.cookie) : "nothing";
    report({loss.code, loss.cookie ? operation_of_cookie(*loss.cookie) : "proxy", static_cast<int>(rank),
            fmt::format("rank {} has lost its connection to rank {}, with {} in flight: {}", shape_.rank, rank, what,
                        loss.words)});
  }
}

// A peer that returns no credit, though its NIC does its work.
void GroupShare::watch(Clock::time_point now) {
  if (quiescing_.load(std::memory_order_relaxed)) return;
  // Who did not look for long cannot say that nothing moved.
  const auto timeout = std::chrono::milliseconds(shape_.timeout_ms);
  const bool rested = now - std::exchange(last_watch_, now) > timeout / 4;
  for (uint32_t peer = 0; peer < watched_.size(); ++peer) {
    const Sender::Backlog backlog = sender_.backlog(peer);
    Watched& watched = watched_[peer];
    const bool stands = backlog.waits && backlog.waiting > 0 && backlog.posted == watched.posted;
    if (!stands || rested) watched = {backlog.posted, now};
    if (now - watched.since < timeout || sender_.given_up(peer)) continue;
    const uint32_t rank = parts_.peers[peer].rank;
    sender_.give_up(peer);
    report({ucclEpTimeout, "proxy", static_cast<int>(rank),
            fmt::format("rank {} waited {} ms for rank {} to accept messages; {} more messages are queued", shape_.rank,
                        shape_.timeout_ms, rank, backlog.waiting)});
  }
}

void GroupShare::register_window(uint32_t id, const transport::Memory& memory, std::vector<transport::Key>& keys) {
  for (Port& port : parts_.ports) {
    region_of(port.regions, id) = port.endpoint->register_region(memory, &keys[port.number]);
  }
}

void GroupShare::import_window(uint32_t id, const std::vector<std::vector<transport::Key>>& keys) {
  for (uint32_t number = 0; number < parts_.peers.size(); ++number) {
    PeerConnections& peer = parts_.peers[number];
    if (sender_.discards(number)) continue;  // its connections may have ended
    for (Connection& connection : peer.connections) {
      const std::vector<transport::Key>& offered = keys[peer.rank];
      if (connection.peer_port >= offered.size()) {
        fail(ucclEpRemoteError, "rank {} offers a window on {} endpoints, but a connection uses endpoint {}", peer.rank,
             offered.size(), connection.peer_port);
      }
      const transport::Key& key = offered[connection.peer_port];
      region_of(connection.regions, id) = parts_.ports[connection.port].endpoint->import_region(connection.number, key);
    }
  }
}

void GroupShare::forget_window(uint32_t id) {
  if (staging_ != nullptr) {  // where the communicator has failed, copies may be under way
    for (const auto begin = Clock::now(); copies() && Clock::now() - begin < last_copies;) poll_copies();
    return staging_->forget_window(id);
  }
  for (PeerConnections& peer : parts_.peers) {
    for (Connection& connection : peer.connections) {
      const uint32_t region = std::exchange(region_of(connection.regions, id), UCCLEP_NO_REGION);
      if (region != UCCLEP_NO_REGION) parts_.ports[connection.port].endpoint->release_region(region);
    }
  }
  for (Port& port : parts_.ports) {
    const uint32_t region = std::exchange(region_of(port.regions, id), UCCLEP_NO_REGION);
    if (region != UCCLEP_NO_REGION) port.endpoint->deregister_region(region);
  }
}

void GroupShare::report(const Fault& fault) {
  {
    const std::lock_guard lock(mutex_);
    if (!first_fault_) first_fault_ = fault;
  }
  sink_(fault);
}

std::optional<Fault> GroupShare::first_fault() const {
  const std::lock_guard lock(mutex_);
  return first_fault_;
}

}  // namespace ucclep::proxy

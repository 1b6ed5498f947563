// SPDX-License-Identifier: Apache-2.0
#include "proxy/sender.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ucclep::proxy {
namespace {

// All that may wait for one peer: the chunks and headers of N operations of each kind, and the messages of the channel
// (P9).
uint32_t max_waiting(const GroupShape& shape) {
  uint32_t messages = 0;
  for (uint32_t kind = 0; kind < num_kinds; ++kind) messages += shape.in_flight * (shape.places.chunks(kind) + 1);
  return messages + (shape.channel.rows > 0 ? channel_window : 0);
}

bool is_of_channel(const Command& command) {
  return command.operation() == CommandOp::channel_put || command.operation() == CommandOp::signal;
}

bool is_header(const Command& command) {
  return command.operation() == CommandOp::header;
}

}  // namespace

Sender::Peer::Peer(const GroupShape& shape)
    : gather(shape.places, shape.in_flight, shape.first), credits(shape.credits) {
  for (uint32_t kind = 0; kind < num_kinds; ++kind) {
    pending[kind] = sent[kind] = shape.first[kind];
    consumed[kind] = GrowingWord(shape.first[kind]);
  }
}

Sender::Sender(const GroupShape& shape, std::vector<Port>& ports, std::vector<PeerConnections>& peers,
               GroupCounts<Counter>& counts, TransferLog* log, Staging* staging)
    : shape_(shape),
      ports_(ports),
      peer_connections_(peers),
      counts_(counts),
      log_(log),
      staging_(staging),
      queue_(static_cast<uint32_t>(peers.size()), static_cast<uint32_t>(peers.size()) * max_waiting(shape)) {
  peers_.reserve(peers.size());
  active_.reserve(peers.size());
  for (size_t i = 0; i < peers.size(); ++i) peers_.emplace_back(shape);
}

const char* Sender::accept(uint32_t number, const Command& command) {
  Peer& peer = peers_[number];
  // Kernels go on without such a peer: they neither wait for it nor put all of an operation for it.
  if (peer.discards()) {
    counts_.dropped.add(1);
    return nullptr;
  }
  if (command.kind() >= num_kinds) return "the kind of operation does not exist";
  const auto kind = static_cast<Kind>(command.kind());
  const uint64_t seq = peer.gather.seq_of(kind, command.epoch());
  if (seq > peer.consumed[command.kind()].value() + shape_.in_flight) {
    return "slot still in use by the peer (protocol violation)";
  }
  Command whole;
  if (const char* wrong = peer.gather.accept(command, &whole)) return wrong;
  if (command.operation() == CommandOp::put) counts_.puts.add(1);
  // The header first, which says what to expect.
  const bool fits = (!is_header(command) || enqueue(number, command)) &&
                    (whole.operation() == CommandOp::none || enqueue(number, whole));
  return fits ? nullptr : "the send queue is full";
}

bool Sender::enqueue(uint32_t number, const Command& command) {
  if (!queue_.push(number, command)) return false;
  ++peers_[number].waiting;
  activate(number);
  return true;
}

const char* Sender::accept_message(uint32_t number, const Command& command) {
  Peer& peer = peers_[number];
  if (peer.discards()) {
    counts_.dropped.add(1);
    return nullptr;
  }
  if (shape_.channel.rows == 0) return "the group has no channel";
  const uint64_t numbered = peer.messages.number_of(command.epoch());
  if (numbered == 0) return "no message in flight has this number";
  peer.messages.accept(numbered);
  const Message& message = message_of(number, command);
  if (command.operation() == CommandOp::signal) {
    if (message.signal.row >= shape_.channel.rows) return "its signal does not exist";
  } else if (const char* wrong = begin_put(number, command, numbered, message)) {
    return wrong;
  }
  return enqueue(number, command) ? nullptr : "the send queue is full";
}

const char* Sender::begin_put(uint32_t number, const Command& command, uint64_t numbered, const Message& message) {
  bool known = false;
  if (staging_ != nullptr) {
    known = staging_->begin_out(peer_connections_[number].rank, numbered, message);
  } else {
    const Connection& connection = peer_connections_[number].connections[connection_of(number, command)];
    const auto has = [](const std::vector<uint32_t>& regions, uint32_t id) {
      return user_window(id) < regions.size() && regions[user_window(id)] != UCCLEP_NO_REGION;
    };
    known = has(ports_[connection.port].regions, message.from_window) && has(connection.regions, message.to_window);
  }
  return known ? nullptr : "it names a window that is not registered";
}

void Sender::send_word(uint32_t number, Word word, uint64_t value) {
  Peer& peer = peers_[number];
  uint64_t& pending = peer.pending[static_cast<uint32_t>(word)];
  if (value <= pending || peer.discards()) return;
  pending = value;
  activate(number);
}

void Sender::credit_returned(uint32_t number, uint32_t value) {
  peers_[number].credits.returned(value);
}

bool Sender::consumed(uint32_t number, Kind kind, uint32_t value) {
  return peers_[number].consumed[static_cast<uint32_t>(kind)].move(value);
}

uint64_t Sender::consumed_by(uint32_t number, Kind kind) const {
  return peers_[number].consumed[static_cast<uint32_t>(kind)].value();
}

bool Sender::pump() {
  bool posted = false;
  const auto count = static_cast<uint32_t>(active_.size());
  // Each is the first in turn to get what is left of the NIC.
  if (count > 0) turn_ = (turn_ + 1) % count;
  for (uint32_t i = 0; i < count; ++i) posted |= advance(active_[(turn_ + i) % count]);
  std::erase_if(active_, [&](uint32_t number) { return !peers_[number].active; });
  return posted;
}

void Sender::give_up(uint32_t number) {
  peers_[number].given_up = true;
  drop_all(number);
}

void Sender::lose(uint32_t number) {
  peers_[number].lost = true;
  give_up(number);
}

bool Sender::detach(uint32_t number) {
  if (std::exchange(peers_[number].detached, true)) return false;
  drop_all(number);
  return true;
}

bool Sender::complete_detach(uint32_t number) {
  Peer& peer = peers_[number];
  if (peer.unfinished > 0) return false;
  if (!peer.lost) {
    peer.pending[static_cast<uint32_t>(Word::detached)] = 1;
    activate(number);
  }
  return true;
}

void Sender::drop_all(uint32_t number) {
  Peer& peer = peers_[number];
  for (; !queue_.is_empty(number); queue_.pop(number)) counts_.dropped.add(1);
  peer.waiting = 0;
  std::copy(peer.pending, peer.pending + num_words, peer.sent);
  for (Connection& connection : peer_connections_[number].connections) {
    for (uint32_t i = 0; i < connection.chained; ++i) ports_[connection.port].release(connection.chain[i].bytes);
    connection.chained = 0;
  }
}

Sender::Backlog Sender::backlog(uint32_t number) const {
  const Peer& peer = peers_[number];
  return {peer.waits_for_credit, peer.posted, peer.waiting};
}

bool Sender::idle() const {
  return active_.empty() &&
         std::all_of(ports_.begin(), ports_.end(), [](const Port& port) { return port.unfinished == 0; });
}

bool Sender::all_returned() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.discards() || peer.credits.in_flight() == 0; });
}

bool Sender::all_placed() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.discards() || peer.messages.all_placed(); });
}

uint64_t Sender::rows_waiting() const {
  uint64_t rows = 0;
  for (const Peer& peer : peers_) rows += peer.discards() ? 0 : peer.gather.rows_waiting();
  return rows;
}

void Sender::activate(uint32_t number) {
  if (std::exchange(peers_[number].active, true)) return;
  active_.push_back(number);
}

// Words first: the peer may need them to get on.
bool Sender::advance(uint32_t number) {
  Peer& peer = peers_[number];
  bool all = chain_words(number);
  all = chain_messages(number) && all;
  bool posted = false;
  for (Connection& connection : peer_connections_[number].connections) {
    posted |= post(peer, connection);
    all = all && connection.chained == 0;
  }
  peer.active = !all;
  return posted;
}

bool Sender::chain_words(uint32_t number) {
  Peer& peer = peers_[number];
  Connection& connection = peer_connections_[number].connections.front();
  for (uint32_t word = 0; word < num_words; ++word) {
    if (peer.sent[word] == peer.pending[word]) continue;
    if (!has_room(connection, 0)) return false;
    peer.sent[word] = peer.pending[word];
    chain(connection, word_moves(static_cast<Word>(word), peer.sent[word], shape_.rank), peer.sent[word]);
    counts_.words.add(1);
  }
  return true;
}

bool Sender::chain_messages(uint32_t number) {
  Peer& peer = peers_[number];
  std::vector<Connection>& connections = peer_connections_[number].connections;
  while (!queue_.is_empty(number)) {
    const Command command = queue_.front(number);
    const size_t turn = connection_of(number, command);
    if (waits_for_copy(number, command)) return false;
    if (stall(peer.waits_for_credit, !peer.credits.available(), counts_.credit_stalls)) return false;
    if (connections[turn].chained == Connection::longest_chain) return false;
    if (stall(peer.waits_for_nic, !has_room(connections[turn], bytes_of(number, command)), counts_.nic_stalls))
      return false;
    peer.credits.acquire();
    counts_.max_in_flight.raise_to(peer.credits.in_flight());
    chain_message(number, connections[turn], command);
    queue_.pop(number);
    --peer.waiting;
    ++peer.posted;
  }
  return true;
}

// Chunks and messages of the channel take the connections in turn, headers the first.
size_t Sender::connection_of(uint32_t number, const Command& command) const {
  const size_t connections = peer_connections_[number].connections.size();
  if (is_of_channel(command)) return command.epoch() % connections;
  return is_header(command) ? 0 : command.row() / shape_.places.of(command).rows_per_chunk % connections;
}

bool Sender::waits_for_copy(uint32_t number, const Command& command) const {
  return staging_ != nullptr && command.operation() == CommandOp::channel_put &&
         !staging_->is_out(peer_connections_[number].rank, peers_[number].messages.number_of(command.epoch()));
}

// It stays in its slot until it is placed.
const Message& Sender::message_of(uint32_t number, const Command& command) const {
  return shape_.channel.message(peer_connections_[number].rank, peers_[number].messages.number_of(command.epoch()));
}

uint64_t Sender::bytes_of(uint32_t number, const Command& command) const {
  if (!is_of_channel(command)) return command.bytes();
  if (command.operation() == CommandOp::signal) return sizeof(SignalMessage);
  return message_of(number, command).bytes + (staging_ != nullptr ? sizeof(StagedPut) : 0);
}

// Acquires the room, too.
bool Sender::has_room(const Connection& connection, uint64_t bytes) {
  return connection.chained < Connection::longest_chain && ports_[connection.port].acquire(bytes);
}

transport::Operation& Sender::chain(Connection& connection, const Immediate& imm, uint64_t seq) {
  transport::Operation& operation = connection.chain[connection.chained++];
  operation = {};
  operation.kind = UCCLEP_OPERATION_WRITE;
  operation.flags = UCCLEP_OPERATION_IMM;
  operation.imm = pack(imm);
  operation.cookie = seq << 32 | operation.imm;
  return operation;
}

void Sender::chain_message(uint32_t number, Connection& connection, const Command& command) {
  is_of_channel(command) ? chain_of_channel(number, connection, command) : chain_rows(number, connection, command);
}

void Sender::chain_of_channel(uint32_t number, Connection& connection, const Command& command) {
  const uint32_t rank = peer_connections_[number].rank;
  const uint64_t numbered = peers_[number].messages.number_of(command.epoch());
  const bool is_signal = command.operation() == CommandOp::signal;
  const Message& message = shape_.channel.message(rank, numbered);
  const bool within = is_signal || staging_ != nullptr;  // from the channel's window into the peer's
  transport::Operation& operation = chain(connection, message_arrives(numbered, shape_.rank, is_signal), numbered);
  operation.local_region = ports_[connection.port].regions[within ? channel_region : user_window(message.from_window)];
  operation.remote_region = connection.regions[within ? channel_region : user_window(message.to_window)];
  operation.bytes = bytes_of(number, command);
  if (is_signal) {
    operation.local_offset = shape_.channel.message_at(rank, numbered);
    operation.remote_offset = shape_.channel.signal_message_at(shape_.rank, numbered);
  } else if (staging_ != nullptr) {
    operation.local_offset = shape_.channel.staged_out_at(rank, numbered);
    operation.remote_offset = shape_.channel.staged_in_at(shape_.rank, numbered);
  } else {
    operation.local_offset = message.from_offset;
    operation.remote_offset = message.to_offset;
  }
  counts_.channel.add(1);
  counts_.bytes.add(operation.bytes);
}

void Sender::chain_rows(uint32_t number, Connection& connection, const Command& command) {
  const auto kind = static_cast<Kind>(command.kind());
  const KindPlaces& places = shape_.places.of(command);
  const uint64_t seq = peers_[number].gather.seq_of(kind, command.epoch());
  const auto slot = static_cast<uint32_t>(seq % shape_.in_flight);
  const bool header = is_header(command);
  const Immediate imm = header ? header_arrives(kind, seq, shape_.rank, places.chunks_of(command.row()))
                               : chunk_arrives(kind, seq, shape_.rank, command.row() / places.rows_per_chunk);
  transport::Operation& operation = chain(connection, imm, seq);
  (header ? counts_.headers : counts_.chunks).add(1);
  if (log_ != nullptr) log_->note(true, peer_connections_[number].rank, kind, seq);
  if (command.bytes() == 0) return;
  const Area& from = header ? places.header_from : places.rows_from;
  const Area& to = header ? places.header_to : places.rows_to;
  const uint64_t row_bytes = header ? 0 : command.bytes() / command.rows();
  const uint64_t within = row_bytes * command.row();
  operation.local_region = ports_[connection.port].regions[from.window];
  operation.remote_region = connection.regions[to.window];
  const uint32_t rank = peer_connections_[number].rank;
  operation.local_offset = header ? from.at(slot, rank) : places.from(slot, rank) + within;
  operation.remote_offset = header ? to.at(slot, shape_.rank) : places.to(slot, rank, shape_.rank) + within;
  operation.bytes = command.bytes();
  counts_.bytes.add(command.bytes());
}

// One doorbell. What the endpoint does not accept stays chained.
bool Sender::post(Peer& peer, Connection& connection) {
  if (connection.chained == 0) return false;
  const uint32_t accepted =
      ports_[connection.port].endpoint->post(connection.number, std::span(connection.chain).first(connection.chained));
  if (accepted == 0) return false;
  std::copy(connection.chain.begin() + accepted, connection.chain.begin() + connection.chained,
            connection.chain.begin());
  connection.chained -= accepted;
  peer.unfinished += accepted;
  counts_.doorbells.add(1);
  return true;
}

// Counts where a wait begins, not how often it is looked at.
bool Sender::stall(bool& waits, bool now, Counter& stalls) {
  if (now && !waits) stalls.add(1);
  waits = now;
  return now;
}

const char* operation_of_cookie(uint64_t cookie) {
  const auto kind = static_cast<uint32_t>(unpack(static_cast<uint32_t>(cookie)).kind);
  if (kind == static_cast<uint32_t>(ImmKind::message)) return "channel";
  return kind < 2 * num_kinds ? kind_name(static_cast<Kind>(kind % num_kinds)) : "proxy";
}

std::string words_of_cookie(uint64_t cookie) {
  const Immediate imm = unpack(static_cast<uint32_t>(cookie));
  const char* operation = operation_of_cookie(cookie);
  const uint64_t seq = cookie >> 32;
  if (imm.kind == ImmKind::word) return "a control word";
  if (imm.kind == ImmKind::message) return fmt::format("{} of the channel", imm.epoch != 0 ? "a signal" : "a put");
  if (static_cast<uint32_t>(imm.kind) >= num_kinds) return fmt::format("the header of {} {}", operation, seq);
  return fmt::format("chunk {} of {} {}", imm.value, operation, seq);
}

}  // namespace ucclep::proxy

// SPDX-License-Identifier: Apache-2.0
// The sending half of a proxy thread's share of a group: commands in, chains of writes out. A message waits in the list
// of its destination until there is credit, room on the NIC and room in the chain; no other destination waits for it.
// Nothing is allocated after construction.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "proxy/channel.hpp"
#include "proxy/chunk_gather.hpp"
#include "proxy/credits.hpp"
#include "proxy/port.hpp"
#include "proxy/send_queue.hpp"
#include "proxy/staging.hpp"
#include "proxy/statistics.hpp"
#include "proxy/transfer_log.hpp"

namespace ucclep::proxy {

// What all halves and shares of a group have in common.
struct GroupShape {
  uint32_t rank = 0, ranks = 0, in_flight = 2;
  // Of each kind the number before that of its first operation, the same on all ranks. Until a peer or the kernels say
  // more, it counts as read; it is sent to nobody, and no word of the kernels is stored for it.
  KindNumbers first = {};
  Places places;
  ChannelPlaces channel = {};
  CreditShape credits;
  uint32_t timeout_ms = 0;
  bool traced = false;  // what is sent and received is logged
};

class Sender {
 public:
  // All of these outlive it. peers: their order gives the numbers by which everything here names them. log, staging: or
  // NULL.
  Sender(const GroupShape& shape, std::vector<Port>& ports, std::vector<PeerConnections>& peers,
         GroupCounts<Counter>& counts, TransferLog* log = nullptr, Staging* staging = nullptr);

  // A command of the rank's kernels, for a peer of this share. Null, or why it cannot be right.
  const char* accept(uint32_t peer, const Command& command);
  const char* accept_message(uint32_t peer, const Command& command);
  // Sends the value of a word to the peer: the latest, if there are several before one can be posted.
  void send_word(uint32_t peer, Word word, uint64_t value);
  // What came from the peer.
  void credit_returned(uint32_t peer, uint32_t value);
  bool consumed(uint32_t peer, Kind kind, uint32_t value);  // true: the word grew
  uint64_t consumed_by(uint32_t peer, Kind kind) const;
  bool placed(uint32_t peer, uint32_t value) { return peers_[peer].messages.placed(value); }  // likewise
  uint64_t placed_at(uint32_t peer) const { return peers_[peer].messages.placed(); }

  // Posts what can be posted. True when there was any.
  bool pump();
  // An operation that was posted to the peer has ended, well or not.
  void ended(uint32_t peer) { --peers_[peer].unfinished; }
  // Nothing is sent to the peer any more; what waits is dropped.
  void give_up(uint32_t peer);
  bool given_up(uint32_t peer) const { return peers_[peer].given_up; }
  // The same of a peer that no word reaches, or that needs none.
  void lose(uint32_t peer);
  // The same, but the peer is notified, unless it is lost. False: it has been detached before.
  bool detach(uint32_t peer);
  bool detached(uint32_t peer) const { return peers_[peer].detached; }
  // Call it for a detached peer until it returns true, and then not again. True: all that was posted to the peer has
  // ended. Networks keep no order, so the peer is notified only now.
  bool complete_detach(uint32_t peer);
  // Commands and words for it are dropped.
  bool discards(uint32_t peer) const { return peers_[peer].discards(); }

  // Of a peer, also over messages that wait: it grows while the peer gets on.
  struct Backlog {
    bool waits = false;   // for a credit
    uint64_t posted = 0;  // messages
    uint32_t waiting = 0;
  };
  Backlog backlog(uint32_t peer) const;
  // Nothing waits and nothing is in flight. Rows of chunks that never became whole do not count.
  bool idle() const;
  // The peers have dealt with all that they were sent.
  bool all_returned() const;
  // And messages of the channel lie with them.
  bool all_placed() const;
  uint64_t rows_waiting() const;

 private:
  struct Peer {
    explicit Peer(const GroupShape& shape);
    bool discards() const { return given_up || detached; }
    ChunkGather gather;
    SendCredits credits;
    MessagesOut messages;
    uint64_t pending[num_words] = {}, sent[num_words] = {};
    GrowingWord consumed[num_kinds];
    uint64_t posted = 0;
    uint32_t waiting = 0;
    uint32_t unfinished = 0;  // operations posted
    bool active = false;      // in active_
    bool given_up = false, lost = false, detached = false;
    bool waits_for_credit = false, waits_for_nic = false;
  };

  bool enqueue(uint32_t peer, const Command& command);
  void drop_all(uint32_t peer);
  void activate(uint32_t peer);
  bool advance(uint32_t peer);
  bool chain_words(uint32_t peer);
  bool chain_messages(uint32_t peer);
  bool has_room(const Connection& connection, uint64_t bytes);
  transport::Operation& chain(Connection& connection, const Immediate& imm, uint64_t seq);
  void chain_message(uint32_t peer, Connection& connection, const Command& command);
  void chain_rows(uint32_t peer, Connection& connection, const Command& command);
  void chain_of_channel(uint32_t peer, Connection& connection, const Command& command);
  const char* begin_put(uint32_t peer, const Command& command, uint64_t numbered, const Message& message);
  bool waits_for_copy(uint32_t peer, const Command& command) const;
  size_t connection_of(uint32_t peer, const Command& command) const;
  uint64_t bytes_of(uint32_t peer, const Command& command) const;
  const Message& message_of(uint32_t peer, const Command& command) const;
  bool post(Peer& peer, Connection& connection);
  bool stall(bool& waits, bool now, Counter& stalls);

  const GroupShape& shape_;
  std::vector<Port>& ports_;
  std::vector<PeerConnections>& peer_connections_;
  GroupCounts<Counter>& counts_;
  TransferLog* log_;
  Staging* staging_;
  std::vector<Peer> peers_;
  SendQueue queue_;
  std::vector<uint32_t> active_;  // peers that have something to send
  uint32_t turn_ = 0;
};

// What a cookie says of the operation that it came with: for error messages.
std::string words_of_cookie(uint64_t cookie);
const char* operation_of_cookie(uint64_t cookie);

}  // namespace ucclep::proxy

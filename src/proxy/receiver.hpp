// SPDX-License-Identifier: Apache-2.0
// The receiving half of a proxy thread's share of a group: immediates in, words for the kernels out (arrivals.hpp), and
// credits back to the senders. Immediates may come in any order and twice. Nothing is allocated after construction.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "proxy/arrival_table.hpp"
#include "proxy/credits.hpp"
#include "proxy/sender.hpp"

namespace ucclep::proxy {

inline constexpr uint32_t no_connection = 0xffffffff;  // instead of a peer's number

// The last operation of each kind that the rank's kernels have finished reading; for all threads of the group. It is
// raised before it is sent to any peer, so whatever a peer sends after that finds it raised.
struct ConsumedHere {
  explicit ConsumedHere(const KindNumbers& first) {
    for (uint32_t kind = 0; kind < num_kinds; ++kind) of[kind].store(first[kind], std::memory_order_relaxed);
  }
  std::atomic<uint64_t> of[num_kinds]{};
};

class Receiver {
 public:
  // All of these outlive it; peers and their numbers as in Sender.
  Receiver(const GroupShape& shape, const Arrivals& words, ConsumedHere& consumed, Sender& sender,
           const std::vector<PeerConnections>& peers, GroupCounts<Counter>& counts, TransferLog* log = nullptr,
           Staging* staging = nullptr);

  void arrive(uint32_t immediate);
  // Sends the kernels' CommandOp::consumed to the peer. Returns null, or why the command cannot be right.
  const char* consume(uint32_t peer, const Command& command);
  // Returns all credits, also those that are not due yet: a peer that is about to end waits for all of its own.
  void return_credits();
  // The bytes of a put lie where they belong.
  void placed(uint32_t source, uint64_t number);
  // What has arrived becomes visible to the kernels.
  void publish();
  // The kernels may write again where they had put something out for the peer.
  void publish_detached(uint32_t peer);

 private:
  void move_word(uint32_t peer, const Immediate& imm);
  void accept_message(uint32_t peer, const Immediate& imm);
  void deliver_signal(uint32_t source, uint64_t number);
  void return_credit(uint32_t peer);
  void touch(Kind kind, uint32_t source, uint64_t seq);

  struct Touched {
    Kind kind;
    uint32_t source;
    uint64_t seq;
  };

  const GroupShape& shape_;
  const Arrivals words_;
  ConsumedHere& consumed_;
  Sender& sender_;
  GroupCounts<Counter>& counts_;
  TransferLog* log_;
  Staging* staging_;
  ArrivalTable table_;
  std::vector<uint32_t> ranks_, number_of_;  // of peers; by rank
  std::vector<CreditReturn> returns_;
  std::vector<MessagesIn> messages_;
  std::vector<Touched> touched_;  // since the last publish
};

}  // namespace ucclep::proxy

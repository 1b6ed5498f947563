// SPDX-License-Identifier: Apache-2.0
// What one proxy thread does for one group: it owns some of the group's rings, the connections of the destinations
// whose commands come by these rings, and endpoints for them. Nothing of it is any other thread's (ring_deal.hpp), but
// for the NICs' limits and the operations consumed.
//
// What is lost or wrong is reported to the sink and stays between this rank and that peer: a peer whose connection
// broke is sent nothing any more, a command that cannot be right is dropped, and all else goes on. Whether the
// communicator can go on is the sink's to decide. What is lost of a peer that the kernels have detached is no fault.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "proxy/fault.hpp"
#include "proxy/receiver.hpp"
#include "proxy/ring_reader.hpp"
#include "proxy/sender.hpp"

namespace ucclep::proxy {

class GroupShare {
 public:
  using Clock = std::chrono::steady_clock;

  struct Parts {
    std::vector<Port> ports;
    std::vector<PeerConnections> peers;
    std::vector<RingMemory> rings;
  };
  // consumed: the same for all shares of the group. sink is called by the proxy thread. copies: where NICs do not reach
  // the user's windows. flush: as in GroupSpec.
  GroupShare(const GroupShape& shape, Parts parts, const Arrivals& words, std::shared_ptr<ConsumedHere> consumed,
             FaultSink sink, std::unique_ptr<CopyQueue> copies = nullptr, std::function<void()> flush = {});

  // The proxy thread, again and again. True when anything happened.
  bool step();
  // Something waits, or has not ended.
  bool under_way() const { return !sender_.idle() || copies(); }
  // And this now and then.
  void watch(Clock::time_point now);

  // Any thread may call these. A clean end has two steps, and between them all ranks agree.
  // drain: the share goes on, since peers need its credits. drained() is true when no command is left and the peers
  // have processed all that they were sent.
  // quiesce: the share reads no more commands and accepts no more arrivals; it only lets the endpoints make progress
  // for the peers. quiesced() is true when every operation that was under way has ended.
  void drain() { draining_.store(true, std::memory_order_release); }
  bool drained() const { return drained_.load(std::memory_order_acquire); }
  void quiesce() { quiescing_.store(true, std::memory_order_release); }
  bool quiesced() const { return quiesced_.load(std::memory_order_acquire); }
  // Rounds in which no command had come, and every message of the channel was placed.
  uint64_t calm_rounds() const { return calm_.get(); }
  std::optional<Fault> first_fault() const;
  const GroupCounts<Counter>& counts() const { return counts_; }

  // While no thread steps it: a window of the user's. The keys are in the order of the rank's ports. keep: of one that
  // NICs do not reach.
  void keep_window(uint32_t id, void* data, uint64_t bytes) { staging_->keep_window(id, data, bytes); }
  void register_window(uint32_t id, const transport::Memory& memory, std::vector<transport::Key>& keys);
  void import_window(uint32_t id, const std::vector<std::vector<transport::Key>>& keys);  // by rank
  void forget_window(uint32_t id);

  // Of a traced group, when no thread steps it; else null.
  const TransferLog* log() const { return log_.get(); }

 private:
  struct Loss {
    uint32_t peer;  // its number
    ucclEpResult_t code;
    std::string words;
    std::optional<uint64_t> cookie;  // of an operation that failed with it
  };
  struct Watched {
    uint64_t posted = 0;
    Clock::time_point since;
  };

  bool read(RingReader& ring);
  void carry_out(const Command& command);
  const char* what_is_wrong(const Command& command);
  bool complete_detaches();
  bool poll(Port& port);
  bool flush(std::span<const transport::Completion> come);
  bool poll_copies();
  bool copies() const { return staging_ != nullptr && !staging_->idle(); }
  void handle_error(Port& port, const transport::Completion& completion);
  void lose(uint32_t peer, ucclEpResult_t code, std::string_view words, std::optional<uint64_t> cookie);
  void report_losses();
  void report(const Fault& fault);
  void look_whether_drained();

  const GroupShape shape_;
  Parts parts_;
  std::shared_ptr<ConsumedHere> consumed_;
  GroupCounts<Counter> counts_;
  Counter calm_;
  std::unique_ptr<TransferLog> log_;
  std::unique_ptr<Staging> staging_;  // or none
  Sender sender_;
  Receiver receiver_;
  std::vector<uint32_t> number_of_;  // of a peer, by rank
  std::vector<RingReader> rings_;
  std::vector<Watched> watched_;  // by number
  Clock::time_point last_watch_ = Clock::now();
  std::vector<uint32_t> detaching_;  // peers that are detached, while something posted to them has not ended
  std::vector<Loss> losses_;         // of this round
  const std::function<void()> flush_;
  bool flush_failed_ = false;
  FaultSink sink_;
  mutable std::mutex mutex_;
  std::optional<Fault> first_fault_;
  std::atomic<bool> draining_{false}, drained_{false}, quiescing_{false}, quiesced_{false};
};

}  // namespace ucclep::proxy

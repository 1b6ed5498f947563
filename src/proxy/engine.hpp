// SPDX-License-Identifier: Apache-2.0
// The proxies of a rank: threads that carry out what its kernels put into command rings, over NICs, and tell the
// kernels what has come from others. One engine for each communicator; its groups are attached to it.
//
//   Engine engine({.rank = 0, .cpus = {3, 5}, .nics = {{verbs, "mlx5_0"}, {verbs, "mlx5_1"}}, .faults = ...});
//   auto group = engine.attach(spec, talk);        // all ranks
//   ... kernels run ...
//   group->stop(deadline, allgather);             // all ranks; without it the group ends at once
//
// A thread owns rings, the connections of the destinations whose commands come by these rings, and all that comes from
// these ranks: between a command and its post, and between an arrival and its word, lies no lock, no allocation and no
// system call, but where puts are staged: then the driver copies (staging.hpp). protocol.md says what travels.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proxy/connect.hpp"
#include "proxy/fault.hpp"
#include "proxy/proxy_thread.hpp"
#include "proxy/statistics.hpp"

namespace ucclep::proxy {

struct EngineConfig {
  uint32_t rank = 0;
  std::vector<int> cpus;  // one for each thread, to which it is pinned; -1: to none
  std::vector<NicConfig> nics;
  FaultSink faults;
};

// A group's proxies. Ended by end() or its destructor, at once: what is under way is lost.
class ProxyGroup {
 public:
  ProxyGroup(const GroupSpec& spec, std::vector<GroupShare::Parts> parts, std::vector<ProxyThread*> threads,
             const FaultSink& faults);
  ~ProxyGroup();
  void start();  // once, when all ranks are ready
  ProxyGroup(const ProxyGroup&) = delete;
  ProxyGroup& operator=(const ProxyGroup&) = delete;

  // Carries out all commands that have been pushed, on all ranks, and ends. Throws on all ranks what went wrong on any:
  // its time was up, a command was wrong, a connection was lost.
  void stop(Deadline deadline, const Allgather& allgather);

  // Call it before the group ends, when its peers end as well: from then on the group accepts nothing more, and a lost
  // connection is no fault.
  void quiesce();

  // Windows of the user's, by id: what is put into one, or from it, comes there when all ranks have imported what all
  // have offered. settle: waits until every put and signal has come to lie at its peer, of those that were pushed
  // before.
  uint32_t ports() const { return ports_; }
  // keep: the same of a window that NICs do not reach, when all ranks have done so.
  void keep_window(uint32_t id, void* data, uint64_t bytes);
  std::vector<transport::Key> offer_window(uint32_t id, const transport::Memory& memory);
  void import_window(uint32_t id, const std::vector<std::vector<transport::Key>>& keys);  // by rank, by port
  void forget_window(uint32_t id);
  void settle(Deadline deadline) const;

  GroupStatistics statistics() const;
  // Nothing but its destructor and its counts may follow. Of a traced group: what went over the network.
  std::vector<Transfer> end();
  const CreditShape& credits() const { return credits_; }  // as all ranks can grant them

 private:
  template <class Done>
  void wait(Done&& done, Deadline deadline, const char* what) const;
  template <class Step>
  void paused(Step&& step);
  bool leave();  // true: no thread is about it any more

  uint32_t rank_, ports_ = 0;
  CreditShape credits_;
  std::vector<std::shared_ptr<GroupShare>> shares_;  // by thread
  std::vector<ProxyThread*> threads_;                // none: it has ended
};

class Engine {
 public:
  explicit Engine(EngineConfig config);

  // Opens and connects, on all ranks or on none (connect.hpp). The engine outlives the group. One that ended may be
  // followed by another over the same windows; of what its peers still send nothing comes there. Its rings are not used
  // again: commands may be left in them.
  std::unique_ptr<ProxyGroup> attach(GroupSpec spec, const Talk& talk);

  std::vector<ThreadStatistics> statistics() const;

 private:
  EngineConfig config_;
  std::vector<std::unique_ptr<Nic>> nics_;
  std::vector<std::unique_ptr<ProxyThread>> threads_;
};

}  // namespace ucclep::proxy

// SPDX-License-Identifier: Apache-2.0
// What a communicator and its groups have of the network, where not all ranks are in one domain: the proxy threads of
// this rank, and of each group its command rings, the words that its kernels poll, and its part of the proxies.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/deadline.hpp"
#include "device/device.hpp"
#include "host/network/network_memory.hpp"
#include "proxy/engine.hpp"
#include "topology/plan.hpp"
#include "ucclep/device/layout/network_view.hpp"
#include "ucclep/device/layout/objects.hpp"

struct ucclEpComm;

namespace ucclep {

class GroupNetwork;

// How much is under way.
struct NetworkDepths {
  uint64_t commands_waiting = 0;  // now, in command rings
  uint64_t in_flight_max = 0;     // data messages to one peer, so far
};

// From any thread: what ends the communicator, on all ranks.
void raise_network_fault(ucclEpComm& comm, const proxy::Fault& fault);

// Of a communicator. The threads start with its first group.
class CommNetwork {
 public:
  CommNetwork(ucclEpComm& comm, const NetworkMemory& memory) : comm_(comm), memory_(memory) {}

  // The transport and the proxy threads. Error: the transport has no name, or this machine lacks what it needs.
  proxy::Engine& engine();
  // By rank: over which NICs of the engine a group is connected to it; none within this rank's domain.
  std::vector<std::vector<uint32_t>> connections() const;
  const NetworkMemory& memory() const { return memory_; }
  // Error(ucclEpNotSupported): NICs that reach GPU memory do not reach this window of the user's.
  void check_window(const SharedMemory& memory) const;
  // Collective, on all ranks or on none: a window of the user's, which NICs reach from now on for all groups, those
  // that come later included, or into which the proxies copy.
  void add_window(uint32_t id, const SharedMemory& memory, Deadline deadline);
  // Collective in its first part: what kernels have put comes to lie where it should. Then nobody uses it any more.
  void settle(Deadline deadline) const;
  void remove_window(uint32_t id);
  // Any thread: of all groups, those that are gone included.
  ucclEpStats_t statistics() const;
  NetworkDepths depths() const;  // any thread: of the groups that there are

 private:
  friend class GroupNetwork;
  void add(GroupNetwork& group);
  void remove(const GroupNetwork& group);

  ucclEpComm& comm_;
  const NetworkMemory memory_;
  std::unique_ptr<proxy::Engine> engine_;
  bool by_nics_ = false;  // the engine has those of the plan; else one without a name
  mutable std::mutex mutex_;
  std::vector<GroupNetwork*> groups_;
  ucclEpStats_t ended_ = UCCLEP_STATS_INIT;
};

// How a group begins anew: who lives, and the numbers before its first operation of each kind.
struct Renewal {
  std::vector<bool> living;  // by rank
  proxy::KindNumbers first{};
};

// Of a group. Its destructor ends it at once; what is under way is lost.
class GroupNetwork {
 public:
  // This rank's memory for it. window: which outlives it. timeout_ms: of the group. faults: of a group
  // that goes on without a peer that is lost; else the communicator ends.
  GroupNetwork(ucclEpComm& comm, const GroupShape& shape, const WindowLayout& layout, const NetworkWindow& window,
               int timeout_ms, proxy::FaultSink faults = {});
  ~GroupNetwork();
  GroupNetwork(const GroupNetwork&) = delete;
  GroupNetwork& operator=(const GroupNetwork&) = delete;

  // Collective, on all ranks or on none: connections stand, and commands may come.
  void connect(Deadline deadline);
  // Collective: comes back when all that kernels have asked for has been done, everywhere. Among the living at once
  // where anybody has lost a rank, as writes to that may end only when their time is up.
  void stop(bool has_lost, Deadline deadline);
  // Collective among the living, while nobody's kernels use it: empty rings, and connections that have carried nothing.
  // The view() has changed, of which kernels have a copy.
  void renew(const Renewal& renewal, Deadline deadline);
  // Any thread: names the connections that stand, on this rank as on all that live; none while they are made anew.
  std::optional<uint64_t> renewal() const;
  // Any thread: the connections to a rank are lost. False: they have been.
  bool lose(int rank);
  // Nothing but its destructor may follow. What went over the network, if the communicator is traced.
  std::vector<proxy::Transfer> end();

  void add_window(uint32_t id, const SharedMemory& memory, Deadline deadline);
  void remove_window(uint32_t id) { proxies_->forget_window(id); }
  void settle(Deadline deadline) const;

  const NetworkView& view() const { return view_; }
  void add_to(ucclEpStats_t& sum) const;
  void add_to(NetworkDepths& sum) const;

 private:
  struct FreeHost {
    Device* device = nullptr;
    void operator()(uint64_t* words) const;
  };

  ucclEpComm& comm_;
  const bool goes_on_;                           // without ranks that are lost
  const std::unique_ptr<SharedMemory> channel_;  // the window of the channel
  const NicRegion rows_;                         // the window of the network
  const proxy::RingsShape rings_shape_;
  proxy::CommandRings rings_;
  const uint64_t words_bytes_;
  std::unique_ptr<uint64_t, FreeHost> words_;  // Arrivals, then ChannelWords
  NetworkView view_{};
  std::atomic<uint64_t> renewals_{0};  // begun and ended: odd while there is one
  std::mutex lost_mutex_;
  std::set<int> lost_;  // ranks
  proxy::GroupSpec spec_;
  std::unique_ptr<proxy::ProxyGroup> proxies_;
  std::vector<proxy::Transfer> transfers_;  // of before a renewal
};

// The nodes of HT are the plan's domains: what reaches each other's windows. None where there is one domain.
// apart, as for groups with masks: each rank is one of its own, whose loss takes no rows of others along.
NodeShape node_shape(const topology::Plan& plan, bool apart);
NodeShape node_shape(const std::vector<int>& sizes, bool apart);  // of domains
// What a NodeTable is a view of.
std::vector<uint32_t> node_words(const topology::Plan& plan, bool apart);

// Host memory that a group takes for the network.
uint64_t network_host_bytes(const GroupShape& shape, const DeviceTraits& traits, size_t proxy_threads);

// Error(ucclEpNotSupported) where groups cannot connect all ranks.
void check_reach(const ucclEpComm& comm);

}  // namespace ucclep

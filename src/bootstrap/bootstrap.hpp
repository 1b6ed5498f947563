// SPDX-License-Identifier: Apache-2.0
// The ranks of a communicator find each other and then agree on things over TCP: a star whose hub lives in the process
// of rank 0. It is the control plane only: created once, used by collective creates and destroys, and it tells every
// rank within moments when another one has died. Nothing of it is on the path of an operation.
//
// Collective calls are made by one thread at a time, in the same order on every rank; each either succeeds on all ranks
// or throws the same Error on all that are still there. notify(), abort() and the queries may be called by any thread.
#pragma once
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/hmac.hpp"
#include "base/node.hpp"
#include "base/token.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

// Opens a rendezvous in this process and says where it is. socket_ifname: see address.hpp.
ucclEpUniqueId open_rendezvous(const std::string& socket_ifname);

class Agreement;

class Bootstrap {
 public:
  // Through a unique id; takes part even if rank or nranks are senseless, so that every rank hears of it.
  static std::unique_ptr<Bootstrap> join(const ucclEpUniqueId& id, int rank, int nranks,
                                         const std::string& socket_ifname, Deadline deadline);
  // Through the caller's allgather, which is called only in here, by this thread. Its time is the caller's:
  // the deadline begins anew when it returns. If it fails on a rank that can reach rank 0 all the same, that is this
  // rank's error in the agreement that follows, so that every rank hears of it.
  static std::unique_ptr<Bootstrap> join(const ucclEpBootstrap_t& callback, int rank, int nranks,
                                         const std::string& socket_ifname, Deadline& deadline, Agreement& agreement);
  ~Bootstrap();  // closes
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  int rank() const;
  int nranks() const;
  const Token& comm_id() const;  // the same on all ranks, different for every communicator

  // A MAC of the text with the communicator's secret as key: what only its ranks can say.
  Mac prove(std::string_view text) const;

  int pid(int rank) const;
  const std::string& host_name(int rank) const;
  const NodeId& node(int rank) const;
  bool same_node(int rank) const;       // can map the same memory: same kernel, same network namespace
  bool same_process(int rank) const;    // a thread of this process
  std::vector<int> node_ranks() const;  // all ranks of this node in order, this one included

  // In place: rank r's part is at buf + r * bytes_per_rank.
  // Throws ucclEpTimeout (names the ranks that did not come), ucclEpRemoteError (names the rank that died),
  // ucclEpAborted, ucclEpInvalidUsage (the ranks call different things).
  void allgather(void* buf, size_t bytes_per_rank, Deadline deadline);
  template <class T>
  std::vector<T> allgather(const T& mine, Deadline deadline) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(nranks()));
    all[static_cast<size_t>(rank())] = mine;
    allgather(all.data(), sizeof(T), deadline);
    return all;
  }
  // The same with texts of any length, by rank.
  std::vector<std::string> collect(const std::string& mine, Deadline deadline);
  void barrier(Deadline deadline);
  void barrier_living(Deadline deadline);  // does not wait for ranks that died or said goodbye
  // What each of the living brings; the same on all of them.
  template <class T>
  std::vector<std::pair<int, T>> allgather_living(const T& mine, Deadline deadline) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<std::pair<int, T>> all;
    for (const auto& [rank, text] : collect_living({reinterpret_cast<const char*>(&mine), sizeof(T)}, deadline)) {
      if (text.size() != sizeof(T)) throw_size(rank, text.size(), sizeof(T));
      all.emplace_back(rank, T{});
      std::memcpy(&all.back().second, text.data(), sizeof(T));
    }
    return all;
  }
  // The same with texts of any length, ranks ascending.
  std::vector<std::pair<int, std::string>> collect_living(const std::string& mine, Deadline deadline);

  // What each rank brings for each: mine[r] is for rank r, and what comes back at r is rank r's for this one. living:
  // without the ranks that are gone, of which nothing comes. A rank sends and gets as much as these texts have.
  std::vector<std::string> exchange(const std::vector<std::string>& mine, bool living, Deadline deadline);

  // Called once per lost rank (died, aborted, or unreachable) from a thread of the bootstrap, at once for ranks that
  // are lost already. After close(), or after setting another handler, the old one does not run any more. The handler
  // must not call the bootstrap.
  void on_peer_loss(std::function<void(int rank, const std::string& message)> handler);
  // A text from this rank to another, from any thread, which does not wait; nothing answers. Whoever is gone gets none.
  void notify(int rank, const std::string& text);
  // Called for each text of another rank from a thread of the bootstrap; what comes while there is no handler is
  // dropped. The handler must not call the bootstrap.
  void on_notification(std::function<void(int rank, const std::string& text)> handler);
  bool alive(int rank) const;  // neither lost nor gone with a goodbye

  // Wakes this rank's own waits with ucclEpAborted; the other ranks see this one as lost, and hear why, if there is a
  // message. Only the first call counts.
  void abort(const std::string& why = "");
  // Says goodbye, and waits for the answer until then: the other ranks do not count this one as lost.
  void close(Deadline until);

 private:
  friend class Agreement;
  void agree(const std::string& contribution, Deadline deadline);
  [[noreturn]] static void throw_size(int rank, size_t bytes, size_t expected);
  struct Impl;
  explicit Bootstrap(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ucclep

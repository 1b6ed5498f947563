// SPDX-License-Identifier: Apache-2.0
// A proxy thread: it looks at its shares of all groups, in turn, until it ends.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/deadline.hpp"
#include "base/thread.hpp"
#include "proxy/group_share.hpp"
#include "proxy/idle_backoff.hpp"

namespace ucclep::proxy {

class ProxyThread {
 public:
  // cpu: to which it is pinned, if the machine allows that; -1: to none.
  ProxyThread(uint32_t rank, uint32_t number, int cpu);
  ~ProxyThread();
  ProxyThread(const ProxyThread&) = delete;
  ProxyThread& operator=(const ProxyThread&) = delete;

  void adopt(std::shared_ptr<GroupShare> share);
  // True when the thread does not touch it any more. False: it has not said so in time, and keeps the share alive.
  bool let_go(const GroupShare& share, Deadline deadline);

  ThreadStatistics statistics() const;

 private:
  void run(int cpu);
  void renew_shares();

  std::mutex mutex_;
  std::condition_variable renewed_;
  std::vector<std::shared_ptr<GroupShare>> wanted_;  // under the mutex
  uint64_t renewals_ = 0;                            // likewise
  std::atomic<bool> changed_{false}, ending_{false};

  std::vector<std::shared_ptr<GroupShare>> shares_;  // the thread's own
  IdleBackoff backoff_;
  Counter rounds_;
  ServiceThread thread_;
};

}  // namespace ucclep::proxy

// SPDX-License-Identifier: Apache-2.0
// The end of what ranks share: they meet in it, so that nobody frees what a peer still uses. One deadline is for all of
// it, and a rank that has missed a meeting goes on alone: whoever did not come once is not waited for again.
#pragma once
#include <utility>

#include "base/attempt.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "host/context/communicator.hpp"

namespace ucclep {

class Teardown {
 public:
  // call: the function of the API, for the log.
  Teardown(const ucclEpComm& comm, const char* call, Deadline deadline)
      : comm_(comm), call_(call), deadline_(deadline) {}

  Deadline deadline() const { return deadline_; }

  // False: this rank goes on alone, as it does after a fatal record.
  template <class Meeting>
  bool meets(Meeting&& meeting) {
    if (alone_ || comm_.faults->fatal()) return false;
    const auto missed = attempt(std::forward<Meeting>(meeting));
    if (!missed) return true;
    alone_ = true;
    log::warn("comm", "{} continued without the other ranks: {}", call_, missed->what());
    return false;
  }

 private:
  const ucclEpComm& comm_;
  const char* call_;
  Deadline deadline_;
  bool alone_ = false;
};

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// One rank's end of the star: sends its parts to the hub from the calling thread, and reads what comes back in a thread
// of its own, so that the loss of a rank is known at once, whatever the caller does.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "base/thread.hpp"
#include "bootstrap/poller.hpp"
#include "bootstrap/stream_io.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

class Spoke {
 public:
  using LossHandler = std::function<void(int rank, const std::string& message)>;
  using NotificationHandler = std::function<void(int rank, const std::string& text)>;

  Spoke(Fd socket, int rank);
  ~Spoke();
  Spoke(const Spoke&) = delete;
  Spoke& operator=(const Spoke&) = delete;

  // One collective round: its result, or the Error that every rank gets. One caller at a time.
  std::string round(wire::RoundKind kind, const std::string& part, Deadline deadline);

  void name_hub(const std::string& name);  // for the message about its loss
  void on_loss(LossHandler handler);
  void on_notification(NotificationHandler handler);
  void notify(int rank, std::string text);
  bool alive(int rank) const;
  void abort(const std::string& why);
  void close(Deadline until);

 private:
  struct Result {
    ucclEpResult_t code;
    std::string payload;
  };

  bool wait_for_result(std::unique_lock<std::mutex>& lock, Deadline deadline);
  bool over() const { return result_ || hub_gone_ || aborted_; }
  [[noreturn]] void throw_why_over() const;
  void send(wire::FrameHeader header, const std::string& payload, Deadline deadline);
  void serve();
  void send_notifications();
  void handle(Frame frame);
  void hub_closed();
  void report_losses();

  const int rank_;
  Fd socket_;
  Poller poller_;
  ServiceThread thread_;
  bool closed_ = false;

  std::mutex send_mutex_;  // one frame at a time

  mutable std::mutex mutex_;  // everything below, up to the next mutex
  std::condition_variable changed_;
  uint64_t next_sequence_ = 0;
  std::optional<Result> result_;     // of round next_sequence_ - 1
  std::map<int, std::string> lost_;  // why
  std::set<int> left_;
  std::string hub_name_ = "rank 0";
  bool hub_gone_ = false;
  bool aborted_ = false;
  std::string why_aborted_;
  bool leaving_ = false;
  bool stopping_ = false;
  std::vector<std::pair<int, std::string>> to_notify_;  // whom and what, until the thread has sent it

  std::mutex handler_mutex_;  // held while a handler runs; taken before mutex_
  LossHandler handler_;
  NotificationHandler notification_handler_;
  std::set<int> reported_;
};

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
// Threads of the library: named, deaf to the program's signals, and never the end of the process.
#pragma once
#include <pthread.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace ucclep {

// Joined when it goes, unless it was detached. Its stack has the size that the library needs, whatever RLIMIT_STACK is.
class ServiceThread {
 public:
  ServiceThread() = default;
  explicit ServiceThread(pthread_t handle) : handle_(handle) {}
  ServiceThread(ServiceThread&& other) noexcept : handle_(std::exchange(other.handle_, std::nullopt)) {}
  ServiceThread& operator=(ServiceThread&& other) noexcept {
    join();
    handle_ = std::exchange(other.handle_, std::nullopt);
    return *this;
  }
  ~ServiceThread() { join(); }

  void join() noexcept;
  void detach() noexcept;
  std::optional<pthread_t> handle() const { return handle_; }

 private:
  std::optional<pthread_t> handle_;
};

// An exception that leaves body ends the thread with a warning. name: at most 15 characters. rank heads its log lines.
ServiceThread start_service_thread(const std::string& name, int rank, std::function<void()> body);

}  // namespace ucclep

// SPDX-License-Identifier: Apache-2.0
#include "host/context/last_error.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>

#include "base/fork.hpp"

namespace ucclep {
namespace {

struct ErrorMessage {
  static constexpr size_t space = 1024;
  char text[space];

  void append(std::string_view more) noexcept {
    const size_t used = std::strlen(text);
    const size_t bytes = std::min(more.size(), space - 1 - used);
    std::memcpy(text + used, more.data(), bytes);
    text[used + bytes] = '\0';
  }
};

struct ThreadMessages {
  ErrorMessage last{};
  ErrorMessage of_asked_comm{};  // a copy: the communicator's own may change while the caller reads
};

// A pointer, because all thread-local variables of a library that is opened at run time share a few hundred bytes.
constinit thread_local ThreadMessages* of_this_thread = nullptr;

void free_at_thread_end(void* messages) {
  of_this_thread = nullptr;
  delete static_cast<ThreadMessages*>(messages);
}

// Where the process has no key left, messages stay when their thread ends: an error message matters more.
const std::optional<pthread_key_t> messages_key = [] {
  pthread_key_t made{};
  return pthread_key_create(&made, free_at_thread_end) == 0 ? std::optional(made) : std::nullopt;
}();

// Made by the first error of a thread; NULL when there is no memory even for that.
ThreadMessages* thread_messages() noexcept {
  if (of_this_thread == nullptr) {
    of_this_thread = new (std::nothrow) ThreadMessages;
    if (messages_key) pthread_setspecific(*messages_key, of_this_thread);
  }
  return of_this_thread;
}

constexpr char no_memory[] = "out of memory: too little is left even to describe the failed call";

struct Registry {
  std::mutex mutex;
  std::unordered_map<ucclEpComm_t, ErrorMessage> messages;
};

// A child knows of no errors of its parent's communicators.
Registry& registry() {
  constinit static PerProcess<Registry> instance;
  return instance.get();
}

}  // namespace

void keep_errors_of(ucclEpComm_t comm) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.messages.insert_or_assign(comm, ErrorMessage{});
}

void forget_errors_of(ucclEpComm_t comm) noexcept {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.messages.erase(comm);
}

void set_last_error(ucclEpComm_t comm, std::string_view function, std::string_view message) noexcept {
  ErrorMessage said{};
  said.append(function);
  said.append(": ");
  said.append(message);
  if (ThreadMessages* mine = thread_messages()) mine->last = said;
  if (comm == nullptr) return;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.messages.find(comm);
  if (found != all.messages.end()) found->second = said;
}

}  // namespace ucclep

const char* ucclEpGetLastError(ucclEpComm_t comm) {
  using namespace ucclep;
  if (comm == nullptr) return of_this_thread == nullptr ? "" : of_this_thread->last.text;
  ThreadMessages* mine = thread_messages();
  if (mine == nullptr) return no_memory;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.messages.find(comm);
  mine->of_asked_comm = found == all.messages.end() ? ErrorMessage{} : found->second;
  return mine->of_asked_comm.text;
}

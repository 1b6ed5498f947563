// SPDX-License-Identifier: Apache-2.0
#include "host/last_error.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace ucclep {
namespace {

// Trivial, so that a thread's one is usable until the very end of the thread.
struct Sentence {
  static constexpr size_t space = 1024;
  char text[space];

  void append(std::string_view more) noexcept {
    const size_t used = std::strlen(text);
    const size_t bytes = std::min(more.size(), space - 1 - used);
    std::memcpy(text + used, more.data(), bytes);
    text[used + bytes] = '\0';
  }
};

thread_local Sentence of_this_thread;
thread_local Sentence of_asked_comm;  // a copy: the communicator's own may change while the caller reads

struct Registry {
  std::mutex mutex;
  std::unordered_map<ucclEpComm_t, Sentence> sentences;
};

// Never destroyed: ranks may still run when static objects go.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

}  // namespace

void keep_errors_of(ucclEpComm_t comm) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.sentences.insert_or_assign(comm, Sentence{});
}

void forget_errors_of(ucclEpComm_t comm) noexcept {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.sentences.erase(comm);
}

void set_last_error(ucclEpComm_t comm, std::string_view function, std::string_view sentence) noexcept {
  of_this_thread.text[0] = '\0';
  of_this_thread.append(function);
  of_this_thread.append(": ");
  of_this_thread.append(sentence);
  if (comm == nullptr) return;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.sentences.find(comm);
  if (found != all.sentences.end()) found->second = of_this_thread;
}

}  // namespace ucclep

const char* ucclEpGetLastError(ucclEpComm_t comm) {
  using namespace ucclep;
  if (comm == nullptr) return of_this_thread.text;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.sentences.find(comm);
  of_asked_comm = found == all.sentences.end() ? Sentence{} : found->second;
  return of_asked_comm.text;
}

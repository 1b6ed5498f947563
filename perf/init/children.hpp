// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that are forked from this one, which has no threads, and what they measure.
#pragma once
#include <sys/mman.h>

#include <functional>
#include <new>
#include <type_traits>

#include "api.hpp"
#include "team.hpp"

namespace ucclep::perf {

// Runs body in so many processes, each with its member of a team, and waits for all. Throws PerfError with what the
// first of them said that failed. Nobody waits for one that has failed.
void run_in_children(int count, const std::function<void(Team&)>& body);

// An object that this process and those that it forks share.
template <class T>
class Shared {
 public:
  static_assert(std::is_trivially_destructible_v<T>);
  Shared() {
    void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw PerfError("cannot allocate memory for the measurements of ranks: mmap failed");
    object_ = new (memory) T{};
  }
  ~Shared() { munmap(object_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }

 private:
  T* object_;
};

}  // namespace ucclep::perf
